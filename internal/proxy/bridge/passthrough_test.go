package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/internal/json/jsonedit"
	"mcpwire/internal/test/buffer"
	"mcpwire/internal/test/wait"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// TestBytes checks that the bytes of messages are forwarded unchanged.
func TestBytes(t *testing.T) {
	f := newFakeServer(t)
	client, _ := dialPipe(t, f.bridge(with(legacy, nil)))
	client.send(initialize)
	srv := f.next()
	handshake(client, srv)
	for _, line := range []string{
		`{"id":"a\u0062","jsonrpc":"2.0","method":"x/unknown","extra":{"b":1,"a":123456789012345678901234567890},"params":{"z":1.50,"a":"\u00e9"}}`,
		`{"jsonrpc":"2.0","method":"notifications/custom","params":{"n":1e400}}`,
		`{"jsonrpc":"2.0","id":12345678901234567890,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"p"}}}`,
	} {
		client.send(line)
		srv.wants(line)
	}
	for _, line := range []string{
		`{"method":"notifications/progress","jsonrpc":"2.0","params":{"progressToken":"p","progress":1,"more":[]}}`,
		`{"jsonrpc":"2.0","id":"ab","result":{"x":1.0},"unknown":true}`,
		`{"jsonrpc":"2.0","id":12345678901234567890,"error":{"code":-5,"message":"m","data":null,"extra":1}}`,
		`{"jsonrpc":"2.0","id":"ask","method":"sampling/createMessage","params":{},"extra":2}`,
	} {
		srv.send(line)
		client.wants(line)
	}
	response := `{"id":"ask","result":{"role":"user"},"jsonrpc":"2.0","z":0}`
	client.send(response)
	srv.wants(response)
}

// TestMalformedItems checks that clients get lists without malformed items, which are logged once.
func TestMalformedItems(t *testing.T) {
	list := `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
	for name, test := range map[string]struct{ initialize, list, discover string }{
		"pass-through": {initialize, list, ""},
		"translated":   {"", strings.Replace(list, "}", `,"params":{`+inputMeta+`}}}`, 1), `{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{` + inputMeta + `}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			var log buffer.Buffer
			f := newFakeServer(t)
			b := f.bridge(&Options{ServerEra: EraLegacy, DrainTimeout: time.Nanosecond, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			client, _ := dialPipe(t, b)
			var srv *pipe
			if test.discover != "" {
				client.send(test.discover)
				srv = f.next()
				serverHandshake(srv)
				client.read()
			} else {
				client.send(test.initialize)
				srv = f.next()
				handshake(client, srv)
			}
			for range 2 {
				client.send(test.list)
				srv.send(resultFor(srv.request("tools/list"), `{"tools":[{"name":"bad"},{"name":"good","inputSchema":{"type":"object"}}],"x":1.0}`))
				if got := client.reads(`"tools":[{"name":"good","inputSchema":{"type":"object"}}]`, `"x":1.0`); strings.Contains(got, "bad") {
					t.Errorf("got %s", got)
				}
			}
			if n := strings.Count(log.String(), `tools[0] \"bad\": inputSchema: missing`); n != 1 {
				t.Errorf("got %d lines:\n%s", n, log.String())
			}
		})
	}
}

// TestUnmatchedResponses checks that a response with another spelling of its id, or that is not
// JSON, ends its call, and that one without an id is logged.
func TestUnmatchedResponses(t *testing.T) {
	var log buffer.Buffer
	f := newFakeServer(t)
	client, _ := dialPipe(t, f.bridge(with(legacy, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })))
	client.send(initialize)
	srv := f.next()
	handshake(client, srv)
	for _, response := range []string{
		`{"jsonrpc":"2.0","id":"2","result":{}}`, `{"jsonrpc":"2.0","id":2.0,"result":{}}`, `{"jsonrpc":"2.0","id":2,"result":NaN}`,
		`{"id":2,"result":{}}`, `{"jsonrpc":"2.0","id":2,"result":{"x":"`,
	} {
		client.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
		srv.reads("tools/list")
		srv.send(response)
		if got := client.reads(`"id":2,"error":{"code":-32603`); !strings.Contains(got, "server's response") {
			t.Errorf("%s: got %s", response, got)
		}
	}
	srv.send(`{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}`, `{"jsonrpc":"2.0","id":99,"result":{}}`, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	client.reads("list_changed")
	if strings.Contains(log.String(), "PANIC") {
		t.Errorf("log: %s", log.String())
	}
	if !strings.Contains(log.String(), "matches no request in flight") {
		t.Errorf("got the log\n%s", log.String())
	}
}

