package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"mcpwire/internal/test/race"
	"mcpwire/jsonrpc"
	"mcpwire/server"
)

// A lockstep is an in-memory stream that sends one frame at a time and waits for the response. It
// allocates nothing.
type lockstep struct {
	in  chan []byte
	out chan []byte
}

func (l *lockstep) Read(p []byte) (int, error) {
	frame, ok := <-l.in
	if !ok {
		return 0, io.EOF
	}
	return copy(p, frame), nil
}

func (l *lockstep) Write(p []byte) (int, error) {
	l.out <- p
	return len(p), nil
}

func (l *lockstep) Close() error { return nil }

// do sends a frame and returns the response, which is valid until the next call.
func (l *lockstep) do(frame []byte) []byte {
	l.in <- frame
	return <-l.out
}

// startLockstep serves the demo tools in memory.
func startLockstep(t testing.TB, opts *server.Options) *lockstep {
	t.Helper()
	return serveLockstep(t, newWireServer(t, opts, nil))
}

// serveLockstep serves in memory, to a client of 2025-06-18.
func serveLockstep(t testing.TB, srv *server.Server) *lockstep {
	t.Helper()
	l := &lockstep{in: make(chan []byte), out: make(chan []byte)}
	served := make(chan error, 1)
	go func() {
		served <- srv.Serve(context.Background(), jsonrpc.NewFramer(l, &jsonrpc.FramerOptions{Framing: jsonrpc.FramingLine}))
	}()
	t.Cleanup(func() {
		close(l.in)
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	l.do([]byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}` + "\n"))
	l.in <- []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n")
	return l
}

var allocRequests = []struct {
	name, frame, want string
	allocs            float64
}{
	{"ping", `{"jsonrpc":"2.0","id":7,"method":"ping"}`, `{"jsonrpc":"2.0","id":7,"result":{}}`, 0},
	{"echo, legacy", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello, world"}}}`, `"hello, world"`, 5},
	{"echo, modern", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"_meta":{` + modernMeta + `},"name":"echo","arguments":{"text":"hello, world"}}}`, `"hello, world"`, 5},
	{"bad method", `{"jsonrpc":"2.0","id":7,"method":"no/such"}`, `-32601`, 10},
}

// TestAllocations checks the allocations of a request, from the bytes read to the bytes written.
func TestAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	for _, log := range []*slog.Logger{nil, slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError + 1}))} {
		l := startLockstep(t, &server.Options{Logger: log})
		for _, tt := range allocRequests {
			frame := []byte(tt.frame + "\n")
			var answer []byte
			for range 200 { // until the handler is known to be fast
				answer = l.do(frame)
			}
			if !bytes.Contains(answer, []byte(tt.want)) || strings.Count(string(answer), "\n") != 1 {
				t.Fatalf("%s: got %s", tt.name, answer)
			}
			if n := testing.AllocsPerRun(2000, func() { l.do(frame) }); n > tt.allocs {
				t.Errorf("%s: %v allocations, want at most %v", tt.name, n, tt.allocs)
			} else {
				t.Logf("%s: %v allocations", tt.name, n)
			}
		}
	}
}

// TestListIsEncodedOnce shows that a second request for a list of 1,000 tools takes almost no
// allocations, though encoding the list takes thousands.
func TestListIsEncodedOnce(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	srv := server.MustNew("test", "1", nil)
	for i := range 1000 {
		err := server.AddTool(srv, fmt.Sprintf("tool%d", i), "One of many.", func(context.Context, struct {
			Text string `json:"text" jsonschema:"a text"`
		}) (string, error) {
			return "", nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	l := serveLockstep(t, srv)
	frame := []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/list"}` + "\n")
	if answer := l.do(frame); bytes.Count(answer, []byte(`"inputSchema"`)) != 1000 {
		t.Fatalf("got %.200s", answer)
	}
	if n := testing.AllocsPerRun(100, func() { l.do(frame) }); n > 8 {
		t.Errorf("%v allocations, want at most 8", n)
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	for _, tt := range allocRequests {
		b.Run(tt.name, func(b *testing.B) {
			l := startLockstep(b, nil)
			frame := []byte(tt.frame + "\n")
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			for b.Loop() {
				l.do(frame)
			}
		})
	}
}
