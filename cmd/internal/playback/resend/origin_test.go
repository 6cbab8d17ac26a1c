package resend_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/cmd/internal/playback/resend"
	"mcpwire/mcp"
)

func toServer(s, x uint64, data string) capture.Event {
	return capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Session: s, Exchange: x, Data: []byte(data)}
}

func toClient(s, x uint64, data string) capture.Event {
	return capture.Event{Kind: capture.KindMessage, Dir: capture.ToClient, Session: s, Exchange: x, Data: []byte(data)}
}

func httpRequest(s, x uint64, method, target string, headers ...capture.Header) capture.Event {
	return capture.Event{Kind: capture.KindRequest, Dir: capture.ToServer, Session: s, Exchange: x, Request: &capture.Request{Method: method, URL: target, Proto: "HTTP/1.1", Headers: headers}}
}

func start(s uint64, dir string, command ...string) capture.Event {
	return capture.Event{Kind: capture.KindStart, Session: s, Start: &capture.Start{Command: command, Dir: dir}}
}

func response(s, x uint64, status int) capture.Event {
	return capture.Event{Kind: capture.KindResponse, Dir: capture.ToClient, Session: s, Exchange: x, Response: &capture.Response{Status: status}}
}

const (
	initializeResponse = `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-03-26","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}`
	plainCall          = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`
	modernCall         = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`
	toolList           = `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"t","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}},{"name":"u","inputSchema":{"type":"object"}}]}}`
)