func TestLineBreaks(t *testing.T) {
	frame := []byte("{\n  \"jsonrpc\": \"2.0\",\r\n  \"id\": 1, \"method\": \"a\\nb\"\n}")
	if got, want := string(compact(frame)), `{"jsonrpc":"2.0","id":1,"method":"a\nb"}`; got != want {
		t.Errorf("compact = %s, want %s", got, want)
	}
}

// TestNoBatches checks that a client on a byte stream has no batches except in 2025-03-26, whatever
// the server's era.
func TestNoBatches(t *testing.T) {
	const ping = `{"jsonrpc":"2.0","id":7,"method":"ping"}`
	for _, serverEra := range []Era{EraLegacy, EraModern} {
		for _, revision := range append([]mcp.Revision{mcp.RevisionNone}, mcp.Revisions()...) {
			f := newFakeServer(t)
			client, _ := dialPipe(t, f.bridge(&Options{ServerEra: serverEra}))
			var srv *pipe
			switch {
			case revision == mcp.RevisionNone: // the batch is the first line
			case revision.Modern() && serverEra == EraModern:
				client.send(discover)
				srv = f.next()
				srv.send(resultFor(srv.request("server/discover"), `{"supportedVersions":["2026-07-28"],"capabilities":{}}`))
				client.reads(`"id":1`)
			case revision.Modern():
				client.send(discover)
				srv = f.next()
				handshakeFor(srv)
				client.reads(`"id":1`)
			default:
				client.send(strings.Replace(initialize, "2025-11-25", revision.String(), 1))
				srv = f.next()
				if serverEra == EraLegacy {
					srv.send(resultFor(srv.request(`"initialize"`), strings.Replace(legacyResult, "2025-11-25", revision.String(), 1)))
				} else {
					srv.send(resultFor(srv.request("server/discover"), `{"supportedVersions":["2026-07-28"],"capabilities":{}}`))
				}
				client.reads(`"protocolVersion":"` + revision.String() + `"`)
			}
			client.send("[" + ping + "]")
			want := `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,`
			if revision == mcp.Revision20250326 {
				want = `[{"jsonrpc":"2.0","id":7,"result":{}}]`
				if serverEra == EraLegacy {
					srv.wants(ping)
					srv.send(resultFor("7", "{}"))
				}
			}
			client.reads(want)
		}
	}
}

func TestBatch(t *testing.T) {
	f := newFakeServer(t)
	client, _ := dialPipe(t, f.bridge(with(legacy, nil)))
	client.send(strings.Replace(initialize, "2025-11-25", "2025-03-26", 1))
	srv := f.next()
	srv.send(resultFor(srv.request(`"initialize"`), strings.Replace(legacyResult, "2025-11-25", "2025-03-26", 1)))
	client.reads(`"2025-03-26"`)
	client.send(`[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","method":"n"},{"jsonrpc":"2.0","id":2,"method":"b"},{"id":3}]`)
	srv.wants(`{"jsonrpc":"2.0","id":1,"method":"a"}`, `{"jsonrpc":"2.0","method":"n"}`, `{"jsonrpc":"2.0","id":2,"method":"b"}`)
	srv.send(`[{"jsonrpc":"2.0","id":2,"result":{}},{"jsonrpc":"2.0","id":1,"result":{}}]`)
	got := client.read() // the bridge's own error may come before or after the server's responses
	var responses []json.RawMessage
	if err := json.Unmarshal([]byte(got), &responses); err != nil || len(responses) != 3 {
		t.Fatalf("got %s, %v, want 3 responses", got, err)
	}
	for _, want := range []string{`{"jsonrpc":"2.0","id":3,"error":{"code":-32600`, `{"jsonrpc":"2.0","id":2,"result":{}}`, `{"jsonrpc":"2.0","id":1,"result":{}}`} {
		if strings.Count(got, want) != 1 {
			t.Errorf("got %s, want %s in it", got, want)
		}
	}
}

