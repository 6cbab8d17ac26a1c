package watch_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/live"
	"mcpwire/cmd/internal/view/watch"
	"mcpwire/internal/base/hooks"
)

// testTimeout limits each wait of a test.
const testTimeout = 20 * time.Second

// running returns a hub that runs until the test ends.
func running(t testing.TB, opts *watch.Options) *watch.Hub {
	t.Helper()
	h := watch.New(opts)
	run(t, h)
	return h
}

// run runs a hub until the test ends, or the function that it returns is called.
func run(t testing.TB, h *watch.Hub) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// await waits until a condition is true. It checks the condition at each change that the hub
// announces.
func await(t testing.TB, h *watch.Hub, what string, holds func(m *trace.Model) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	f := h.Subscribe(0)
	defer f.Close()
	for {
		ok := false
		h.Read(func(m *trace.Model) { ok = holds(m) })
		if ok {
			return
		}
		if err := f.Next(ctx, func(*watch.Batch) {}); err != nil {
			t.Fatalf("waiting for %s: %v; sources %+v; rows %v", what, err, h.Sources(), rows(h))
		}
	}
}

// rows formats the timeline.
func rows(h *watch.Hub) (list []string) {
	h.Read(func(m *trace.Model) {
		for _, r := range m.Rows() {
			list = append(list, describe(r))
		}
	})
	return list
}

func describe(r *trace.Row) string {
	return fmt.Sprintf("%s/%d %s %s %s", r.Capture.Name, r.N, r.Kind, r.Target, r.Status)
}

func settledRows(n int) func(m *trace.Model) bool {
	return func(m *trace.Model) bool {
		done := 0
		for _, r := range m.Rows() {
			if r.Complete() {
				done++
			}
		}
		return done >= n
	}
}

func sourceState(h *watch.Hub, path string) watch.State {
	for _, s := range h.Sources() {
		if s.Path == path {
			return s.State
		}
	}
	return ""
}

func call(i int, tool string) []*capture.Event {
	return []*capture.Event{
		{Kind: capture.KindMessage, Dir: capture.ToServer,
			Data: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%s","arguments":{"q":"question %d"}}}`, i, tool, i)},
		{Kind: capture.KindMessage, Dir: capture.ToClient,
			Data: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"answer %d"}]}}`, i, i)},
	}
}

var begun = time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)

// write writes a capture with completed calls, one per second from a given time on, and then more
// events. It returns the path.
func write(t testing.TB, path, id string, from time.Time, calls int, more ...*capture.Event) string {
	t.Helper()
	var b bytes.Buffer
	enc := capture.NewEncoder(&b, nil)
	put := func(e *capture.Event) {
		if err := enc.Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	put(&capture.Event{Kind: capture.KindHead, Head: &capture.Head{Version: capture.Version, ID: id, At: from, Name: id, Transport: "stdio"}})
	n := uint64(0)
	at := time.Duration(0)
	for i := range calls {
		for _, e := range call(i, id) {
			n++
			e.N, e.T = n, at
			put(e)
			at += time.Second / 2
		}
	}
	for _, e := range more {
		n++
		e.N, e.T = n, at
		put(e)
	}
	if err := enc.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	var dst io.WriteCloser
	dst, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dst.Write(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := dst.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func tail() *capture.Event { return &capture.Event{Kind: capture.KindTail, Tail: &capture.Tail{}} }

// A tap is the recording side of a tap: a Writer whose lines are sent to viewers.
type tap struct {
	*capture.Writer
	server *live.Server
	stop   func()
}

// startTap starts a tap that records to a file, or to none.
func startTap(t testing.TB, dir, path string, opts *live.Options) *tap {
	t.Helper()
	p := &tap{server: live.NewServer(opts)}
	o := &capture.Options{Hooks: &hooks.Writer[capture.Event]{Tee: p.server}, Name: "live", Transport: "stdio"}
	hello := live.Greeting{Name: "live", Transport: "stdio", File: path}
	var closer io.Closer
	if path == "" {
		p.Writer = capture.NewWriter(io.Discard, o)
		closer = p.Writer
	} else {
		f, err := capture.Create(path, o)
		if err != nil {
			t.Fatal(err)
		}
		p.Writer, closer = f.Writer, f
	}
	hello.Capture = p.ID()
	if err := p.server.Start(dir, hello); err != nil {
		t.Fatal(err)
	}
	stopped := false
	p.stop = func() {
		if stopped {
			return
		}
		stopped = true
		if err := closer.Close(); err != nil {
			t.Error(err)
		}
		p.server.Close()
	}
	t.Cleanup(p.stop)
	return p
}

func (p *tap) call(i int) {
	for _, e := range call(i, "search") {
		p.Record(e)
	}
}
