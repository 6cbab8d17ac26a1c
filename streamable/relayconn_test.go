package streamable

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"mcpwire/internal/rpc"
	"mcpwire/internal/rpc/relay"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A fakePeer is a relay, and its own peer, that answers each request with response and err.
type fakePeer struct {
	response string
	err      error
	noPeer   bool
	// asks means that it sends a request to the client first.
	asks bool
	// got has the messages that it got.
	got []string
	// ctx is that of the last request.
	ctx context.Context
}

func (p *fakePeer) Revisions() []mcp.Revision { return mcp.Revisions() }

func (p *fakePeer) Serve(context.Context, jsonrpc.Framer) error { return nil }

func (p *fakePeer) Stateless() relay.Peer { return p.orNil() }

func (p *fakePeer) Session(context.Context, rpc.Sender) relay.Peer { return p.orNil() }

func (p *fakePeer) orNil() relay.Peer {
	if p.noPeer {
		return nil
	}
	return p
}

func (p *fakePeer) Request(ctx context.Context, frame []byte, m *jsonrpc.Message, out rpc.Sender, dst []byte) ([]byte, error) {
	p.got, p.ctx = append(p.got, string(frame)), ctx
	if p.asks {
		out.Send([]byte(`{"jsonrpc":"2.0","id":"asked","method":"ping"}`))
	}
	if p.err != nil {
		return dst, p.err
	}
	return append(dst, fmt.Sprintf(p.response, string(m.ID))...), nil
}

func (p *fakePeer) Notification(_ context.Context, frame []byte, _ *jsonrpc.Message) {
	p.got = append(p.got, string(frame))
}

func (p *fakePeer) Response(_ context.Context, frame []byte, _ *jsonrpc.Message) {
	p.got = append(p.got, string(frame))
}

func (p *fakePeer) Close() {}