func TestDuplicateID(t *testing.T) {
	f := newFakeServer(t)
	client, _ := dialPipe(t, f.bridge(with(legacy, nil)))
	client.send(initialize)
	srv := f.next()
	handshake(client, srv)
	client.send(`{"jsonrpc":"2.0","id":1,"method":"a"}`)
	srv.wants(`{"jsonrpc":"2.0","id":1,"method":"a"}`)
	client.send(`{"jsonrpc":"2.0","id":1,"method":"b"}`)
	client.reads(`"id":1,"error":{"code":-32600`)
	srv.send(`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":9,"result":{}}`)
	client.wants(`{"jsonrpc":"2.0","id":1,"result":{}}`) // once, and no response without a request
	client.send(`{"jsonrpc":"2.0","id":2,"method":"c"}`)
	srv.wants(`{"jsonrpc":"2.0","id":2,"method":"c"}`)
	srv.send(`{"jsonrpc":"2.0","id":2,"result":{}}`)
	client.wants(`{"jsonrpc":"2.0","id":2,"result":{}}`)
}

func TestCancelled(t *testing.T) {
	f := newFakeServer(t)
	client, _ := dialPipe(t, f.bridge(with(legacy, nil)))
	client.send(initialize)
	srv := f.next()
	handshake(client, srv)
	client.send(`{"jsonrpc":"2.0","id":1,"method":"a"}`)
	srv.wants(`{"jsonrpc":"2.0","id":1,"method":"a"}`)
	cancel := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"reason":"x","requestId":1}}`
	client.send(cancel)
	srv.wants(cancel)
	srv.send(`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","method":"n"}`)
	client.wants(`{"jsonrpc":"2.0","method":"n"}`) // the late response is dropped
	client.send(cancel, strings.Replace(cancel, "1}", "2}", 1), `{"jsonrpc":"2.0","id":2,"method":"b"}`)
	srv.wants(`{"jsonrpc":"2.0","id":2,"method":"b"}`) // and so are cancellations without a request
}

// TestCrash checks that pending requests fail at once when the server ends, and that the next
// server gets its log level and subscriptions.
func TestCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		b := f.bridge(with(legacy, nil))
		client, _ := dialPipe(t, b)
		client.send(initialize)
		srv := f.next()
		handshake(client, srv)
		client.send(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"a:b"}}`)
		srv.reads("resources/subscribe")
		srv.send(resultFor("1", "{}"))
		client.wants(resultFor("1", "{}"))
		client.send(`{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"debug"}}`)
		srv.reads("logging/setLevel")
		srv.send(resultFor("2", "{}"))
		client.wants(resultFor("2", "{}"))
		client.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t"}}`)
		srv.reads("tools/call")
		srv.send(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}`)
		client.reads("elicitation/create")

		start := time.Now()
		srv.f.Close()
		client.reads(`"id":3,"error":{"code":-32603`, "the connection to the server ended")
		client.reads(`"method":"notifications/cancelled"`, `"requestId":"q"`)
		if d := time.Since(start); d > 10*time.Millisecond {
			t.Errorf("the errors took %v, want at most 10 ms", d)
		}
		client.send(`{"jsonrpc":"2.0","id":"q","result":{}}`) // no request waits for it
		client.send(`{"jsonrpc":"2.0","id":4,"method":"ping"}`)

		srv = f.next()
		id := srv.request(`"method":"initialize"`, `"protocolVersion":"2025-11-25"`)
		srv.send(resultFor(id, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}`))
		srv.wants(initialized)
		set := srv.request("logging/setLevel", `"level":"debug"`)
		sub := srv.request("resources/subscribe", `"uri":"a:b"`)
		client.wants(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		srv.wants(`{"jsonrpc":"2.0","id":4,"method":"ping"}`)
		srv.send(resultFor(set, "{}"), resultFor(sub, "{}"), resultFor("4", "{}"))
		client.wants(resultFor("4", "{}"))
		if d := time.Since(start); d > time.Second {
			t.Errorf("the restart took %v, want at most 1 s", d)
		}
	})
}

