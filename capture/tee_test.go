package capture_test

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
)

// A teeLog keeps what it is shown.
type teeLog struct {
	bytes.Buffer
	next  uint64
	whole []int // how much there was at each EndLine
}

func (l *teeLog) Write(p []byte) { l.Buffer.Write(p) }

func (l *teeLog) EndLine(next uint64) {
	l.next = next
	l.whole = append(l.whole, l.Len())
}

func message(text string) *capture.Event {
	return &capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: []byte(text)}
}

// TestTee compares what the Tee is shown with what is in the file, and with what a reader makes of it.
func TestTee(t *testing.T) {
	for _, name := range []string{"a.mcpcap.ndjson", "a.mcpcap.ndjson.gz", "a.mcpcap.ndjson.zst"} {
		t.Run(name, func(t *testing.T) {
			var tee teeLog
			path := filepath.Join(t.TempDir(), name)
			w, err := capture.Create(path, &capture.Options{Tee: &tee, Name: "files"})
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				w.Record(message(`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"password":"hunter2","x":"` + strings.Repeat("x", 100_000) + `"}}`))
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(tee.String(), "hunter2") {
				t.Error("a secret was shown")
			}
			for _, n := range tee.whole {
				if n > 0 && tee.Bytes()[n-1] != '\n' {
					t.Errorf("the first %d bytes are said to be whole lines", n)
				}
			}
			if tee.next != 4 {
				t.Errorf("the next event has number %d, want 4", tee.next)
			}
			r, err := capture.Open(path, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			want := events(t, r)
			if diff := cmp.Diff(want, events(t, capture.NewReader(&tee.Buffer, nil)), cmp.Comparer(bytes.Equal)); diff != "" || len(want) != 5 {
				t.Errorf("%d events (-file +shown):\n%s", len(want), diff)
			}
		})
	}
}

func events(t *testing.T, r *capture.Reader) (list []*capture.Event) {
	t.Helper()
	for e, err := range r.Events() {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e.Clone())
	}
	return list
}

// TestTeeFullDisk: what could not be written was shown all the same, and lines that come later are not part of one that broke off.
func TestTeeFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tee teeLog
		d := new(disk)
		w := capture.NewWriter(d, &capture.Options{Tee: &tee})
		synctest.Wait()
		d.set(1, nil)
		w.Record(message(`{"jsonrpc":"2.0","id":1,"method":"lost"}`))
		<-time.After(time.Second)
		w.Record(message(`{"jsonrpc":"2.0","id":2,"method":"written"}`))
		if err := w.Close(); err == nil {
			t.Error("closed without an error")
		}
		var got []string
		for _, e := range events(t, capture.NewReader(&tee.Buffer, nil)) {
			got = append(got, string(e.Kind))
		}
		want := []string{"head", "msg", "gap", "msg", "tail"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("kinds (-want +got):\n%s", diff)
		}
	})
}

// TestTeeAlone records for the Tee only.
func TestTeeAlone(t *testing.T) {
	var tee teeLog
	w := capture.NewWriter(io.Discard, &capture.Options{Tee: &tee})
	w.Record(message(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got := len(events(t, capture.NewReader(&tee.Buffer, nil))); got != 3 {
		t.Errorf("%d events, want 3", got)
	}
}
