package cluster_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/cluster"
	"mcpwire/cluster/clustertest"
	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/streamable"
)

// A testNode is a node with a server and a handler.
type testNode struct {
	server  *server.Server
	handler *streamable.Handler
	node    *cluster.Node
}

// newTestNode returns a node whose server and handler share everything with other nodes.
func newTestNode(t *testing.T, b cluster.Backend) *testNode {
	t.Helper()
	ctx, n := t.Context(), join(t, b, nil)
	so := &server.Options{Tasks: new(server.TaskOptions), Input: server.InputOptions{SingleUseState: true}}
	ho := &streamable.Options{Logger: slog.New(slog.DiscardHandler)}
	if err := n.Share(ctx, "site", so, ho); err != nil {
		t.Fatal(err)
	}
	if so.Tasks.Store == nil || so.Input.UsedStates == nil || so.Callers.Processes() < 1 || so.Bus == nil || ho.Events == nil || ho.Sessions == nil {
		t.Errorf("Share has not set all options: %+v, %+v", so, ho)
	}
	srv := server.MustNew("site", "1", so)
	err := server.AddTool(srv, "count", "", func(ctx context.Context, _ struct{}) (string, error) {
		for i := range 3 {
			if err := server.CallOf(ctx).Log(mcp.LevelError, "", i); err != nil {
				return "", err
			}
		}
		return "counted", nil
	})
	if err != nil {
		t.Fatal(err)
	}
	err = server.AddTool(srv, "roots", "", func(ctx context.Context, _ struct{}) (string, error) {
		roots, err := server.CallOf(ctx).Roots(ctx, "roots")
		if err != nil {
			return "", err
		}
		return "root " + roots[0].Name, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	err = server.AddTool(srv, "quick", "", func(context.Context, struct{}) (string, error) { return "done", nil })
	if err != nil {
		t.Fatal(err)
	}
	err = server.AddResource(srv, mcp.Resource{URI: "site://thing", Name: "thing"}, func(context.Context) (string, error) { return "thing", nil })
	if err != nil {
		t.Fatal(err)
	}
	h := streamable.MustHandler(srv, ho)
	t.Cleanup(func() {
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := srv.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return &testNode{srv, h, n}
}

// newRequest returns a request of a client.
func newRequest(method, session, body string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, "http://localhost/mcp", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

// do sends a request and returns the response.
func (s *testNode) do(method, session, body string, headers ...string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, newRequest(method, session, body, headers...))
	return w
}

// eventIDs returns the ids of the events of a response.
func eventIDs(w *httptest.ResponseRecorder) (ids []string) {
	for line := range strings.Lines(w.Body.String()) {
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			ids = append(ids, strings.TrimSpace(id))
		}
	}
	return ids
}

// TestHandlers checks a legacy client that sends requests to two nodes in turn: both have its
// session, its settings and its streams, and its DELETE ends the session at both.
func TestHandlers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		shared := clustertest.NewMemory()
		a, b := newTestNode(t, shared), newTestNode(t, shared)
		init := a.do("POST", "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"c","version":"1"}}}`)
		session := init.Header().Get("Mcp-Session-Id")
		if init.Code != http.StatusOK || session == "" {
			t.Fatalf("initialize: %d %s", init.Code, init.Body)
		}
		call := func(s *testNode, id int, method, params string) *httptest.ResponseRecorder {
			t.Helper()
			w := s.do("POST", session, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, method, params))
			if w.Code != http.StatusOK || strings.Contains(w.Body.String(), `"error":{`) {
				t.Fatalf("%s: %d %s", method, w.Code, w.Body)
			}
			return w
		}
		if w := b.do("POST", session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`); w.Code != http.StatusAccepted {
			t.Fatalf("initialized at the other node: %d %s", w.Code, w.Body)
		}
		whole := call(b, 2, "tools/call", `{"name":"count"}`)
		ids := eventIDs(whole)
		if len(ids) != 5 || !strings.Contains(whole.Body.String(), "counted") {
			t.Fatalf("the stream: %s", whole.Body)
		}
		resumed := a.do("GET", session, "", "Last-Event-ID", ids[1])
		if got := eventIDs(resumed); resumed.Code != http.StatusOK || strings.Join(got, " ") != strings.Join(ids[2:], " ") || !strings.Contains(resumed.Body.String(), "counted") {
			t.Errorf("resumed at the other node: %d %s", resumed.Code, resumed.Body)
		}
		answered := make(chan *httptest.ResponseRecorder)
		go func() {
			answered <- a.do("POST", session, `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"roots"}}`)
		}()
		synctest.Wait()
		for _, tt := range []struct {
			node *testNode
			want int
		}{{b, http.StatusBadRequest}, {a, http.StatusAccepted}} { // a has sent the request, its first one
			response := fmt.Sprintf(`{"jsonrpc":"2.0","id":"%s.1.1","result":{"roots":[{"uri":"file:///x","name":"x"}]}}`, tt.node.node.ID())
			if w := b.do("POST", session, response); w.Code != tt.want {
				t.Errorf("the response to an input request: %d %s, want %d", w.Code, w.Body, tt.want)
			}
		}
		if w := <-answered; !strings.Contains(w.Body.String(), "root x") {
			t.Errorf("a call whose input came from the other node: %s", w.Body)
		}
		call(a, 3, "logging/setLevel", `{"level":"emergency"}`)
		synctest.Wait()
		if w := call(b, 4, "tools/call", `{"name":"count"}`); strings.Contains(w.Body.String(), "notifications/message") {
			t.Errorf("a log level set at one node is unknown at the other: %s", w.Body)
		}
		if w := a.do("DELETE", session, ""); w.Code != http.StatusNoContent {
			t.Errorf("DELETE: %d %s", w.Code, w.Body)
		}
		synctest.Wait()
		if w := b.do("POST", session, `{"jsonrpc":"2.0","id":5,"method":"ping"}`); w.Code != http.StatusNotFound {
			t.Errorf("a session that was deleted at the other node: %d %s", w.Code, w.Body)
		}
	})
}

// TestTakeOverWithoutBackend checks that a node serves the sessions of other nodes for half a
// minute while the backend is unavailable, and that a DELETE at another node still takes effect at
// once.
func TestTakeOverWithoutBackend(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		shared := clustertest.NewMemory()
		f := newFaulty(shared)
		a, b := newTestNode(t, shared), newTestNode(t, f)
		open := func() string {
			w := a.do("POST", "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
			if w.Code != http.StatusOK {
				t.Fatalf("initialize: %d %s", w.Code, w.Body)
			}
			return w.Header().Get("Mcp-Session-Id")
		}
		ping := func(what, session string, want int) {
			t.Helper()
			began := time.Now()
			if w := b.do("POST", session, `{"jsonrpc":"2.0","id":2,"method":"ping"}`); w.Code != want {
				t.Errorf("%s: %d %s", what, w.Code, w.Body)
			}
			if d := time.Since(began); d > 0 && want != http.StatusServiceUnavailable {
				t.Errorf("%s took %v", what, d)
			}
		}
		quiet, set, ended, live, late := open(), open(), open(), open(), open()
		ping("a session that is known", live, http.StatusOK)
		synctest.Wait()
		f.setDown(true)
		synctest.Wait()
		ping("a session without a record", quiet, http.StatusOK)
		w := a.do("POST", set, `{"jsonrpc":"2.0","id":3,"method":"logging/setLevel","params":{"level":"emergency"}}`)
		if w.Code != http.StatusOK {
			t.Errorf("set a level: %d %s", w.Code, w.Body)
		}
		if w := b.do("POST", set, `{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"count"}}`); w.Code != http.StatusOK || strings.Contains(w.Body.String(), "notifications/message") {
			t.Errorf("a log level set at the other node is unknown: %d %s", w.Code, w.Body)
		}
		for _, session := range []string{ended, live} {
			if w := a.do("DELETE", session, ""); w.Code != http.StatusNoContent {
				t.Errorf("DELETE: %d %s", w.Code, w.Body)
			}
			ping("a session that has ended", session, http.StatusNotFound)
		}
		advance(time.Minute)
		ping("a node that is cut off for long", late, http.StatusServiceUnavailable)
		f.setDown(false)
		advance(5 * time.Second)
		ping("the backend is back", late, http.StatusOK)
		ping("a session that had ended", ended, http.StatusNotFound)
	})
}

// TestSessionEndedInPart checks a DELETE of which the backend stores only the durable copy of the
// record: once a node says that the session has ended, no other one serves it.
func TestSessionEndedInPart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		shared := clustertest.NewMemory()
		f := newFaulty(shared)
		a, b, c := newTestNode(t, f), newTestNode(t, shared), newTestNode(t, shared)
		session := a.do("POST", "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`).Header().Get("Mcp-Session-Id")
		const ping = `{"jsonrpc":"2.0","id":2,"method":"ping"}`
		if w := b.do("POST", session, ping); w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		synctest.Wait()
		f.silent.Store(&silence{bucket: "sessions", after: time.Hour})
		if w := a.do("DELETE", session, ""); w.Code != http.StatusServiceUnavailable {
			t.Errorf("DELETE without the backend: %d %s", w.Code, w.Body)
		}
		if w := c.do("DELETE", session, ""); w.Code != http.StatusNotFound {
			t.Errorf("DELETE again: %d %s", w.Code, w.Body)
		}
		synctest.Wait()
		for i, n := range []*testNode{a, b, c} {
			if w := n.do("POST", session, ping); w.Code != http.StatusNotFound {
				t.Errorf("node %d: %d %s", i, w.Code, w.Body)
			}
		}
		advance(2 * time.Hour)
	})
}

