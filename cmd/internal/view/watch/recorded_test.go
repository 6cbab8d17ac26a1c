package watch

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace/live"
)

// TestIngestRecordedLarge shows that the compressed file of a tap may be larger than a line of a
// tap.
func TestIngestRecordedLarge(t *testing.T) {
	head := &capture.Head{Version: capture.Version, ID: "A", Name: "x", Transport: "stdio"}
	var text bytes.Buffer
	enc := capture.NewEncoder(&text, nil)
	const events = 5
	for n := range uint64(events + 1) {
		e := &capture.Event{Kind: capture.KindHead, Head: head}
		if n > 0 {
			e = &capture.Event{N: n, Kind: capture.KindMessage, Dir: capture.ToServer, Data: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"ping"}`, n)}
		}
		if err := enc.Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := enc.Flush(); err != nil {
		t.Fatal(err)
	}
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	// A skippable frame, a hole in the file, makes it large.
	const skipped = maxTapLine + 1
	path := filepath.Join(t.TempDir(), "a"+capture.Suffix+".zst")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	first, rest, _ := bytes.Cut(text.Bytes(), []byte("\n"))
	start := z.EncodeAll(append(first, '\n'), nil)
	start = binary.LittleEndian.AppendUint32(append(start, 0x50, 0x2a, 0x4d, 0x18), skipped)
	if _, err := f.Write(start); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(z.EncodeAll(rest, nil), int64(len(start)+skipped)); err != nil {
		t.Fatal(err)
	}
	h := New(&Options{NoRules: true})
	s := &source{hub: h, claimed: true}
	h.addSourceLocked(s)
	if err := s.ingest(context.Background(), &capture.Event{Kind: capture.KindHead, Head: head}); err != nil {
		t.Fatal(err)
	}
	s.ingestRecorded(context.Background(), live.Greeting{Capture: "A", File: path, Next: events + 1})
	if s.last != events {
		t.Errorf("the last event is %d, want %d", s.last, events)
	}
}
