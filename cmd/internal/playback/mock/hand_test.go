package mock_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"

	"mcpwire/capture"
	"mcpwire/cmd/internal/playback/mock"
	"mcpwire/jsonrpc"
)

// A line is one event of a capture: a message that begins with "→" is from the client, one with "←"
// from the server; another text is the event itself. Its time is in milliseconds.
type line struct {
	at   int
	text string
}

// recordingOf returns a recording of the messages of one connection over stdio.
func recordingOf(t *testing.T, lines ...line) *mock.Recording {
	t.Helper()
	recording, err := mock.Read(capture.NewReader(strings.NewReader(captureOf(lines...)), nil).Events(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return recording
}

func captureOf(lines ...line) string {
	var b strings.Builder
	b.WriteString(`{"k":"head","v":1,"id":"01","at":"2026-11-20T12:00:00Z","tool":"t","transport":"stdio","name":"demo","redact":"default"}` + "\n")
	for i, l := range lines {
		dir, text, more := "c2s", strings.TrimPrefix(l.text, "→"), ""
		if rest, ok := strings.CutPrefix(l.text, "←"); ok {
			dir, text = "s2c", rest
		}
		text, more, _ = strings.Cut(text, " ⋯ ")
		fmt.Fprintf(&b, `{"n":%d,"t":%g,"k":"msg","dir":%q,"len":%d,"msg":%s%s}`+"\n", i+1, float64(l.at)/1000, dir, len(text), text, more)
	}
	return b.String()
}

const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// hello is a legacy handshake.
var hello = []line{
	{0, `→{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"elicitation":{}},"clientInfo":{"name":"rec","version":"1"}}}`},
	{1, `←{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}`},
	{2, `→{"jsonrpc":"2.0","method":"notifications/initialized"}`},
}

func after(first []line, more ...line) []line { return append(append([]line(nil), first...), more...) }

// A client is connected to a mock by a pipe.
type client struct {
	t     *testing.T
	conn  net.Conn
	in    jsonrpc.Framer
	done  chan error
	log   *bytes.Buffer // may be read after hangUp
	close func()
}

// dial starts a server and connects to it by a pipe. The test must call hangUp.
func dial(t *testing.T, recording *mock.Recording, o *mock.Options) *client {
	t.Helper()
	if o == nil {
		o = &mock.Options{}
	}
	log := &bytes.Buffer{}
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	srv := mock.New(recording, o)
	c := pipeTo(t, srv)
	c.log = log
	c.close = srv.Close
	return c
}

// pipeTo connects to a server by a pipe. The test must call hangUp.
func pipeTo(t *testing.T, srv *mock.Server) *client {
	local, remote := net.Pipe()
	c := &client{t: t, done: make(chan error, 1), log: &bytes.Buffer{}, close: func() {}}
	c.conn, c.in = local, jsonrpc.NewFramer(local, &jsonrpc.FramerOptions{Framing: jsonrpc.FramingLine})
	go func() {
		c.done <- srv.Serve(context.Background(), jsonrpc.NewFramer(remote, &jsonrpc.FramerOptions{Framing: jsonrpc.FramingLine}))
	}()
	return c
}

func (c *client) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.conn, text+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

// next returns the next message of the server.
func (c *client) next() string {
	c.t.Helper()
	frame, err := c.in.ReadFrame()
	if err != nil {
		c.t.Fatalf("no message: %v; log: %s", err, c.log)
	}
	return string(frame)
}

// want fails unless the next message is text.
func (c *client) want(text string) {
	c.t.Helper()
	if got := c.next(); got != text {
		c.t.Errorf("got  %s\nwant %s", got, text)
	}
}

// has fails unless the next message contains text.
func (c *client) has(text string) {
	c.t.Helper()
	if got := c.next(); !strings.Contains(got, text) {
		c.t.Errorf("got %s, want %s in it", got, text)
	}
}

func (c *client) hangUp() error {
	c.conn.Close()
	err := <-c.done
	c.close()
	return err
}

// greet performs the handshake.
func (c *client) greet(capabilities string) {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":` + capabilities + `,"clientInfo":{"name":"t","version":"1"}}}`)
	c.has(`{"jsonrpc":"2.0","id":"i","result":{"protocolVersion":"2025-06-18"`)
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}