// TestCallsWithoutBackend checks a backend that does not respond: calls that do not need it are not
// delayed, including the first call of a session of another node and the response to an input
// request, and others fail with status 503.
func TestCallsWithoutBackend(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		shared := clustertest.NewMemory()
		fa, fb := newFaulty(shared), newFaulty(shared)
		a, b := newTestNode(t, fa), newTestNode(t, fb)
		open := func() string {
			return a.do("POST", "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"roots":{}},"clientInfo":{"name":"c","version":"1"}}}`).Header().Get("Mcp-Session-Id")
		}
		session, asking := open(), open()
		answered := make(chan *httptest.ResponseRecorder)
		go func() {
			answered <- a.do("POST", asking, `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"roots"}}`)
		}()
		synctest.Wait()
		const rootsMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{}}}`
		const tasksMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`
		w := a.do("POST", "", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"roots",`+rootsMeta+`}}`, "MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "roots")
		_, state, _ := strings.Cut(w.Body.String(), `"requestState":"`)
		state, _, _ = strings.Cut(state, `"`)
		if state == "" {
			t.Fatalf("no request state: %d %s", w.Code, w.Body)
		}
		fa.setDown(true)
		fb.setDown(true)
		const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
		modern := func(method, name string) []string {
			return []string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", method, "Mcp-Name", name}
		}
		for _, tt := range []struct {
			what          string
			at            *testNode
			session, body string
			headers       []string
			status        int
		}{
			{"a modern call", a, "", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"quick",` + meta + `}}`, modern("tools/call", "quick"), 200},
			{"a modern resource", b, "", `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"site://thing",` + meta + `}}`, modern("resources/read", "site://thing"), 200},
			{"initialize", a, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`, nil, 200},
			{"a legacy call", a, session, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"quick"}}`, nil, 200},
			{"a legacy call at another node", b, session, `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"quick"}}`, nil, 200},
			{"the response to an input request at another node", b, asking, fmt.Sprintf(`{"jsonrpc":"2.0","id":"%s.2.1","result":{"roots":[{"uri":"file:///x","name":"x"}]}}`, a.node.ID()), nil, 202},
		} {
			began := time.Now()
			if w := tt.at.do("POST", tt.session, tt.body, tt.headers...); w.Code != tt.status || strings.Contains(w.Body.String(), `"error":{`) {
				t.Errorf("%s: %d %s", tt.what, w.Code, w.Body)
			}
			if d := time.Since(began); d > 0 {
				t.Errorf("%s took %v", tt.what, d)
			}
		}
		if w := <-answered; !strings.Contains(w.Body.String(), "root x") {
			t.Errorf("a call whose input came from the other node: %s", w.Body)
		}
		if got := b.handler.Stats().Sessions; got != 1 {
			t.Errorf("the other node has %d sessions, want 1: it has opened one to forward a response", got)
		}
		for _, tt := range []struct {
			what, method, session, body string
			headers                     []string
		}{
			{"a task", "POST", "", `{"jsonrpc":"2.0","id":4,"method":"tasks/get","params":{"taskId":"t",` + tasksMeta + `}}`, modern("tasks/get", "t")},
			{"a request state", "POST", "", `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"roots","requestState":"` + state + `","inputResponses":{"roots":{"roots":[{"uri":"file:///x","name":"x"}]}},` + rootsMeta + `}}`, modern("tools/call", "roots")},
			{"DELETE", "DELETE", session, "", nil},
		} {
			if w := a.do(tt.method, tt.session, tt.body, tt.headers...); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
				t.Errorf("%s: %d %v %s, want status 503 with Retry-After", tt.what, w.Code, w.Header(), w.Body)
			}
		}
		fa.setDown(false)
		fb.setDown(false)
		advance(5 * time.Second)
		if w := a.do("DELETE", session, ""); w.Code != http.StatusNoContent {
			t.Errorf("DELETE, again: %d %s", w.Code, w.Body)
		}
	})
}

// TestStateNotUsed checks a call with a request state, during which the backend notes the use but
// does not respond: the client is asked to repeat the call, and the state is good for one call.
func TestStateNotUsed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		shared := clustertest.NewMemory()
		f := newFaulty(shared)
		a, b := newTestNode(t, f), newTestNode(t, shared)
		const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{}}}`
		call := func(n *testNode, more string) *httptest.ResponseRecorder {
			return n.do("POST", "", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"roots",`+more+meta+`}}`,
				"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "roots")
		}
		_, state, _ := strings.Cut(call(a, "").Body.String(), `"requestState":"`)
		state, _, _ = strings.Cut(state, `"`)
		answer := `"requestState":"` + state + `","inputResponses":{"roots":{"roots":[{"uri":"file:///x","name":"x"}]}},`
		f.silent.Store(&silence{bucket: "once-states-site"})
		w := call(a, answer)
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" {
			t.Fatalf("the backend does not respond: %d %v %s", w.Code, w.Header(), w.Body)
		}
		advance(time.Second)
		if w := call(b, answer); !strings.Contains(w.Body.String(), "root x") {
			t.Errorf("the same call at another node: %d %s", w.Code, w.Body)
		}
		for _, n := range []*testNode{a, b} {
			if w := call(n, answer); !strings.Contains(w.Body.String(), "start over") {
				t.Errorf("the call once more: %d %s", w.Code, w.Body)
			}
		}
	})
}

