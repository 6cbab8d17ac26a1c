package recording

import (
	"bytes"
	"path/filepath"
	"testing"

	"mcpwire/capture"
)

// TestReportsLost shows that a tap says at its end how much it could not record.
func TestReportsLost(t *testing.T) {
	file, err := capture.Create(filepath.Join(t.TempDir(), "a"+capture.Suffix), &capture.Options{MaxQueue: 100})
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; file.Lost() == 0; i++ {
		if i == 1_000_000 {
			t.Fatal("nothing is lost")
		}
		file.Record(&capture.Event{Kind: capture.KindMessage, Data: bytes.Repeat([]byte("x"), 1000)})
	}
	var stderr bytes.Buffer
	(&Recording{File: file, Writer: file.Writer}).Finish(&stderr)
	want := "mcpwire: 1 event lost: writing to " + file.Name() + " was too slow or failed\n"
	if got := stderr.String(); got != want {
		t.Errorf("stderr: got %q, want %q", got, want)
	}
}
