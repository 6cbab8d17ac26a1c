package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"

	"mcpwire/jsonrpc"
)

// A script is a server that is programmed line by line. If it gets an unexpected message, it fails
// the test and closes the connection.
type script struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

// A message has the members of a line that scripts check.
type message struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  json.RawMessage
	line   string
}

// scriptTransport returns the Transport to servers that run the scripts, one for each connection.
// All of them must have ended when the test ends.
func scriptTransport(t *testing.T, scripts ...func(*script)) Transport {
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	return TransportFunc(func(context.Context) (jsonrpc.Framer, error) {
		if len(scripts) == 0 {
			return nil, fmt.Errorf("%w: no script is left", ErrNoReconnect)
		}
		clientEnd, serverEnd := net.Pipe()
		serve := scripts[0]
		scripts = scripts[1:]
		wg.Go(func() {
			defer serverEnd.Close()
			serve(newScript(t, serverEnd))
		})
		return jsonrpc.NewFramer(clientEnd, &jsonrpc.FramerOptions{Framing: jsonrpc.FramingLine}), nil
	})
}

func newScript(t *testing.T, conn net.Conn) *script { return &script{t, conn, bufio.NewReader(conn)} }

// fail fails the test and ends the script.
func (s *script) fail(format string, args ...any) {
	s.t.Helper()
	s.t.Errorf("script: "+format, args...)
	s.conn.Close()
	runtime.Goexit()
}

// next returns the next message.
func (s *script) next() message {
	s.t.Helper()
	line, err := s.in.ReadString('\n')
	if err != nil {
		s.fail("waiting for a message: %v", err)
	}
	m := message{line: strings.TrimSpace(line)}
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		s.fail("%v: %s", err, line)
	}
	return m
}

// expect returns the next message, which must have the given method.
func (s *script) expect(method string) message {
	s.t.Helper()
	m := s.next()
	if m.Method != method {
		s.fail("got %s, want %s", m.line, method)
	}
	return m
}

// expectEnd waits until the client closes the connection.
func (s *script) expectEnd() {
	s.t.Helper()
	if line, err := s.in.ReadString('\n'); !errors.Is(err, io.EOF) {
		s.fail("got %s, %v, want the end", line, err)
	}
}

// expectResult returns the result of the client's response.
func (s *script) expectResult(id string) string {
	s.t.Helper()
	m := s.next()
	if string(m.ID) != id || m.Result == nil {
		s.fail("got %s, want a result for %s", m.line, id)
	}
	return string(m.Result)
}

// expectError returns the code of the client's error response.
func (s *script) expectError(id string) jsonrpc.Code {
	s.t.Helper()
	m := s.next()
	var e struct{ Code jsonrpc.Code }
	if string(m.ID) != id || m.Error == nil || json.Unmarshal(m.Error, &e) != nil {
		s.fail("got %s, want an error for %s", m.line, id)
	}
	return e.Code
}

// send sends lines.
func (s *script) send(format string, args ...any) {
	s.t.Helper()
	if _, err := fmt.Fprintf(s.conn, format+"\n", args...); err != nil {
		s.fail("send: %v", err)
	}
}

// answer sends a result.
func (s *script) answer(m message, result string) {
	s.t.Helper()
	s.send(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

// reject sends an error. data may be empty.
func (s *script) reject(m message, code jsonrpc.Code, data string) {
	s.t.Helper()
	if data != "" {
		data = `,"data":` + data
	}
	s.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"no"%s}}`, m.ID, code, data)
}

// discovers performs the opening of a modern server.
func (s *script) discovers() {
	s.t.Helper()
	s.answer(s.expect("server/discover"), discovered(modernDate))
}

// discovered returns a DiscoverResult.
func discovered(versions ...string) string {
	list, _ := json.Marshal(versions)
	return fmt.Sprintf(`{"resultType":"complete","supportedVersions":%s,"capabilities":{"tools":{}},"instructions":"be nice","ttlMs":0,"cacheScope":"private",`+
		`"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"script","version":"7"}}}`, list)
}

// handshake performs the opening of a legacy server, without a probe, and returns the params of
// initialize.
func (s *script) handshake(version string) string {
	s.t.Helper()
	m := s.expect("initialize")
	s.answer(m, initialized(version))
	s.expect("notifications/initialized")
	return string(m.Params)
}

// initialized returns an InitializeResult.
func initialized(version string) string {
	return fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{"tools":{}},"instructions":"be nice","serverInfo":{"name":"script","version":"7"}}`, version)
}

// dial connects to a server that runs the scripts, and closes the client when the test ends.
func dial(t *testing.T, opts *Options, scripts ...func(*script)) *Client {
	t.Helper()
	transport := scriptTransport(t, scripts...)
	c, err := Dial(t.Context(), transport, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// memberOf returns the text of a member of an object, by a path of names.
func memberOf(t testing.TB, text string, path ...string) string {
	t.Helper()
	for _, name := range path {
		var object map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &object); err != nil {
			t.Errorf("%v: %s", err, text)
		}
		text = string(object[name])
	}
	return text
}

// A gauge counts concurrent operations.
type gauge struct {
	mu        sync.Mutex
	now, most int
}

func (g *gauge) enter() (leave func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now++
	g.most = max(g.most, g.now)
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.now--
	}
}
