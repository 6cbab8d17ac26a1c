//go:build unix

package tap

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/internal/test/wait"
	"mcpwire/server"
	"mcpwire/stdio"
)

func init() {
	// A server that answers at once.
	helpers["serve"] = func(args []string) int {
		srv := server.MustNew("test", "1", nil)
		type in struct {
			Text string `json:"text"`
		}
		err := server.AddTool(srv, "echo", "says it again", func(_ context.Context, args in) (string, error) { return args.Text, nil })
		if err != nil {
			return 87
		}
		if err := stdio.Serve(context.Background(), srv); err != nil {
			return 86
		}
		return 0
	}
}

const (
	initialize  = `{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"host","version":"1"}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

func callOf(id int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hi"}}}`, id)
}

// TestOrder makes 5000 calls in a row to a server that answers at once, and shows that no response
// is recorded before its request, and that there are no findings.
func TestOrder(t *testing.T) {
	const calls = 5000
	rec := newRecord()
	o := helperOptions(t, "serve")
	o.Record, o.Hooks = rec.w, &rec.hooks
	h := startHost(t, o)
	wait.Within(t, "the session", func() {
		lines := bufio.NewReader(h.stdout)
		exchange(t, h, lines, initialize)
		fmt.Fprintln(h.stdin, initialized)
		for i := range calls {
			exchange(t, h, lines, callOf(i))
		}
	})
	h.stdin.Close()
	if status := h.ends(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	if err := rec.w.Close(); err != nil {
		t.Fatal(err)
	}
	file := rec.Bytes()
	pairs := 0
	for x, err := range capture.Pairs(capture.NewReader(strings.NewReader(string(file)), nil).Events()) {
		if err != nil {
			t.Fatal(err)
		}
		pairs++
		if !x.Call.Answered || x.Call.ResponseN <= x.Call.N || x.Call.Latency < 0 {
			t.Fatalf("call %s: request %d, response %d", x.Call.ID, x.Call.N, x.Call.ResponseN)
		}
	}
	if pairs != calls+1 {
		t.Errorf("%d pairs, want %d", pairs, calls+1)
	}
	for f, err := range check.Run(capture.NewReader(strings.NewReader(string(file)), nil), nil) {
		if err != nil {
			t.Fatal(err)
		}
		t.Errorf("%s: event %d: %s", f.Rule.ID, f.Event, f.Message)
	}
}

func exchange(t *testing.T, h *host, lines *bufio.Reader, request string) string {
	t.Helper()
	if _, err := fmt.Fprintln(h.stdin, request); err != nil {
		t.Error(err)
	}
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Error(err)
	}
	return strings.TrimSuffix(line, "\n")
}

// A stuckDisk blocks writes until it is released.
type stuckDisk struct{ free chan struct{} }

func (d *stuckDisk) Write(p []byte) (int, error) {
	<-d.free
	return len(p), nil
}

// TestStuckDisk shows that forwarding does not wait for a disk that does not write at all, even if
// the queue of the capture is full.
func TestStuckDisk(t *testing.T) {
	disk := &stuckDisk{make(chan struct{})}
	w := capture.NewWriter(disk, &capture.Options{MaxQueue: 64 << 10})
	o := helperOptions(t, "echo", "out", "0")
	o.Record = w
	h := startHost(t, o)
	wait.Within(t, "the session", func() {
		lines := bufio.NewReader(h.stdout)
		for i := range 2000 {
			if got := exchange(t, h, lines, callOf(i)); got != callOf(i) {
				t.Errorf("got %q", got)
			}
		}
	})
	h.stdin.Close()
	if status := h.ends(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	if w.Lost() == 0 {
		t.Error("nothing was lost, so the disk was not slow enough for this test")
	}
	close(disk.free)
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// TestObserve shows that an observer sees what the capture has, in its order, with its numbers.
func TestObserve(t *testing.T) {
	rec := newRecord()
	o := helperOptions(t, "serve")
	o.Record, o.Hooks = rec.w, &rec.hooks
	var mu sync.Mutex
	var seen []string
	o.Observe = func(e *capture.Event) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, fmt.Sprint(e.N, e.Kind, e.Dir, string(e.Data)))
	}
	h := startHost(t, o)
	lines := bufio.NewReader(h.stdout)
	exchange(t, h, lines, initialize)
	fmt.Fprintln(h.stdin, initialized)
	exchange(t, h, lines, callOf(1))
	h.stdin.Close()
	h.ends()
	var want []string
	for _, e := range rec.events(t) {
		if e.N > 0 && e.Kind != capture.KindTail && e.Kind != capture.KindStderr {
			want = append(want, fmt.Sprint(e.N, e.Kind, e.Dir, string(e.Data)))
		}
	}
	if !slices.Equal(seen, want) {
		t.Errorf("seen\n%s\nin the capture\n%s", strings.Join(seen, "\n"), strings.Join(want, "\n"))
	}
}