// TestNodeLost closes a node during a call. The client resumes the stream at another node, which
// ends it with an error.
func TestNodeLost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		shared := clustertest.NewMemory()
		a, b := newTestNode(t, shared), newTestNode(t, shared)
		init := a.do("POST", "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"c","version":"1"}}}`)
		session := init.Header().Get("Mcp-Session-Id")
		calling := make(chan *httptest.ResponseRecorder)
		ctx, hangUp := context.WithCancel(t.Context())
		go func() {
			r := newRequest("POST", session, `{"jsonrpc":"2.0","id":"my id","method":"tools/call","params":{"name":"roots"}}`)
			w := httptest.NewRecorder()
			a.handler.ServeHTTP(w, r.WithContext(ctx))
			calling <- w
		}()
		synctest.Wait()
		follow := func() <-chan *httptest.ResponseRecorder {
			followed := make(chan *httptest.ResponseRecorder)
			go func() {
				// The priming event and the input request were the first two events.
				followed <- b.do("GET", session, "", "Last-Event-ID", fmt.Sprintf("1.%s.%s-2", a.node.ID(), base64.RawURLEncoding.EncodeToString([]byte(`"my id"`))))
			}()
			return followed
		}
		followed := follow()
		advance(time.Minute)
		select {
		case w := <-followed:
			t.Fatalf("the stream of a running node has ended: %d %s", w.Code, w.Body)
		default:
		}
		began := time.Now()
		a.node.Close()
		w := <-followed
		if !strings.Contains(w.Body.String(), `{"jsonrpc":"2.0","id":"my id","error":{"code":-32603,`) || !strings.Contains(w.Body.String(), `"mayHaveRun":true`) {
			t.Errorf("the stream of a closed node: got %d %s", w.Code, w.Body)
		}
		if d := time.Since(began); d > 4*time.Second {
			t.Errorf("the client waited %v", d)
		}
		if again := <-follow(); again.Body.String() == "" || !strings.HasSuffix(w.Body.String(), again.Body.String()) {
			t.Errorf("the same stream again: %d %s", again.Code, again.Body)
		}
		hangUp()
		<-calling
	})
}