// TestOtherRevision checks that pending requests fail if the server negotiates another revision
// after a restart.
func TestOtherRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		client, _ := dialPipe(t, f.bridge(with(legacy, nil)))
		client.send(initialize)
		srv := f.next()
		handshake(client, srv)
		srv.f.Close()
		client.send(`{"jsonrpc":"2.0","id":4,"method":"ping"}`)
		srv = f.next()
		id := srv.request(`"method":"initialize"`)
		srv.send(resultFor(id, `{"protocolVersion":"2024-11-05","capabilities":{}}`))
		client.reads(`"id":4,"error"`, "now speaks revision 2024-11-05")
	})
}

// TestNoServer checks that clients get an error in time if the server cannot be started, that
// attempts have a backoff, and that there are none without requests.
func TestNoServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		starts := 0
		f.fail = func() error {
			starts++
			return errTest
		}
		client, _ := dialPipe(t, f.bridge(with(legacy, nil)))
		for id := range 40 {
			start := time.Now()
			client.send(strings.Replace(initialize, `"id":0`, `"id":`+string(rune('1'+id%9)), 1))
			client.reads("error", errTest.Error())
			if d := time.Since(start); d > 11*time.Second {
				t.Errorf("the error took %v, want at most 11 s", d)
			}
		}
		if starts > 20 {
			t.Errorf("got %d starts, want at most 20", starts)
		}
		<-time.After(time.Hour) // without requests, in the bubble's time
		before := starts
		<-time.After(time.Hour)
		if starts != before {
			t.Errorf("got %d starts without requests, want 0", starts-before)
		}
	})
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		client, _ := dialPipe(t, f.bridge(with(legacy, func(o *Options) { o.CallTimeout = time.Minute })))
		client.send(initialize)
		srv := f.next()
		handshake(client, srv)
		start := time.Now()
		client.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":7}}}`)
		srv.reads("tools/call")
		<-time.After(50 * time.Second)
		srv.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}`)
		client.reads("progress")
		client.reads(`"id":1,"error"`, "has not responded")
		srv.reads("notifications/cancelled", `"requestId":1`)
		if d := time.Since(start); d != 110*time.Second {
			t.Errorf("the timeout took %v, want 110 s: progress restarts it", d)
		}
		synctest.Wait()
	})
}

// TestEndOfInput checks that the bridge cancels pending requests and closes the server's connection
// when the client's connection ends.
func TestEndOfInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		b := f.bridge(with(legacy, nil))
		client, done := dialPipe(t, b)
		client.send(initialize)
		srv := f.next()
		handshake(client, srv)
		client.send(`{"jsonrpc":"2.0","id":1,"method":"a"}`)
		srv.reads(`"a"`)
		client.f.Close()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		srv.reads("notifications/cancelled", `"requestId":1`)
		if _, err := srv.f.ReadFrame(); err == nil {
			t.Error("the server's connection is open, want it closed")
		}
		synctest.Wait()
		if n := len(b.clients); n != 0 {
			t.Errorf("got %d clients, want 0", n)
		}
	})
}

// TestClose checks that pending requests fail when the bridge closes.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		b := f.bridge(with(legacy, nil))
		client, done := dialPipe(t, b)
		client.send(initialize)
		srv := f.next()
		handshake(client, srv)
		client.send(`{"jsonrpc":"2.0","id":1,"method":"a"}`)
		srv.reads(`"a"`)
		go b.Close()
		client.reads(`"id":1,"error"`)
		<-done
	})
}

// A streamFramer reports on which request's stream a frame came, as the HTTP transport does: the
// member "on" of a frame has the id of the request.
type streamFramer struct{ jsonrpc.Framer }

func (s streamFramer) OnResponse(func([]byte) error) {}

func (s streamFramer) Post(_ context.Context, frame []byte) error { return s.WriteFrame(frame) }

func (s streamFramer) Receive() ([]byte, context.Context, error) {
	frame, err := s.ReadFrame()
	ctx := context.Background()
	if at := jsonedit.Locate(frame, "on"); at.Found() {
		ctx = context.WithValue(ctx, postKey{}, &postedMessage{queuedMessage: queuedMessage{id: jsonrpc.ID(at.Of(frame))}})
	}
	return frame, ctx, err
}

// withStreams makes each connection of f a streamFramer.
func (f *fakeServer) withStreams(o *Options) *Options {
	o.Connect = func(ctx context.Context, w io.Writer) (jsonrpc.Framer, error) {
		framer, err := f.connect(ctx, w)
		return streamFramer{framer}, err
	}
	return o
}

// TestOnStream checks that a message on the stream of a request goes to the client of that request
// while another request is in flight.
func TestOnStream(t *testing.T) {
	f := newFakeServer(t)
	b := newBridge(t, f.withStreams(with(legacy, nil)))
	cl := b.newClient(newOutbox(), "", false)
	defer cl.close()
	outs := [2]*outbox{newOutbox(), newOutbox()}
	for i, id := range []string{"1", "2"} {
		frame := []byte(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"t"}}`)
		m := new(jsonrpc.Message)
		if err := jsonrpc.Parse(frame, m, 0); err != nil {
			t.Fatal(err)
		}
		cl.request(t.Context(), frame, m, outs[i], func([]byte) {})
	}
	srv := f.next()
	srv.reads(`"id":1`)
	srv.reads(`"id":2`)
	inputRequest, log := `{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{},"on":1}`, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1},"on":1}`
	srv.send(inputRequest, log)
	var got []string
	wait.Until(t, "both messages", func() bool {
		for _, message := range outs[0].take(false) {
			got = append(got, string(message.frame))
		}
		return len(got) == 2
	})
	if got[0] != inputRequest || got[1] != log {
		t.Errorf("got %q", got)
	}
	if other := outs[1].take(false); len(other) > 0 {
		t.Errorf("the other request got %v", other)
	}
}

// TestTransportStreams checks that the HTTP transport reports which request's response contained a
// message.
func TestTransportStreams(t *testing.T) {
	const event = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: "+event+"\n\ndata: "+resultFor(`"a"`, "{}")+"\n\n")
	}))
	defer ts.Close()
	f, err := streamable.NewTransport(ts.URL, nil).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := &connection{u: &upstream{ctx: t.Context()}, f: f}
	if err := c.transmit(queuedMessage{frame: []byte(`{"jsonrpc":"2.0","id":"a","method":"x"}`), id: jsonrpc.ID(`"a"`)}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{event, resultFor(`"a"`, "{}")} {
		if frame, from, err := c.receive(); string(frame) != want || string(from.callID) != `"a"` || err != nil {
			t.Errorf("got %s on %s, %v, want %s", frame, from.callID, err, want)
		}
	}
}

// TestMissingHeaders checks that a call that is rejected for missing headers is sent again once,
// after the transport has got the list of tools.
func TestMissingHeaders(t *testing.T) {
	for _, tt := range []struct{ name, tools, want string }{
		{"on the first page", `{"tools":[{"name":"t"}],"nextCursor":"n"}`, ""},
		{"on the second page", `{"tools":[{"name":"u"}],"nextCursor":"n"}`, ""},
		{"unknown tool", `{"tools":[{"name":"u"}]}`, "error"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFakeServer(t)
			client, _ := dialPipe(t, f.bridge(&Options{ClientEra: EraModern, ServerEra: EraModern, HTTP: true}))
			meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
			call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t",` + meta + `}}`
			client.send(call)
			srv := f.next()
			srv.wants(call)
			rejection := `{"jsonrpc":"2.0","id":1,"error":{"code":-32020,"message":"Mcp-Param-X is missing"}}`
			srv.send(rejection)
			srv.send(resultFor(srv.request("tools/list", meta), tt.tools))
			if tt.want != "" {
				client.wants(rejection)
				return
			}
			if tt.name == "on the second page" {
				srv.send(resultFor(srv.request("tools/list", `"cursor":"n"`), `{"tools":[{"name":"t"}]}`))
			}
			srv.wants(call)
			srv.send(rejection)
			client.wants(rejection) // no further attempt
		})
	}
}

