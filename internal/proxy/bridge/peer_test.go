package bridge

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"mcpwire/internal/json/jsonedit"
	"mcpwire/jsonrpc"
)

// A pipe is a peer under the control of a test: lines in, lines out.
type pipe struct {
	t   *testing.T
	f   jsonrpc.Framer
	out chan string

	last string // that was read
}

func newPipe(t *testing.T, conn net.Conn) *pipe {
	p := &pipe{t: t, f: jsonrpc.NewFramer(conn, nil), out: make(chan string, 100)}
	over := make(chan struct{})
	t.Cleanup(func() {
		conn.Close()
		close(p.out)
		<-over
	})
	go func() {
		defer close(over)
		for line := range p.out {
			_ = p.f.WriteFrame([]byte(line)) // the other side may be gone, which the test sees when it reads
		}
	}()
	return p
}

// send has lines sent, without waiting for it.
func (p *pipe) send(lines ...string) {
	for _, line := range lines {
		p.out <- line
	}
}

func (p *pipe) read() string {
	p.t.Helper()
	frame, err := p.f.ReadFrame()
	if err != nil {
		p.t.Fatalf("read: %v", err)
	}
	p.last = string(frame)
	return p.last
}

// wants reads lines and compares them with these.
func (p *pipe) wants(lines ...string) {
	p.t.Helper()
	for _, want := range lines {
		if got := p.read(); got != want {
			p.t.Fatalf("got  %s\nwant %s", got, want)
		}
	}
}

// reads reads a line and checks that it contains these texts.
func (p *pipe) reads(parts ...string) string {
	p.t.Helper()
	got := p.read()
	for _, part := range parts {
		if !strings.Contains(got, part) {
			p.t.Fatalf("got %s\nwant %s in it", got, part)
		}
	}
	return got
}

// request reads a request and returns its id.
func (p *pipe) request(parts ...string) string {
	p.t.Helper()
	line := p.reads(parts...)
	return string(jsonedit.Locate([]byte(line), "id").Of([]byte(line)))
}

// A farm is a server under the control of a test: each connection to it is handed to the test.
type farm struct {
	t     *testing.T
	conns chan *pipe
	fail  func() error // of connecting; may be nil

}

func newFarm(t *testing.T) *farm { return &farm{t: t, conns: make(chan *pipe, 16)} }

func (f *farm) connect(context.Context, io.Writer) (jsonrpc.Framer, error) {
	if f.fail != nil {
		if err := f.fail(); err != nil {
			return nil, err
		}
	}
	ours, theirs := net.Pipe()
	f.conns <- newPipe(f.t, theirs)
	return jsonrpc.NewFramer(ours, nil), nil
}

// next returns the next connection.
func (f *farm) next() *pipe {
	f.t.Helper()
	select {
	case p := <-f.conns:
		return p
	case <-time.After(time.Minute):
		f.t.Fatal("there is no connection")
		return nil
	}
}

// bridge returns a bridge to the farm, which is closed at the end of the test.
func (f *farm) bridge(o *Options) *Bridge {
	f.t.Helper()
	if o == nil {
		o = &Options{}
	}
	o.Connect = f.connect
	b, err := New(o)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { b.Close() })
	return b
}

// client0 connects a client to the bridge. done gets the result of Serve.
func client0(t *testing.T, b *Bridge) (p *pipe, done chan error) {
	ours, theirs := net.Pipe()
	done = make(chan error, 1)
	go func() { done <- b.Serve(context.Background(), jsonrpc.NewFramer(theirs, nil)) }()
	return newPipe(t, ours), done
}

// legacy is a server that is known to be legacy, so that the bridge does not probe.
var legacy = Options{ClientEra: EraLegacy, ServerEra: EraLegacy}

func with(o Options, change func(*Options)) *Options {
	if change != nil {
		change(&o)
	}
	return &o
}

const (
	hello     = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
	welcome   = `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{"subscribe":true}},"serverInfo":{"name":"s","version":"1"}}}`
	confirmed = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

// handshake performs the handshake of the two through the bridge.
func handshake(client, srv *pipe) {
	client.t.Helper()
	srv.wants(hello)
	srv.send(welcome)
	client.wants(welcome)
	client.send(confirmed)
	srv.wants(confirmed)
}

// answering returns a response to a request.
func answering(id, result string) string {
	return string(jsonrpc.AppendResult(nil, jsonrpc.ID(id), []byte(result)))
}

// parsed returns a message as a client gets it.
func parsed(t *testing.T, text string) ([]byte, *jsonrpc.Message) {
	t.Helper()
	m := new(jsonrpc.Message)
	if err := jsonrpc.Parse([]byte(text), m, 0); err != nil {
		t.Fatal(err)
	}
	return []byte(text), m
}

var errTest = errors.New("no such program")