// A restartedBackend is a backend after a restart of all machines: it has only the durable data.
type restartedBackend struct {
	durable, rest cluster.Backend
}

func (r *restartedBackend) Records(ctx context.Context, name string, o cluster.RecordsOptions) (cluster.Records, error) {
	if o.Durable {
		return r.durable.Records(ctx, name, o)
	}
	return r.rest.Records(ctx, name, o)
}

func (r *restartedBackend) Log(ctx context.Context, name string, o cluster.LogOptions) (cluster.Log, error) {
	return r.rest.Log(ctx, name, o)
}

func (r *restartedBackend) Bus() cluster.Bus { return r.rest.Bus() }

// TestRestartOfAllNodes checks the restart of all nodes with the durable data: sessions have the
// settings of their clients, ended sessions are still ended, and a client with a standing stream is
// notified of changes that it may have missed.
func TestRestartOfAllNodes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		durable := clustertest.NewMemory()
		one := newTestNode(t, &restartedBackend{durable, clustertest.NewMemory()})
		open := func() string {
			return one.do("POST", "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`).Header().Get("Mcp-Session-Id")
		}
		quiet, ended, subscribed, unsubscribed := open(), open(), open(), open()
		stream := eventIDs(one.do("POST", quiet, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"count"}}`))
		set := func(s *testNode, session, method, params string) {
			t.Helper()
			if w := s.do("POST", session, fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":%q,"params":%s}`, method, params)); w.Code != http.StatusOK || strings.Contains(w.Body.String(), `"error":{`) {
				t.Fatalf("%s: %d %s", method, w.Code, w.Body)
			}
		}
		listen := func(s *testNode, session string) (stop func() string) {
			ctx, cancel := context.WithCancel(t.Context())
			w := httptest.NewRecorder()
			done := make(chan struct{})
			go func() {
				defer close(done)
				s.handler.ServeHTTP(w, newRequest("GET", session, "").WithContext(ctx))
			}()
			advance(5 * time.Second)
			return func() string {
				cancel()
				<-done
				return w.Body.String()
			}
		}
		set(one, quiet, "logging/setLevel", `{"level":"emergency"}`)
		for _, session := range []string{subscribed, unsubscribed} {
			set(one, session, "resources/subscribe", `{"uri":"site://thing"}`)
		}
		set(one, unsubscribed, "resources/unsubscribe", `{"uri":"site://thing"}`)
		stop := listen(one, subscribed)
		if w := one.do("DELETE", ended, ""); w.Code != http.StatusNoContent {
			t.Fatalf("DELETE: %d %s", w.Code, w.Body)
		}
		stop()
		second := newTestNode(t, &restartedBackend{durable, clustertest.NewMemory()})
		if w := second.do("POST", ended, `{"jsonrpc":"2.0","id":3,"method":"ping"}`); w.Code != http.StatusNotFound {
			t.Errorf("a session that its client has ended: %d %s", w.Code, w.Body)
		}
		if w := second.do("POST", quiet, `{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"count"}}`); w.Code != http.StatusOK || strings.Contains(w.Body.String(), "notifications/message") {
			t.Errorf("a session has lost its log level: %d %s", w.Code, w.Body)
		}
		if w := second.do("GET", quiet, "", "Last-Event-ID", stream[0]); w.Code != http.StatusBadRequest {
			t.Errorf("a stream without stored events: got %d %s", w.Code, w.Body)
		}
		const updated = `"method":"notifications/resources/updated"`
		for session, want := range map[string]int{subscribed: 2, unsubscribed: 0} {
			stop := listen(second, session)
			set(second, session, "logging/setLevel", `{"level":"error"}`) // keeps the subscriptions
			second.server.ResourceUpdated("site://thing")
			advance(5 * time.Second)
			if text := stop(); strings.Count(text, updated) != want {
				t.Errorf("got %d notifications, want %d, of missed updates and of a change:\n%s", strings.Count(text, updated), want, text)
			}
		}
		three := newTestNode(t, &restartedBackend{durable, clustertest.NewMemory()})
		stop = listen(three, subscribed)
		three.server.ResourceUpdated("site://thing")
		advance(5 * time.Second)
		if text := stop(); !strings.Contains(text, updated) {
			t.Errorf("no notification of a change after another restart:\n%s", text)
		}
	})
}
