package replay_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mcpwire/capture"
	"mcpwire/cmd/internal/playback/replay"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/jsonrpc"
)

func TestMain(m *testing.M) {
	if os.Getenv(serverVar) != "" {
		os.Exit(serveStdio())
	}
	// otherwise each process sleeps for a second at its exit
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	goleak.VerifyTestMain(m)
}

// A line is an event of a capture: its time in milliseconds, its direction and its message.
type line struct {
	ms   int
	dir  capture.Dir
	text string
}

func c2s(ms int, text string) line { return line{ms, capture.ToServer, text} }
func s2c(ms int, text string) line { return line{ms, capture.ToClient, text} }

// began is the time at which the recordings begin.
var began = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// record writes a capture of a session over stdio.
func record(lines ...line) *bytes.Buffer {
	var file bytes.Buffer
	enc := capture.NewEncoder(&file, &capture.Redaction{Off: true})
	events := []*capture.Event{{Kind: capture.KindHead, Head: &capture.Head{Version: 1, ID: "A", At: began, Tool: "test", Transport: "stdio", Name: "shop"}}}
	for i, l := range lines {
		events = append(events, &capture.Event{Kind: capture.KindMessage, N: uint64(i + 1), T: time.Duration(l.ms) * time.Millisecond, Dir: l.dir, Data: []byte(l.text)})
	}
	for _, e := range events {
		if err := enc.Encode(e); err != nil {
			panic(err)
		}
	}
	if err := enc.Flush(); err != nil {
		panic(err)
	}
	return &file
}

func read(t testing.TB, file *bytes.Buffer) *replay.Recording {
	t.Helper()
	list, err := replay.Read(t.Context(), capture.NewReader(file, nil).Events(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 {
		t.Fatalf("%d recordings, want 1", len(list))
	}
	return list[0]
}

const (
	initializeLine = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
	welcomeLine    = `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}`
	greetedLine    = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	modernParams   = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`
)

// session returns a recording of a legacy session.
func session(lines ...line) *bytes.Buffer {
	return record(append([]line{c2s(0, initializeLine), s2c(1, welcomeLine), c2s(2, greetedLine)}, lines...)...)
}

// A fakeServer is a connection to a server. Its function is called with each message, except those
// of the handshake.
type fakeServer struct {
	serve func(f *fakeServer, m *jsonrpc.Message)
	hello bool // whether serve also gets the handshake

	mu     sync.Mutex
	queue  []*wireclient.Incoming
	err    error
	fresh  chan struct{}
	sent   []string
	at     []time.Time
	closed chan struct{}
	once   sync.Once
}

func newFakeServer(serve func(f *fakeServer, m *jsonrpc.Message)) *fakeServer {
	return &fakeServer{serve: serve, fresh: make(chan struct{}, 1), closed: make(chan struct{})}
}

func (f *fakeServer) Send(_ context.Context, message []byte) (wireclient.Sent, error) {
	f.mu.Lock()
	if f.err != nil {
		f.mu.Unlock()
		return wireclient.Sent{}, f.err
	}
	f.sent, f.at = append(f.sent, string(message)), append(f.at, time.Now())
	n := uint64(len(f.sent))
	f.mu.Unlock()
	var m jsonrpc.Message
	if err := jsonrpc.Parse(message, &m, 0); err != nil {
		panic(err)
	}
	switch {
	case f.hello:
		f.serve(f, &m)
	case string(m.Method) == "initialize":
		f.say(welcomeLine)
	case string(m.Method) != "notifications/initialized":
		f.serve(f, &m)
	}
	return wireclient.Sent{N: n}, nil
}

func (f *fakeServer) push(in *wireclient.Incoming, err error) {
	f.mu.Lock()
	if in != nil {
		f.queue = append(f.queue, in)
	}
	if f.err == nil {
		f.err = err
	}
	f.mu.Unlock()
	select {
	case f.fresh <- struct{}{}:
	default:
	}
}

// say sends a message to the client.
func (f *fakeServer) say(text string) { f.push(&wireclient.Incoming{N: 1, Data: []byte(text)}, nil) }

// result responds to a request.
func (f *fakeServer) result(m *jsonrpc.Message, result string) {
	f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result))
}

// later responds to a request after a delay.
func (f *fakeServer) later(d time.Duration, m *jsonrpc.Message, result string) {
	m = m.Clone()
	time.AfterFunc(d, func() { f.result(m, result) })
}

// die ends the connection.
func (f *fakeServer) die() { f.push(nil, &wireclient.EndedError{Err: fmt.Errorf("exit status 7")}) }

func (f *fakeServer) Next(ctx context.Context) (*wireclient.Incoming, error) {
	for {
		f.mu.Lock()
		if len(f.queue) > 0 {
			in := f.queue[0]
			f.queue = f.queue[1:]
			f.mu.Unlock()
			return in, nil
		}
		err := f.err
		f.mu.Unlock()
		if err != nil {
			return nil, err
		}
		select {
		case <-f.fresh:
		case <-f.closed:
			return nil, wireclient.ErrClosed
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (f *fakeServer) OpenStream(context.Context) {}
func (f *fakeServer) Abort(uint64)               {}
func (f *fakeServer) Close()                     { f.once.Do(func() { close(f.closed) }) }

// logLines collects reports, one per line.
type logLines []string

func (l *logLines) add(r *replay.Result) {
	var b strings.Builder
	fmt.Fprintf(&b, "%d", r.N)
	if r.Asked {
		b.WriteString(" asked")
	}
	fmt.Fprintf(&b, " %s", strings.TrimSpace(r.Method+" "+r.Target))
	fmt.Fprintf(&b, ": %s", r.Status)
	if r.OK != (r.Status == replay.Same || r.Status == replay.Skipped || r.Status == replay.Open) {
		fmt.Fprintf(&b, " (ok %v)", r.OK)
	}
	for _, d := range r.Differences {
		fmt.Fprintf(&b, " %s %s", d.Op, d.Pointer)
		if d.Note {
			b.WriteString(" (note)")
		}
	}
	if len(r.Redacted) > 0 {
		fmt.Fprintf(&b, " %q", r.Redacted)
	}
	*l = append(*l, b.String())
}
