//go:build linux

package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"mcpwire/internal/test/soak"
	"mcpwire/internal/test/upstream"
)

// TestMain makes the test's program be an upstream, too.
func TestMain(m *testing.M) {
	upstream.ServeIfSet()
	os.Exit(m.Run())
}

// TestShort runs the scenarios of the short run with MCPWIRE_SOAK, and the one without a fault
// otherwise. Invariants that are broken fail it. Bars of time do not: other tests use the machine.
func TestShort(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts three nodes")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	dir := t.TempDir()
	o := &options{seed: 1, dir: dir}
	if !soak.Enabled() {
		o.run = regexp.MustCompile("^no-fault$")
	}
	if err := o.prepare(ctx); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	err := o.runAll(ctx, &stdout, &stderr)
	t.Logf("%s", stdout.Bytes())
	if err == nil {
		return
	}
	t.Errorf("%v\n%s", err, stderr.Bytes())
	logs, _ := filepath.Glob(filepath.Join(dir, "*", "*.log"))
	for _, name := range logs {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
		}
		t.Logf("the end of %s:\n%s", filepath.Base(name), text[max(0, len(text)-4<<10):])
	}
}