// TestMissingHeadersTranslated is TestMissingHeaders for a legacy client.
func TestMissingHeadersTranslated(t *testing.T) {
	for _, tt := range []struct {
		name, tools string
		share       bool
	}{
		{"known tool", `{"resultType":"complete","tools":[{"name":"t"}]}`, false},
		{"unknown tool", `{"resultType":"complete","tools":[]}`, false},
		{"canceled", `{"resultType":"complete","tools":[{"name":"t"}]}`, false},
		{"known tool", `{"resultType":"complete","tools":[{"name":"t"}]}`, true},
		{"unknown tool", `{"resultType":"complete","tools":[]}`, true},
		{"canceled", `{"resultType":"complete","tools":[{"name":"t"}]}`, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			client, _ := dialPipe(t, f.bridge(&Options{ServerEra: EraModern, HTTP: true, Shared: tt.share}))
			client.send(initialize)
			srv := f.next()
			srv.send(resultFor(srv.request("server/discover"), `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`))
			client.reads(`"protocolVersion":"2025-11-25"`)
			client.send(initialized, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t"}}`)
			call := srv.reads(`"tools/call"`)
			id := string(jsonedit.Locate([]byte(call), "id").Of([]byte(call)))
			rejection := `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32020,"message":"Mcp-Param-X is missing"}}`
			srv.send(rejection)
			list := srv.reads("tools/list")
			listID := string(jsonedit.Locate([]byte(list), "id").Of([]byte(list)))
			if !tt.share && !strings.HasPrefix(listID, `"mcpwire-`) {
				t.Fatalf("id of tools/list: got %s, want the prefix mcpwire-", listID)
			}
			switch tt.name {
			case "known tool":
				srv.send(resultFor(listID, tt.tools))
				srv.wants(call)
				srv.send(rejection)
				client.reads(`"id":7`, `-32020`) // no further attempt
			case "unknown tool":
				srv.send(resultFor(listID, tt.tools))
				client.reads(`"id":7`, `-32020`)
			default:
				client.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
				srv.reads("notifications/cancelled")
				srv.send(resultFor(listID, tt.tools))
				synctest.Wait()
				client.send(`{"jsonrpc":"2.0","id":8,"method":"prompts/list"}`)
				srv.request("prompts/list")
			}
		})
	}
}

