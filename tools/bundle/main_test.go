package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestFresh compares the committed files with those that the sources result in. It needs -count=1:
// go test does not notice changes of files outside this module, and would print a cached result.
func TestFresh(t *testing.T) {
	want, err := bundle()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dist)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if want[e.Name()] == nil {
			t.Errorf("dist/%s is not generated", e.Name())
		}
	}
	for name, text := range want {
		got, err := os.ReadFile(filepath.Join(dist, name))
		if err != nil {
			t.Error(err)
		} else if !bytes.Equal(got, text) {
			t.Errorf("dist/%s is stale; run go generate ./cmd/internal/view/web", name)
		}
	}
}