// written returns a capture of the events.
func written(t *testing.T, opts *capture.Options, events ...capture.Event) *capture.Reader {
	t.Helper()
	var buf bytes.Buffer
	w := capture.NewWriter(&buf, opts)
	for i := range events {
		w.Record(&events[i])
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return capture.NewReader(&buf, nil)
}

func TestFind(t *testing.T) {
	header := capture.Header{Name: "mcp-protocol-version", Value: "2025-06-18"}
	framed := toServer(1, 0, plainCall)
	toGateway := toServer(1, 0, plainCall)
	toGateway.Side = capture.Downstream
	framed.Framing, framed.Prefix = capture.FramingHeader, "Content-Length: 2\r\n\r\n"
	for _, tt := range []struct {
		name    string
		opts    capture.Options
		events  []capture.Event // the last one is searched for
		want    resend.Origin
		message string
	}{
		{"stdio", capture.Options{Name: "fs", Transport: "stdio"},
			[]capture.Event{start(1, "/old", "a"), toServer(1, 0, `{"jsonrpc":"2.0","id":0,"method":"initialize"}`), start(2, "/srv", "node", "s.js"), toServer(2, 0, initialize), toClient(2, 0, initializeResponse), toServer(2, 0, plainCall)},
			resend.Origin{Name: "fs", Transport: capture.TransportStdio, Command: []string{"node", "s.js"}, Dir: "/srv", Revision: "2025-03-26", Initialize: []byte(initialize)}, plainCall},
		{"stdio with headers, no response yet", capture.Options{}, []capture.Event{start(1, "", "a"), toServer(1, 0, initialize), framed},
			resend.Origin{Transport: capture.TransportStdio, Command: []string{"a"}, HeaderFraming: true, Revision: "2025-06-18", Initialize: []byte(initialize)}, plainCall},
		{"to a bridge", capture.Options{}, []capture.Event{start(2, "", "a"), start(3, "", "a"), toGateway},
			resend.Origin{Transport: capture.TransportStdio, Command: []string{"a"}}, plainCall},
		{"to a gateway", capture.Options{}, []capture.Event{start(2, "", "a"), start(3, "", "b"), toGateway},
			resend.Origin{Transport: capture.TransportStdio, Gateway: true}, plainCall},
		{"modern", capture.Options{}, []capture.Event{start(1, "", "a"), toServer(1, 0, modernCall)},
			resend.Origin{Transport: capture.TransportStdio, Command: []string{"a"}, Modern: true, Revision: "2026-07-28"}, modernCall},
		{"a notification in a modern session", capture.Options{}, []capture.Event{start(1, "", "a"), toServer(1, 0, modernCall), toServer(1, 0, `{"jsonrpc":"2.0","method":"n"}`)},
			resend.Origin{Transport: capture.TransportStdio, Command: []string{"a"}, Modern: true}, `{"jsonrpc":"2.0","method":"n"}`},
		{"legacy after a modern probe", capture.Options{}, []capture.Event{start(1, "", "a"), toServer(1, 0, modernCall), toServer(1, 0, initialize), toServer(1, 0, plainCall)},
			resend.Origin{Transport: capture.TransportStdio, Command: []string{"a"}, Revision: "2025-06-18", Initialize: []byte(initialize)}, plainCall},
		{"no recorded start", capture.Options{Transport: "stdio"}, []capture.Event{toServer(1, 0, plainCall)}, resend.Origin{Transport: capture.TransportStdio}, plainCall},
		{"rubbish", capture.Options{}, []capture.Event{toServer(1, 0, "rubbish")}, resend.Origin{Transport: capture.TransportStdio}, "rubbish"},
		{"HTTP, opened by another connection", capture.Options{Transport: "http", URL: "https://example.com:8443/mcp"},
			[]capture.Event{httpRequest(1, 1, "POST", "/mcp"), toServer(1, 1, initialize), toClient(1, 1, initializeResponse), httpRequest(2, 2, "POST", "/mcp?a=b", header), toServer(2, 2, plainCall)},
			resend.Origin{Transport: capture.TransportHTTP, URL: "https://example.com:8443/mcp?a=b", Revision: "2025-03-26", Initialize: []byte(initialize)}, plainCall},
		{"HTTP without a recorded handshake, listening", capture.Options{Transport: "http", URL: "http://h/mcp"},
			[]capture.Event{httpRequest(1, 1, "GET", "/mcp"), response(1, 1, 200), httpRequest(1, 2, "POST", "/mcp", header), toServer(1, 2, plainCall)},
			resend.Origin{Transport: capture.TransportHTTP, URL: "http://h/mcp", Revision: "2025-06-18", StandingStream: true}, plainCall},
		{"modern HTTP with arguments in headers", capture.Options{Transport: "http", URL: "http://h/mcp"},
			[]capture.Event{toClient(3, 1, toolList), httpRequest(1, 2, "POST", "http://evil.example/mcp"), toServer(1, 2, modernCall)},
			resend.Origin{Transport: capture.TransportHTTP, URL: "http://h/mcp", Modern: true, Revision: "2026-07-28",
				Params: map[string][]mcp.HeaderParam{"t": {{Header: "Region", Path: []string{"region"}, Type: "string"}}}}, modernCall},
		{"HTTP+SSE", capture.Options{Transport: "http", URL: "http://h/sse"},
			[]capture.Event{httpRequest(1, 1, "GET", "/sse"), response(1, 1, 200),
				{Kind: capture.KindSSE, Dir: capture.ToClient, Session: 1, Exchange: 1, Data: []byte("/messages?x=1"), SSE: &capture.SSE{Event: "endpoint", HasData: true}},
				httpRequest(1, 2, "POST", "/messages?x=1"), toServer(1, 2, plainCall)},
			resend.Origin{Transport: capture.TransportSSE, URL: "http://h/sse", StandingStream: true}, plainCall},
		{"an old capture of HTTP", capture.Options{Transport: "http"}, []capture.Event{httpRequest(1, 1, "POST", "/mcp"), toServer(1, 1, modernCall)},
			resend.Origin{Transport: capture.TransportHTTP, Modern: true, Revision: "2026-07-28"}, modernCall},
		{"hidden", capture.Options{}, []capture.Event{start(1, "", "a"), toServer(1, 0, `{"jsonrpc":"2.0","id":1,"method":"m","params":{"password":12345}}`)},
			resend.Origin{Transport: capture.TransportStdio, Command: []string{"a"}, Redacted: []string{"/params/password"}}, `{"jsonrpc":"2.0","id":1,"method":"m","params":{"password":0}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			last := tt.events[len(tt.events)-1]
			got, message, err := resend.Find(t.Context(), written(t, &tt.opts, tt.events...).Events(), last.Session, uint64(len(tt.events)))
			if err != nil {
				t.Fatal(err)
			}
			if got.Capture == "" || got.Event != uint64(len(tt.events)) {
				t.Errorf("it is of event %d of capture %q", got.Event, got.Capture)
			}
			got.Capture, got.Event = "", 0
			if diff := cmp.Diff(&tt.want, got); diff != "" {
				t.Errorf("origin (-want +got):\n%s", diff)
			}
			if string(message) != tt.message {
				t.Errorf("the message is %s, want %s", message, tt.message)
			}
		})
	}
}

func TestFindErrors(t *testing.T) {
	events := []capture.Event{start(1, "", "a"), toClient(1, 0, initializeResponse), {Kind: capture.KindMessage, Dir: capture.ToServer, Session: 1, Data: []byte("{"), Cut: true, Len: 9}, toServer(1, 0, plainCall)}
	for _, tt := range []struct {
		name    string
		session uint64
		n       uint64
		want    error
	}{
		{"a start", 1, 1, resend.ErrNotMessage}, {"of the server", 1, 2, resend.ErrNotMessage}, {"a part", 1, 3, resend.ErrTruncated},
		{"another session", 2, 4, resend.ErrNotFound}, {"not there", 1, 9, resend.ErrNotFound}, {"none", 1, 0, resend.ErrNotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, _, err := resend.Find(t.Context(), written(t, nil, events...).Events(), tt.session, tt.n); !errors.Is(err, tt.want) {
				t.Errorf("the error is %v, want %v", err, tt.want)
			}
		})
	}
	if _, _, err := resend.Find(t.Context(), capture.NewReader(strings.NewReader(strings.Repeat("x", 1<<17)), nil).Events(), 1, 1); !errors.Is(err, capture.ErrNotCapture) {
		t.Errorf("the error for an invalid capture is %v", err)
	}
}

func TestTarget(t *testing.T) {
	for _, tt := range []struct {
		o    resend.Origin
		want string
	}{
		{resend.Origin{Transport: capture.TransportStdio, Command: []string{"node", "a b", "", "it's", "\x1b[31m"}}, `node 'a b' '' 'it'\''s' \x1b[31m`},
		{resend.Origin{Transport: capture.TransportHTTP, URL: "http://h/\u202emcp"}, `http://h/\u202emcp`},
	} {
		if got := tt.o.Target(); got != tt.want {
			t.Errorf("Target is %s, want %s", got, tt.want)
		}
	}
}

// TestFindFile finds a message in each of two captures of a file, whose events have the same
// numbers.
func TestFindFile(t *testing.T) {
	var file bytes.Buffer
	commands := []string{"first", "second"}
	for _, command := range commands {
		w := capture.NewWriter(&file, &capture.Options{Name: command, Transport: "stdio"})
		for _, e := range []capture.Event{start(1, "", command), toServer(1, 0, initialize), toServer(1, 0, plainCall)} {
			w.Record(&e)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "two"+capture.Suffix)
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	for e := range capture.NewReader(&file, nil).Events() {
		if e.Head != nil {
			ids[e.Head.Name] = e.Head.ID
		}
	}
	for _, want := range commands {
		o, message, err := resend.FindFile(t.Context(), path, ids[want], 1, 3)
		if err != nil || string(message) != plainCall || len(o.Command) != 1 || o.Command[0] != want {
			t.Errorf("%s: got %+v, %s, %v", want, o, message, err)
		}
	}
	if _, _, err := resend.FindFile(t.Context(), path, "third", 1, 3); !errors.Is(err, resend.ErrNotFound) {
		t.Errorf("another capture: %v", err)
	}
}