// taskMeta is the _meta of a modern client that has the tasks extension.
const taskMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","progressToken":"p","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`

func callOf(id int, meta string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"t",%s}}`, id, meta)
}

// TestLateTask checks that a task that the server creates for an abandoned call is canceled,
// because no client gets its id.
func TestLateTask(t *testing.T) {
	const task, complete = `{"resultType":"task","taskId":"a\"b","status":"working"}`, `{"resultType":"complete","content":[]}`
	byNotification := func(_ *Bridge, client *pipe) {
		client.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	}
	for _, tt := range []struct {
		name string
		opts Options
		meta string
		// giveUp abandons the call. It may be nil.
		giveUp func(b *Bridge, client *pipe)
		// after is the time from giveUp to the response.
		after    time.Duration
		response string
		// want means that the task is canceled.
		want bool
	}{
		{"canceled", Options{}, taskMeta, byNotification, 0, task, true},
		{"canceled, ids are replaced", Options{Shared: true}, taskMeta, byNotification, 0, task, true},
		{"timeout", Options{CallTimeout: time.Second}, taskMeta, func(*Bridge, *pipe) { time.Sleep(2 * time.Second) }, 0, task, true},
		{"result", Options{}, taskMeta, byNotification, 0, complete, false},
		{"too late", Options{}, taskMeta, byNotification, abandonedTimeout + time.Second, task, false},
		{"client without tasks", Options{}, `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`, byNotification, 0, task, false},
		{"not given up", Options{}, taskMeta, nil, 0, task, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer(t)
				tt.opts.ClientEra, tt.opts.ServerEra = EraModern, EraModern
				b := f.bridge(&tt.opts)
				client, _ := dialPipe(t, b)
				client.send(callOf(1, tt.meta))
				srv := f.next()
				id := srv.request("tools/call")
				if tt.giveUp != nil {
					tt.giveUp(b, client)
					srv.reads("notifications/cancelled", `"requestId":`+id)
				}
				time.Sleep(tt.after)
				srv.send(resultFor(id, tt.response), resultFor(id, tt.response))
				if tt.want {
					cancel := srv.request(`"tasks/cancel"`, `{"taskId":"a\"b",`, `"io.modelcontextprotocol/tasks":{}`)
					if line := []byte(srv.last); jsonedit.Locate(line, "params", "_meta", "progressToken").Found() {
						t.Errorf("got %s", line)
					}
					srv.send(resultFor(cancel, `{"resultType":"complete"}`))
				}
				if tt.opts.CallTimeout != 0 {
					client.reads(`"id":1,"error"`)
				} else if tt.giveUp == nil {
					client.reads(`"id":1,"result"`)
				}
				client.send(callOf(2, tt.meta))
				srv.send(resultFor(srv.request("tools/call"), complete)) // no message before it
				client.reads(`"id":2,"result"`)
			})
		})
	}
}

