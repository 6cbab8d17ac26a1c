package show

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/sources"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/filter"
	"mcpwire/internal/test/buffer"
)

// bigCapture returns a capture of n calls, which is generated while it is read. Each response has
// the text.
func bigCapture(n int, text string) io.Reader {
	r, w := io.Pipe()
	go func() {
		b := bufio.NewWriterSize(w, 64<<10)
		enc := capture.NewEncoder(b, &capture.Redaction{Off: true})
		head := &capture.Head{Version: capture.Version, ID: "BIG", At: time.Unix(0, 0), Transport: "stdio", Name: "big", Redact: "off"}
		err := enc.Encode(&capture.Event{Kind: capture.KindHead, Head: head})
		for i := 0; i < n && err == nil; i++ {
			e := &capture.Event{Kind: capture.KindMessage, N: uint64(2*i + 1), T: time.Duration(i) * time.Millisecond, Dir: capture.ToServer}
			e.Data = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"search","arguments":{"q":%d}}}`, i, i)
			if err = enc.Encode(e); err != nil {
				break
			}
			e.N, e.T, e.Dir = e.N+1, e.T+time.Microsecond, capture.ToClient
			e.Data = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"%s"}]}}`, i, text)
			err = enc.Encode(e)
		}
		if err == nil {
			err = enc.Flush()
		}
		if err == nil {
			err = b.Flush()
		}
		w.CloseWithError(err) // nil is the end of the file
	}()
	return r
}

// A peakWriter counts lines, and measures the heap from time to time.
type peakWriter struct {
	lines int
	peak  uint64
}

func (w *peakWriter) Write(p []byte) (int, error) {
	before := w.lines
	w.lines += bytes.Count(p, []byte("\n"))
	if before/20_000 != w.lines/20_000 {
		var s runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&s)
		w.peak = max(w.peak, s.HeapAlloc)
	}
	return len(p), nil
}

// TestShowStreams shows captures of 64 MiB, and of a string of 50 MB, with memory for neither.
func TestShowStreams(t *testing.T) {
	for _, tt := range []struct {
		name  string
		calls int
		size  int    // length of the text in a response
		limit uint64 // bytes of the heap
	}{
		{"many calls", 60_000, 950, 32 << 20},
		{"one line of 50 MB", 1, 50 << 20, 400 << 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if testing.Short() {
				t.Skip("it takes a while")
			}
			f, err := filter.Parse("tool:search x has:content")
			if err != nil {
				t.Fatal(err)
			}
			out := &peakWriter{}
			l := newLister(&kit.Env{Stdout: out}, f)
			r := capture.NewReader(bigCapture(tt.calls, strings.Repeat("x", tt.size)), nil)
			if err := l.run(t.Context(), r.Events(), func() bool { return true }); err != nil {
				t.Fatal(err)
			}
			if out.lines != tt.calls || l.count != tt.calls {
				t.Errorf("%d lines, %d counted, want %d", out.lines, l.count, tt.calls)
			}
			if out.peak > tt.limit {
				t.Errorf("the heap had %d bytes, the limit is %d", out.peak, tt.limit)
			}
			if len(l.queue) > 0 {
				t.Errorf("%d rows wait", len(l.queue))
			}
		})
	}
}

// escapeCodes matches what sets colors on a terminal.
var escapeCodes = regexp.MustCompile("\x1b\\[[0-9;]*m")

// TestListerWidth prints the captures of the scripts as terminals get them.
func TestListerWidth(t *testing.T) {
	for name, text := range scriptCaptures(t) {
		for _, width := range []int{20, 40, 80} {
			var out bytes.Buffer
			l := newLister(&kit.Env{Stdout: &out}, nil)
			l.width, l.paint = width, true
			r := capture.NewReader(bytes.NewReader(text), nil)
			if err := l.run(t.Context(), r.Events(), func() bool { return true }); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), "\x1b[") {
				t.Errorf("%s has no colors", name)
			}
			plain := escapeCodes.ReplaceAllString(out.String(), "")
			if strings.Contains(plain, "\x1b") {
				t.Errorf("%s controls the terminal: %q", name, plain)
			}
			for line := range strings.Lines(plain) {
				if n := trace.Width(strings.TrimSuffix(line, "\n")); n > width {
					t.Errorf("%s: %d columns, the limit is %d: %q", name, n, width, line)
				}
			}
		}
	}
}

// TestRawOnTerminal checks that bytes are not sent to a terminal.
func TestRawOnTerminal(t *testing.T) {
	var out bytes.Buffer
	l := newLister(&kit.Env{Stdout: &out}, nil)
	e := &capture.Event{Kind: capture.KindMessage, Data: []byte("\"\x1b[2J\u202e\"")}
	for _, print := range []func(v *eventPrinter) error{
		func(v *eventPrinter) error { return v.raw(e) },
		func(v *eventPrinter) error {
			e.Data = []byte("\"\u202e\"")
			return v.message(e)
		},
	} {
		if err := print(&eventPrinter{lister: l, flags: &showFlags{}, terminal: true}); err != nil {
			t.Fatal(err)
		}
	}
	l.w.Flush()
	if got := out.String(); strings.ContainsAny(got, "\x1b\u202e") {
		t.Errorf("a terminal gets %q", got)
	}
}

// TestFollow shows a capture while it grows, until it is stopped.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "a.mcpcap.ndjson")
		text := sketched(t, &capture.Head{ID: "F", At: time.Now(), Name: "f"}, strings.Join(strings.Split(strings.TrimSpace(sketchLegacy), "\n")[:15], "\n"))
		half := bytes.Index(text, []byte(`"id":0,"result":{"action"`)) // in the middle of a line
		if err := os.WriteFile(path, text[:half], 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var out buffer.Buffer
		done := make(chan error)
		go func() {
			e := &kit.Env{Stdout: &out}
			l := newLister(e, nil)
			l.live = true
			done <- l.run(ctx, sources.Source{Env: e, Paths: []string{path}, Side: ""}.Follow(ctx, nil), func() bool { return ctx.Err() == nil })
		}()
		<-time.After(time.Second) // of the bubble
		if got := out.String(); !strings.Contains(got, "called search: 3 contents") || strings.Contains(got, "order") {
			t.Errorf("at first there is\n%s", got)
		}
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(text[half:]); err != nil {
			t.Fatal(err)
		}
		f.Close()
		<-time.After(time.Second)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := out.String(); !strings.Contains(got, "called order: no response yet") || !strings.Contains(got, "requested input:") {
			t.Errorf("the output at the end is\n%s", got)
		}
	})
}