func parsed(t *testing.T, frame string) *jsonrpc.Message {
	t.Helper()
	m := new(jsonrpc.Message)
	if err := jsonrpc.Parse([]byte(frame), m, 0); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestRelayResponses checks which responses of clients reach a relay: those to its own requests. A
// response that is ambiguous becomes an error.
func TestRelayResponses(t *testing.T) {
	const response = `{"jsonrpc":"2.0","id":%s,"result":{}}`
	for _, tt := range []struct {
		name, prefix string
		// sent are the ids of the requests to the client; nil means that they are not known.
		sent   []string
		format string
		id     string
		want   bool
		error  bool
	}{
		{"any", "", nil, response, `5`, true, false},
		{"own prefix", "a.1", nil, response, `"a.1.7"`, true, false},
		{"another session", "a.1", nil, response, `"a.2.7"`, false, false},
		{"a longer number", "a.1", nil, response, `"a.17"`, false, false},
		{"a number", "a.1", nil, response, `7`, false, false},
		{"sent", "", []string{`5`, `"x"`}, response, `"x"`, true, false},
		{"not sent", "", []string{`5`}, response, `6`, false, false},
		{"another type", "", []string{`5`}, response, `"5"`, false, false},
		{"nothing sent", "", []string{}, response, `5`, false, false},
		{"sent with the prefix", "a.1", []string{`"a.1.7"`}, response, `"a.1.7"`, true, false},
		{"prefix, but not sent", "a.1", []string{`"a.1.7"`}, response, `"a.1.8"`, false, false},
		{"sent by another session", "a.1", []string{`"a.2.7"`}, response, `"a.2.7"`, false, false},
		{"ambiguous", "", nil, `{"jsonrpc":"2.0","id":%s,"result":{"roots":[],"Roots":[]}}`, `5`, true, true},
	} {
		p := new(fakePeer)
		rc := &relayConn{Peer: p, callPrefix: tt.prefix}
		if tt.sent != nil {
			rc.sentIDs = new(sentRequestIDs)
			for _, id := range tt.sent {
				rc.sentIDs.note([]byte(`{"jsonrpc":"2.0","id":` + id + `,"method":"roots/list"}`))
			}
		}
		frame := fmt.Sprintf(tt.format, tt.id)
		if got := rc.deliverResponse(t.Context(), []byte(frame), parsed(t, frame)); got != tt.want {
			t.Errorf("%s: got %t, want %t", tt.name, got, tt.want)
		}
		switch {
		case !tt.want && len(p.got) == 0:
		case !tt.want, len(p.got) != 1, tt.error != strings.Contains(p.got[0], `"error"`), !tt.error && p.got[0] != frame:
			t.Errorf("%s: the relay got %q", tt.name, p.got)
		}
	}
}

// TestSentRequestIDs checks that only requests are remembered, and that after too many of them any
// id may be one.
func TestSentRequestIDs(t *testing.T) {
	a := new(sentRequestIDs)
	for _, message := range []string{`{"jsonrpc":"2.0","method":"x"}`, `{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}`, `{"id":1`} {
		a.note([]byte(message))
	}
	if len(a.keys) != 0 || a.has(jsonrpc.IntID(1)) {
		t.Errorf("remembers %d messages that are no requests", len(a.keys))
	}
	for i := range maxSentRequestIDs + 1 {
		if i == maxSentRequestIDs-1 && a.has(jsonrpc.ID(`"x"`)) {
			t.Error("an unknown id counts as sent before the limit")
		}
		a.note([]byte(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"x"}`, i)))
	}
	if len(a.keys) != maxSentRequestIDs || !a.has(jsonrpc.ID(`"x"`)) {
		t.Errorf("remembers %d ids, want %d, and then accepts any", len(a.keys), maxSentRequestIDs)
	}
}

// TestRelayRequests checks the response and the error, which is for the status, of a request to a
// relay.
func TestRelayRequests(t *testing.T) {
	const request, result = `{"jsonrpc":"2.0","id":1,"method":"x","params":{}}`, `{"jsonrpc":"2.0","id":%s,"result":{}}`
	gone := errors.New("gone")
	for _, tt := range []struct {
		name, request, response string
		err                     error
		want, wantErr           string
		sent                    bool
	}{
		{"a result", request, result, nil, `"result":{}`, "", true},
		{"an error of the server", request, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32099,"message":"no"}}`, nil, `"code":-32099`, "", true},
		{"no response", request, "", gone, "", "gone", true},
		{"rejected", request, "", &relay.RejectedError{Status: 429, Reason: "slow down"}, `"message":"slow down"`, "slow down", true},
		{"ambiguous", `{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":1,"A":2}}`, result, nil, `"code":-32602`, "appears more than once", false},
	} {
		p := &fakePeer{response: tt.response, err: tt.err}
		rc := &relayConn{Peer: p}
		got, err := rc.deliverRequest(t.Context(), []byte(tt.request), &rpc.Delivery{Message: parsed(t, tt.request)}, []byte("before "))
		if rest, ok := strings.CutPrefix(string(got), "before "); !ok || !strings.Contains(rest, tt.want) || tt.want == "" && rest != "" || strings.Count(rest, `"id":1`) > 1 {
			t.Errorf("%s: got %q, want %s", tt.name, got, tt.want)
		}
		if (err != nil) != (tt.wantErr != "") || err != nil && !strings.Contains(err.Error(), tt.wantErr) {
			t.Errorf("%s: got the error %v, want %q", tt.name, err, tt.wantErr)
		}
		if sent := len(p.got) == 1 && p.got[0] == tt.request; sent != tt.sent {
			t.Errorf("%s: the relay got %q", tt.name, p.got)
		}
	}
	p := &fakePeer{response: result, asks: true}
	rc := &relayConn{Peer: p, sentIDs: new(sentRequestIDs)}
	lifetime, end := context.WithCancel(context.Background())
	d := &rpc.Delivery{Message: parsed(t, request), Lifetime: lifetime, Sender: senderFunc(func([]byte) error { return nil })}
	if _, err := rc.deliverRequest(t.Context(), []byte(request), d, nil); err != nil || !rc.sentIDs.has(jsonrpc.ID(`"asked"`)) {
		t.Errorf("got %v; the id of the relay's request is known: %t", err, rc.sentIDs.has(jsonrpc.ID(`"asked"`)))
	}
	if end(); p.ctx.Err() == nil {
		t.Error("the request does not end with its lifetime")
	}
	p.got = nil
	for _, frame := range []string{`{"jsonrpc":"2.0","method":"notifications/x"}`, `{"jsonrpc":"2.0","method":"tools/call","params":{}}`, `{"jsonrpc":"2.0","method":"notifications/x","params":{"a":1,"a":2}}`} {
		rc.deliverNotification(t.Context(), []byte(frame), parsed(t, frame))
	}
	if len(p.got) != 1 || !strings.Contains(p.got[0], "notifications/x") {
		t.Errorf("the relay got the notifications %q, want the first only", p.got)
	}
}

type senderFunc func([]byte) error

func (f senderFunc) Send(message []byte) error { return f(message) }

// TestRelayStatus checks the status of responses of a relay over HTTP, and that a call must repeat
// the arguments that the latest list names.
func TestRelayStatus(t *testing.T) {
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	const result = `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete"}}`
	p := new(fakePeer)
	h := MustHandler(&relay.Server{Handler: p}, nil)
	defer h.Shutdown(t.Context())
	post := func(h http.Handler, method, params string, header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", "http://localhost/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{`+params+meta+`}}`))
		for name, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", headerVersion: "2026-07-28", headerMethod: method} {
			r.Header.Set(name, value)
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for _, tt := range []struct {
		name, method, params string
		header               []string
		response             string
		err                  error
		status               int
		want                 string
	}{
		{"a result", "acme/x", "", nil, result, nil, 200, `"complete"`},
		{"no such method", "acme/x", "", nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, nil, 404, `-32601`},
		{"invalid params", "acme/x", "", nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no"}}`, nil, 200, `-32602`},
		{"rejected", "acme/x", "", nil, "", &relay.RejectedError{Status: 429, Reason: "slow down"}, 429, `slow down`},
		{"ambiguous", "acme/x", `"a":1,"A":2,`, nil, result, nil, 400, `appears more than once`},
		{"a call before the list", "tools/call", `"name":"t","arguments":{"region":"eu"},`, []string{headerName, "t"}, result, nil, 200, `"complete"`},
		{"the list", "tools/list", "", nil, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"t","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}]}}`, nil, 200, `"t"`},
		{"a call without the header", "tools/call", `"name":"t","arguments":{"region":"eu"},`, []string{headerName, "t"}, result, nil, 400, `-32020`},
		{"a call with another value", "tools/call", `"name":"t","arguments":{"region":"eu"},`, []string{headerName, "t", "Mcp-Param-Region", "us"}, result, nil, 400, `-32020`},
		{"a call with the header", "tools/call", `"name":"t","arguments":{"region":"eu"},`, []string{headerName, "t", "Mcp-Param-Region", "eu"}, result, nil, 200, `"complete"`},
	} {
		p.response, p.err = tt.response, tt.err
		if w := post(h, tt.method, tt.params, tt.header...); w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%s: got status %d, %s, want %d, %s", tt.name, w.Code, w.Body, tt.status, tt.want)
		}
	}
	none := MustHandler(&relay.Server{Handler: &fakePeer{noPeer: true}}, nil)
	defer none.Shutdown(t.Context())
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", "http://localhost/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if none.ServeHTTP(w, r); w.Code != http.StatusServiceUnavailable {
		t.Errorf("a relay without sessions: got status %d, %s", w.Code, w.Body)
	}
}