// TestLateTaskClosedRequest is TestLateTask for HTTP, where the client closes its request.
func TestLateTaskClosedRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		b := f.bridge(&Options{ClientEra: EraModern, ServerEra: EraModern})
		cl := b.newClient(nil, "", true)
		defer cl.close()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			frame, m := parsed(t, callOf(1, taskMeta))
			_, err := cl.roundTrip(ctx, frame, m, nil, nil)
			done <- err
		}()
		srv := f.next()
		id := srv.request("tools/call")
		cancel()
		if err := <-done; err == nil {
			t.Error("canceled request: got no error")
		}
		srv.reads("notifications/cancelled")
		srv.send(resultFor(id, `{"resultType":"task","taskId":"a"}`))
		srv.request(`"tasks/cancel"`, `{"taskId":"a",`)
	})
}

// TestLateCoreTask checks that an abandoned call that requests a task from a legacy server is not
// canceled by a notification, and that its task is canceled when its id is known. Other calls are
// canceled by a notification.
//
// Spec: T33
func TestLateCoreTask(t *testing.T) {
	const tasks, task = `"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}`, `{"task":{"taskId":"t","status":"working"}}`
	byNotification := func(client *pipe) {
		client.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	}
	byTimeout := func(*pipe) { time.Sleep(2 * time.Second) }
	for _, tt := range []struct {
		name                           string
		opts                           Options
		revision, capabilities, params string
		giveUp                         func(client *pipe)
		notified                       bool
	}{
		{"canceled", Options{}, "2025-11-25", tasks, `"task":{}`, byNotification, false},
		{"canceled, shared", Options{Shared: true}, "2025-11-25", tasks, `"task":{}`, byNotification, false},
		{"timeout", Options{CallTimeout: time.Second}, "2025-11-25", tasks, `"task":{"ttl":1}`, byTimeout, false},
		{"no task", Options{}, "2025-11-25", tasks, `"arguments":{}`, byNotification, true},
		{"server without tasks", Options{CallTimeout: time.Second}, "2025-11-25", `"tools":{}`, `"task":{}`, byTimeout, true},
		{"server before tasks", Options{}, "2025-06-18", tasks, `"task":{}`, byNotification, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer(t)
				tt.opts.ClientEra, tt.opts.ServerEra = EraLegacy, EraLegacy
				client, _ := dialPipe(t, f.bridge(&tt.opts))
				client.send(initialize)
				srv := f.next()
				srv.send(resultFor(srv.request("initialize"), `{"protocolVersion":"`+tt.revision+`","capabilities":{`+tt.capabilities+`}}`))
				client.reads(tt.revision)
				client.send(initialized)
				srv.wants(initialized)
				client.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t",` + tt.params + `}}`)
				id := srv.request("tools/call")
				tt.giveUp(client)
				if tt.notified {
					srv.reads("notifications/cancelled", `"requestId":`+id)
				} else {
					synctest.Wait()
					srv.send(resultFor(id, task))
					srv.send(resultFor(srv.request(`"tasks/cancel"`, `{"taskId":"t"}`), `{"taskId":"t","status":"cancelled"}`))
				}
				if tt.opts.CallTimeout != 0 {
					client.reads(`"id":1,"error"`)
					if tt.notified { // the ping after a timeout
						srv.reads("mcpwire-alive")
					}
				}
				client.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
				srv.send(resultFor(srv.request("tools/list"), "{}"))
				client.wants(resultFor("2", "{}"))
			})
		})
	}
}

