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

// A pipe is a peer under the control of a test, which reads and writes its messages.
type pipe struct {
	t   *testing.T
	f   jsonrpc.Framer
	out chan string

	// last is the last message that was read.
	last string
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
			_ = p.f.WriteFrame([]byte(line)) // the test gets the error when it reads
		}
	}()
	return p
}

// send queues messages to be written.
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

// wants reads messages, and fails the test unless they are equal to lines.
func (p *pipe) wants(lines ...string) {
	p.t.Helper()
	for _, want := range lines {
		if got := p.read(); got != want {
			p.t.Fatalf("got  %s\nwant %s", got, want)
		}
	}
}

// reads reads a message, and fails the test unless it contains all parts.
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

// request reads a request that contains all parts, and returns its id.
func (p *pipe) request(parts ...string) string {
	p.t.Helper()
	line := p.reads(parts...)
	return string(jsonedit.Locate([]byte(line), "id").Of([]byte(line)))
}

// A fakeServer is a server under the control of a test, which gets each connection from next.
type fakeServer struct {
	t     *testing.T
	conns chan *pipe
	// fail, if set, returns the error of connect.
	fail func() error
}

func newFakeServer(t *testing.T) *fakeServer { return &fakeServer{t: t, conns: make(chan *pipe, 16)} }

func (f *fakeServer) connect(context.Context, io.Writer) (jsonrpc.Framer, error) {
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
func (f *fakeServer) next() *pipe {
	f.t.Helper()
	select {
	case p := <-f.conns:
		return p
	case <-time.After(time.Minute):
		f.t.Fatal("the bridge has not connected")
		return nil
	}
}

// bridge returns a bridge to the server. The bridge is closed at the end of the test.
func (f *fakeServer) bridge(o *Options) *Bridge {
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

// dialPipe connects a client to the bridge over a pipe. done gets the result of Serve.
func dialPipe(t *testing.T, b *Bridge) (p *pipe, done chan error) {
	ours, theirs := net.Pipe()
	done = make(chan error, 1)
	go func() { done <- b.Serve(context.Background(), jsonrpc.NewFramer(theirs, nil)) }()
	return newPipe(t, ours), done
}

// legacy are options without detection, for clients and a server of the legacy era.
var legacy = Options{ClientEra: EraLegacy, ServerEra: EraLegacy}

func with(o Options, change func(*Options)) *Options {
	if change != nil {
		change(&o)
	}
	return &o
}

const (
	initialize         = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
	initializeResponse = `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{"subscribe":true}},"serverInfo":{"name":"s","version":"1"}}}`
	initialized        = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

// handshake performs the rest of a handshake for which the client has sent initialize.
func handshake(client, srv *pipe) {
	client.t.Helper()
	srv.wants(initialize)
	srv.send(initializeResponse)
	client.wants(initializeResponse)
	client.send(initialized)
	srv.wants(initialized)
}

// resultFor returns the response to the request with an id.
func resultFor(id, result string) string {
	return string(jsonrpc.AppendResult(nil, jsonrpc.ID(id), []byte(result)))
}

// parsed returns the frame of a message, and the message parsed from it.
func parsed(t *testing.T, text string) ([]byte, *jsonrpc.Message) {
	t.Helper()
	m := new(jsonrpc.Message)
	if err := jsonrpc.Parse([]byte(text), m, 0); err != nil {
		t.Fatal(err)
	}
	return []byte(text), m
}

var errTest = errors.New("no such program")