// TestLateTasks checks the limits on the number of abandoned calls and on the time for which they
// are kept.
func TestLateTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPassthrough(&upstream{b: &Bridge{}}, false)
		for range 2 {
			for i := range 2 * maxAbandoned {
				c := &call{serverID: []byte(fmt.Sprint(i)), taskFrame: []byte(callOf(i, taskMeta))}
				p.calls[c.serverID.Key()] = c
				if !p.giveUp(c) || p.giveUp(c) {
					t.Fatal("giveUp: want true for the first call and false for the second")
				}
			}
			if n := len(p.upstream.abandoned.list); n != maxAbandoned {
				t.Errorf("got %d abandoned calls, want %d", n, maxAbandoned)
			}
			time.Sleep(abandonedTimeout + time.Second)
		}
	})
}

// A lossyFramer reports the loss of single calls, as the HTTP transport does: the member "lost" of
// a frame has the id of the call.
type lossyFramer struct{ jsonrpc.Framer }

func (f lossyFramer) ReadFrame() ([]byte, error) {
	frame, err := f.Framer.ReadFrame()
	if at := jsonedit.Locate(frame, "lost"); err == nil && at.Found() {
		id := jsonrpc.ID(at.Of(frame)).Clone()
		return nil, &jsonrpc.CallError{ID: id, Outcome: jsonrpc.OutcomeUnknown, Err: errors.New("the stream was interrupted")}
	}
	return frame, err
}

// TestListenAgain checks that the bridge reopens a broken subscription stream, and notifies the
// client that it may have missed events. Retries are limited only if they fail in succession.
func TestListenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		o := &Options{ClientEra: EraModern, ServerEra: EraModern, HTTP: true}
		b := f.bridge(o)
		b.opts.Connect = func(ctx context.Context, w io.Writer) (jsonrpc.Framer, error) {
			framer, err := f.connect(ctx, w)
			return lossyFramer{framer}, err
		}
		client, _ := dialPipe(t, b)
		const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
		const ack = `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"},"notifications":{"toolsListChanged":true}}}`
		const changed = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}`
		listen := `{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + meta + `}}`
		client.send(listen)
		srv := f.next()
		srv.wants(listen)
		srv.send(ack)
		client.wants(ack)
		id := `"l"`
		lose := func() {
			t.Helper()
			srv.send(`{"lost":` + id + `}`)
			next := srv.request(`"subscriptions/listen"`, `{"toolsListChanged":true}`, meta)
			if next == id {
				t.Errorf("id of the new subscription: got %s again, want another", id)
			}
			id = next
		}
		for range 2 * maxEagerFailures {
			lose()
			srv.send(strings.Replace(ack, `"l"`, id, 1))
			client.wants(changed)
		}
		srv.send(strings.Replace(changed, `"l"`, id, 1))
		client.wants(changed)
		for range maxEagerFailures {
			lose()
		}
		srv.send(`{"lost":` + id + `}`)
		client.reads(`"id":"l","error"`, "the stream was interrupted")

		client.send(strings.Replace(listen, `"l"`, `"m"`, 1)) // a subscription that was never acknowledged fails at once
		srv.reads(`"id":"m"`)
		srv.send(`{"lost":"m"}`)
		client.reads(`"id":"m","error"`)

		client.send(listen) // a reopened subscription can be canceled
		srv.wants(listen)
		srv.send(ack)
		client.wants(ack)
		id = `"l"`
		lose()
		client.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"l"}}`)
		srv.wants(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
	})
}

// TestListenUnacknowledged checks that a client gets the acknowledgment of the next server if the
// first one ends before it acknowledges the subscription.
func TestListenUnacknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		client, _ := dialPipe(t, f.bridge(&Options{ClientEra: EraModern, ServerEra: EraModern}))
		const ack = `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"},"notifications":{"toolsListChanged":true}}}`
		client.send(`{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`)
		srv := f.next()
		srv.reads(`"id":"l"`)
		srv.f.Close()
		srv = f.next()
		srv.reads(`"id":"l"`)
		srv.send(ack)
		client.wants(ack)
	})
}
