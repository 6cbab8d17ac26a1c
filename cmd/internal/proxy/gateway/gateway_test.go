package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/auth"
	"mcpwire/client"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/internal/rpc"
	"mcpwire/internal/rpc/relay"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// toolServer returns a server with tools that return the server's name.
func toolServer(name string, tools ...string) *server.Server {
	srv := server.MustNew(name, "1", &server.Options{AdvertiseKinds: []server.Kind{server.KindTool}})
	for _, tool := range tools {
		must(server.AddTool(srv, tool, "", func(context.Context, none) (string, error) { return name, nil }))
	}
	return srv
}

// streamUpstream returns an upstream that is served by srv over pipes.
func streamUpstream(name string, srv *server.Server) Upstream {
	return Upstream{Name: name, Fingerprint: name, Bridge: bridge.Options{Connect: overStream(srv)}}
}

// toolNames returns the names of the tools that the client sees.
func toolNames(t *testing.T, c *client.Client) string {
	t.Helper()
	var names []string
	for tool, err := range c.Tools(t.Context(), client.WithoutCache()) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, tool.Name)
	}
	return strings.Join(names, " ")
}

// modernMeta is the _meta of a modern client.
const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}},"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"}}`

// lastID is the id of the last request.
var lastID atomic.Int64

// request makes a request of a peer and returns the response.
func request(t *testing.T, ctx context.Context, p relay.Peer, method, params string) string {
	t.Helper()
	frame := jsonrpc.AppendRequest(nil, jsonrpc.IntID(lastID.Add(1)), method, []byte(params))
	m := new(jsonrpc.Message)
	if err := jsonrpc.Parse(frame, m, 0); err != nil {
		t.Fatal(err)
	}
	response, err := p.Request(ctx, frame, m, nil, nil)
	if err != nil {
		return err.Error()
	}
	return string(response)
}

func as(ctx context.Context, user string) context.Context {
	return auth.WithPrincipal(ctx, &auth.Principal{Issuer: "i", Subject: user})
}

// TestUnreachableUpstreams checks that an upstream that cannot be reached affects only its own
// tools, and that the gateway connects to it again.
func TestUnreachableUpstreams(t *testing.T) {
	for _, revision := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
		t.Run(revision.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var broken atomic.Bool
				broken.Store(true)
				flaky := streamUpstream("flaky", toolServer("flaky", "a"))
				connect := flaky.Bridge.Connect
				flaky.Bridge.Connect = func(ctx context.Context, w io.Writer) (jsonrpc.Framer, error) {
					if broken.Load() {
						return nil, errors.New("no such program")
					}
					return connect(ctx, w)
				}
				hanging := streamUpstream("hanging", nil)
				hanging.Bridge.Connect = func(ctx context.Context, w io.Writer) (jsonrpc.Framer, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				g := newGateway(t, &Options{Upstreams: []Upstream{flaky, hanging, streamUpstream("good", toolServer("good", "a"))}})
				defer g.Close()
				changes := make(chan string, 10)
				opts := client.Options{Revisions: []mcp.Revision{revision}}
				began := time.Now()
				c := dialStream(t, g, opts)
				defer c.Close()
				if d := time.Since(began); d > 3*time.Second {
					t.Errorf("the handshake took %v", d)
				}
				began = time.Now()
				if got, want := toolNames(t, c), "good__a"; got != want {
					t.Errorf("got %q, want %q", got, want)
				}
				if d := time.Since(began); d > time.Second {
					t.Errorf("the list took %v, although the handshake has waited for the slow upstream", d)
				}
				sub, err := c.ListenFunc(t.Context(), mcp.SubscriptionFilter{ToolsListChanged: true}, func(e client.Event) { changes <- string(e.Kind) })
				if err != nil {
					t.Fatal(err)
				}
				defer sub.Close()
				if _, err := client.CallTool[string](t.Context(), c, "flaky__a", nil); err == nil || !strings.Contains(err.Error(), "-32603") {
					t.Errorf("got %v, want an internal error", err)
				}
				if got, err := client.CallTool[string](t.Context(), c, "good__a", nil); got != "good" || err != nil {
					t.Errorf("got %q, %v", got, err)
				}
				broken.Store(false)
				<-changes
				if got, want := toolNames(t, c), "flaky__a good__a"; got != want {
					t.Errorf("got %q, want %q", got, want)
				}
				if got, err := client.CallTool[string](t.Context(), c, "flaky__a", nil); got != "flaky" || err != nil {
					t.Errorf("got %q, %v", got, err)
				}
				c.Close()
			})
		})
	}
}

// TestNames checks duplicates, renames and names with the separator.
func TestNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := streamUpstream("one", toolServer("one", "b__c", "d", "e"))
		one.Rename = map[string]string{"d": "short"}
		g := newGateway(t, &Options{Upstreams: []Upstream{one, streamUpstream("two", toolServer("two", "b"))}})
		defer g.Close()
		c := dialStream(t, g, client.Options{})
		defer c.Close()
		if got, want := toolNames(t, c), "one__b__c short one__e two__b"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		for name, want := range map[string]string{"one__b__c": "one", "short": "one", "two__b": "two"} {
			if got, err := client.CallTool[string](t.Context(), c, name, nil); got != want || err != nil {
				t.Errorf("%s: got %q, %v", name, got, err)
			}
		}
		for _, name := range []string{"one__d", "one", "one__", "__b", "two____b", "three__b", ""} {
			if _, err := client.CallTool[string](t.Context(), c, name, nil); err == nil || !strings.Contains(err.Error(), "unknown tool") {
				t.Errorf("%q: got %v", name, err)
			}
		}
	})
}

// A prefixView allows the tools whose names begin with it.
type prefixView string

func (v prefixView) Allows(_ Kind, upstream, name string) bool {
	return strings.HasPrefix(upstream+Separator+name, string(v))
}
func (v prefixView) Key() string { return string(v) }

// TestHooks checks the arguments of the hooks for policies, and the effects of their decisions.
func TestHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var audit []string
		admitted, released := 0, 0
		o := &Options{
			Upstreams: []Upstream{streamUpstream("one", toolServer("one", "a", "b", "pinned")), streamUpstream("two", toolServer("two", "a"))},
			View: func(ctx context.Context) View {
				if p := auth.PrincipalOf(ctx); p != nil && p.Subject == "bob" {
					return prefixView("one__a")
				}
				return nil
			},
			Admit: func(ctx context.Context, upstream string) (func(), error) {
				if upstream == "two" {
					return nil, &relay.RejectedError{Status: 429, Reason: "slow down"}
				}
				admitted++
				return func() { released++ }, nil
			},
			Check: func(_ context.Context, call *CallInfo) error {
				if call.Name == "b" {
					return &jsonrpc.Error{Code: -32099, Message: "not " + string(call.Arguments)}
				}
				return nil
			},
			Audit: func(r *CallRecord) {
				mu.Lock()
				defer mu.Unlock()
				if (r.ResponseBytes > 0) != (r.Outcome == OutcomeOK) || r.RequestBytes < len(modernMeta) {
					t.Errorf("%s, %s: the request has %d bytes, the response %d", r.Name, r.Outcome, r.RequestBytes, r.ResponseBytes)
				}
				audit = append(audit, fmt.Sprintf("%s %s %s %s %d %s", r.Method, r.Upstream, r.Name, r.Outcome, r.Code, r.Arguments))
			},
			Pin: func(_, _ string, _ Kind, name string, definition []byte) PinDecision {
				if name == "pinned" && jsonwire.Text(jsonwire.Lookup(definition, "name")) == "pinned" {
					return PinHide
				}
				return PinShow
			},
		}
		g := newGateway(t, o)
		defer g.Close()
		p := g.Stateless()
		for _, tt := range []struct {
			user, method, params, want string
		}{
			{"ann", mcp.MethodToolsList, ``, `"one__a"`},
			{"ann", mcp.MethodToolsCall, `"name":"one__a","arguments":{},`, `"text":"one"`},
			{"ann", mcp.MethodToolsCall, `"name":"one__b","arguments":{"x":1},`, `{"code":-32099,"message":"not {\"x\":1}"}`},
			{"ann", mcp.MethodToolsCall, `"name":"one__pinned",`, `"unknown tool \"one__pinned\""`},
			{"ann", mcp.MethodToolsCall, `"name":"two__a",`, `slow down`},
			{"bob", mcp.MethodToolsCall, `"name":"one__b",`, `"unknown tool \"one__b\": did you mean \"one__a\"?"`},
			{"bob", mcp.MethodToolsCall, `"name":"two__a",`, `"unknown tool \"two__a\""`},
			{"bob", mcp.MethodToolsCall, `"name":"one__a",`, `"text":"one"`},
		} {
			if got := request(t, as(t.Context(), tt.user), p, tt.method, "{"+tt.params+modernMeta+"}"); !strings.Contains(got, tt.want) {
				t.Errorf("%s %s: got %s, want %s in it", tt.user, tt.params, got, tt.want)
			}
		}
		list := request(t, as(t.Context(), "bob"), p, mcp.MethodToolsList, "{"+modernMeta+"}")
		if strings.Count(list, `"name":"one__`) != 1 || strings.Contains(list, "two__") {
			t.Errorf("bob sees %s", list)
		}
		if list := request(t, as(t.Context(), "ann"), p, mcp.MethodToolsList, "{"+modernMeta+"}"); strings.Contains(list, "pinned") || !strings.Contains(list, "two__a") {
			t.Errorf("ann sees %s", list)
		}
		if admitted != released || admitted == 0 {
			t.Errorf("admitted %d, released %d", admitted, released)
		}
		want := []string{
			"tools/call one a ok 0 {}", `tools/call one b denied -32099 {"x":1}`, "tools/call  one__pinned denied -32602 ", "tools/call two a rejected -32603 ",
			"tools/call  one__b denied -32602 ", "tools/call  two__a denied -32602 ", "tools/call one a ok 0 ",
		}
		if diff := cmp.Diff(want, audit); diff != "" {
			t.Errorf("audit (-want +got):\n%s", diff)
		}
	})
}

// TestForged checks that a caller cannot use the cursors, tasks and request states of others.
func TestForged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := fullServer("up", mcp.LatestRevision)
		defer srv.Close(context.Background())
		var tools []string
		for i := range maxPageItems + 1 {
			tools = append(tools, fmt.Sprintf("t%05d", i))
		}
		g := newGateway(t, &Options{Upstreams: []Upstream{streamUpstream("up", srv), streamUpstream("many", toolServer("many", tools...))}})
		defer g.Close()
		p := g.Stateless()
		ann, bob := as(t.Context(), "ann"), as(t.Context(), "bob")
		text := func(response string, path ...string) string {
			return jsonwire.Text(jsonwire.Lookup([]byte(response), append([]string{"result"}, path...)...))
		}
		list := request(t, ann, p, mcp.MethodToolsList, "{"+modernMeta+"}")
		cursor := text(list, "nextCursor")
		if cursor == "" {
			t.Fatal("there is one page only")
		}
		task := text(request(t, ann, p, mcp.MethodToolsCall, `{"name":"up__slow","arguments":{},`+modernMeta+"}"), "taskId")
		state := text(request(t, ann, p, mcp.MethodToolsCall, `{"name":"up__form",`+modernMeta+"}"), "requestState")
		if task == "" || state == "" {
			t.Fatalf("task %q, request state %q", task, state)
		}
		page := func(c string) string { return `{"cursor":"` + c + `",` + modernMeta + "}" }
		get := func(id string) string { return `{"taskId":"` + id + `",` + modernMeta + "}" }
		retry := func(s string) string {
			return `{"name":"up__form","requestState":"` + s + `","inputResponses":{"name":{"action":"decline"}},` + modernMeta + "}"
		}
		const invalid = `"code":-32602`
		for _, tt := range []struct {
			name           string
			ctx            context.Context
			method, params string
			want           string
		}{
			{"own cursor", ann, mcp.MethodToolsList, page(cursor), `"name":"many__t1`},
			{"cursor of another", bob, mcp.MethodToolsList, page(cursor), invalid},
			{"cursor of another list", ann, mcp.MethodPromptsList, page(cursor), invalid},
			{"forged cursor", ann, mcp.MethodToolsList, page("x" + cursor[1:]), invalid},
			{"task of another", bob, mcp.MethodTasksGet, get(task), invalid},
			{"forged task", ann, mcp.MethodTasksGet, get("AAAAAAAAAAAAAAAAAAAAAA" + task[taskMacLen:]), invalid},
			{"task of another upstream", ann, mcp.MethodTasksGet, get(strings.Replace(task, ".up.", ".many.", 1)), invalid},
			{"cancel the task of another", bob, mcp.MethodTasksCancel, get(task), invalid},
			{"own task", ann, mcp.MethodTasksGet, get(task), `"taskId":"` + task + `"`},
			{"state of another", bob, mcp.MethodToolsCall, retry(state), invalid},
			{"forged state", ann, mcp.MethodToolsCall, retry("AAAA"), invalid},
			{"own state", ann, mcp.MethodToolsCall, retry(state), "decline"},
		} {
			if got := request(t, tt.ctx, p, tt.method, tt.params); !strings.Contains(got, tt.want) {
				t.Errorf("%s: got %.300s, want %s in it", tt.name, got, tt.want)
			}
		}
	})
}

// TestApply checks that Apply keeps unchanged upstreams, drains the others, and notifies only the
// clients whose lists have changed.
func TestApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var connects atomic.Int64
		counted := func(u Upstream) Upstream {
			connect := u.Bridge.Connect
			u.Bridge.Connect = func(ctx context.Context, w io.Writer) (jsonrpc.Framer, error) {
				connects.Add(1)
				return connect(ctx, w)
			}
			return u
		}
		kept := counted(streamUpstream("kept", toolServer("kept", "a")))
		slow := toolServer("removed", "a")
		release := make(chan struct{})
		must(server.AddTool(slow, "wait", "", func(ctx context.Context, _ none) (string, error) {
			select {
			case <-release:
				return "finished", nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}))
		o := Options{
			Upstreams: []Upstream{kept, streamUpstream("removed", slow)},
			View: func(ctx context.Context) View {
				if auth.PrincipalOf(ctx) != nil {
					return prefixView("kept__")
				}
				return nil
			},
		}
		g := newGateway(t, &o)
		defer g.Close()
		type counter struct {
			session relay.Peer
			changes chan struct{}
		}
		open := func(ctx context.Context) *counter {
			c := &counter{changes: make(chan struct{}, 100)}
			c.session = g.Session(ctx, senderFunc(func(message []byte) error {
				if strings.Contains(string(message), mcp.NotificationToolsChanged) {
					c.changes <- struct{}{}
				}
				return nil
			}))
			request(t, ctx, c.session, mcp.MethodInitialize, `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`)
			return c
		}
		all, limited := open(t.Context()), open(as(t.Context(), "x"))
		defer all.session.Close()
		defer limited.session.Close()
		request(t, t.Context(), all.session, mcp.MethodToolsCall, `{"name":"kept__a"}`)
		pending := make(chan string)
		go func() {
			pending <- request(t, t.Context(), all.session, mcp.MethodToolsCall, `{"name":"removed__wait"}`)
		}()
		synctest.Wait()
		before := connects.Load()

		bad := o
		bad.Upstreams, bad.Secrets = []Upstream{{Name: "bad"}}, [][]byte{[]byte("short")}
		if err := g.Apply(&bad); err == nil || !strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v", err)
		}
		next := o
		next.Upstreams = []Upstream{kept, streamUpstream("added", toolServer("added", "a"))}
		if err := g.Apply(&next); err != nil {
			t.Fatal(err)
		}
		if got := request(t, t.Context(), all.session, mcp.MethodToolsCall, `{"name":"removed__a"}`); !strings.Contains(got, "unknown tool") {
			t.Errorf("got %s", got)
		}
		if got := request(t, t.Context(), all.session, mcp.MethodToolsCall, `{"name":"added__a"}`); !strings.Contains(got, `"text":"added"`) {
			t.Errorf("got %s", got)
		}
		synctest.Wait()
		close(release)
		if got := <-pending; !strings.Contains(got, "finished") {
			t.Errorf("the pending call got %s", got)
		}
		request(t, t.Context(), all.session, mcp.MethodToolsCall, `{"name":"kept__a"}`)
		if now := connects.Load(); now != before {
			t.Errorf("%d connections to the kept upstream, want %d", now, before)
		}
		<-all.changes
		synctest.Wait()
		if n := len(limited.changes); n != 0 {
			t.Errorf("got %d notifications for a client without a change, want 0", n)
		}
		var names []string
		for _, s := range g.Upstreams() {
			names = append(names, s.Name+" "+s.State)
		}
		if diff := cmp.Diff([]string{"kept up", "added up"}, names); diff != "" {
			t.Errorf("upstreams (-want +got):\n%s", diff)
		}
	})
}

type senderFunc func([]byte) error

func (f senderFunc) Send(message []byte) error { return f(message) }

var _ rpc.Sender = senderFunc(nil)

// A scriptedServer is the server's side of a connection. The test reads and writes its messages.
type scriptedServer struct {
	t *testing.T
	f jsonrpc.Framer
}

func (s *scriptedServer) read() *jsonrpc.Message {
	s.t.Helper()
	frame, err := s.f.ReadFrame()
	if err != nil {
		s.t.Fatal(err)
	}
	m := new(jsonrpc.Message)
	if err := jsonrpc.Parse(append([]byte(nil), frame...), m, 0); err != nil {
		s.t.Fatal(err)
	}
	return m
}

func (s *scriptedServer) write(frame string) {
	s.t.Helper()
	if err := s.f.WriteFrame([]byte(frame)); err != nil {
		s.t.Fatal(err)
	}
}

// TestDuplicateIDs checks requests with the same id from two legacy servers, with responses in the
// reverse order, and the cancellation of one.
func TestDuplicateIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conns := map[string]chan *scriptedServer{"a": make(chan *scriptedServer, 10), "b": make(chan *scriptedServer, 10)}
		up := func(name string) Upstream {
			return Upstream{Name: name, Isolation: IsolateClients, Bridge: bridge.Options{ServerEra: bridge.EraLegacy, Connect: func(context.Context, io.Writer) (jsonrpc.Framer, error) {
				ours, theirs := net.Pipe()
				conns[name] <- &scriptedServer{t, jsonrpc.NewFramer(theirs, nil)}
				return jsonrpc.NewFramer(ours, nil), nil
			}}}
		}
		g := newGateway(t, &Options{ListWait: time.Millisecond, Upstreams: []Upstream{up("a"), up("b")}})
		defer g.Close()
		requests := make(chan string, 3*maxServerRequests)
		s := g.Session(t.Context(), senderFunc(func(message []byte) error {
			requests <- string(message)
			return nil
		}))
		defer s.Close()
		request(t, t.Context(), s, mcp.MethodInitialize, `{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"c","version":"1"}}`)
		servers, responses := map[string]*scriptedServer{}, map[string]chan string{}
		for i, name := range []string{"a", "b"} {
			<-conns[name] // the connection of the catalog, which gets no response
			responses[name] = make(chan string, 1)
			frame := jsonrpc.AppendRequest(nil, jsonrpc.IntID(int64(i)), mcp.MethodToolsCall, []byte(`{"name":"`+name+`__x"}`))
			go func() {
				m := new(jsonrpc.Message)
				must(jsonrpc.Parse(frame, m, 0))
				response, _ := s.Request(t.Context(), frame, m, nil, nil)
				responses[name] <- string(response)
			}()
			srv := <-conns[name]
			servers[name] = srv
			initialize := srv.read()
			if string(initialize.Method) != mcp.MethodInitialize || !strings.Contains(string(initialize.Params), `"roots":{}`) {
				t.Errorf("got %s, want the client's handshake", initialize.Raw())
			}
			srv.write(`{"jsonrpc":"2.0","id":` + string(initialize.ID) + `,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}`)
			srv.read() // initialized
			if call := srv.read(); string(call.Method) != mcp.MethodToolsCall || !strings.Contains(string(call.Params), `"name":"x"`) {
				t.Errorf("got %s", call.Raw())
			}
			srv.write(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`)
			if got, want := <-requests, fmt.Sprintf(`{"jsonrpc":"2.0","id":"%s.%d","method":"roots/list"}`, name, i+1); got != want {
				t.Fatalf("got %s, want %s", got, want)
			}
		}
		respond := func(frame string) {
			m := new(jsonrpc.Message)
			must(jsonrpc.Parse([]byte(frame), m, 0))
			s.Response(t.Context(), []byte(frame), m)
		}
		respond(`{"jsonrpc":"2.0","id":"b.2","result":{"roots":[{"uri":"file:///b"}]}}`)
		respond(`{"jsonrpc":"2.0","id":"b.2","result":{"roots":[{"uri":"file:///twice"}]}}`)
		respond(`{"jsonrpc":"2.0","id":1,"result":{"roots":[{"uri":"file:///raw"}]}}`)
		respond(`{"jsonrpc":"2.0","id":"a.1","result":{"roots":[{"uri":"file:///a"}]}}`)
		for _, name := range []string{"a", "b"} {
			if got, want := string(servers[name].read().Raw()), `{"jsonrpc":"2.0","id":1,"result":{"roots":[{"uri":"file:///`+name+`"}]}}`; got != want {
				t.Errorf("%s got %s, want %s", name, got, want)
			}
		}
		servers["a"].write(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`)
		<-requests
		servers["a"].write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		if got, want := <-requests, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a.3"}}`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		// A client without responses still gets requests; the server of the oldest gets an error.
		for i := range maxServerRequests + 1 {
			servers["a"].write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"roots/list"}`, 100+i))
		}
		if m := servers["a"].read(); string(m.ID) != "100" || m.Kind != jsonrpc.KindError {
			t.Errorf("got %s, want an error for 100", m.Raw())
		}
		// The client's cancellation reaches the server that has the request, with its reason.
		cancel := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"late"}}`
		m := new(jsonrpc.Message)
		must(jsonrpc.Parse([]byte(cancel), m, 0))
		s.Notification(t.Context(), []byte(cancel), m)
		if got := string(servers["b"].read().Raw()); got != cancel {
			t.Errorf("got %s, want %s", got, cancel)
		}
		if got := <-responses["b"]; got != "" {
			t.Errorf("canceled call: got response %s, want none", got)
		}
	})
}

// TestPrincipals checks which callers share a connection.
func TestPrincipals(t *testing.T) {
	for _, tt := range []struct {
		name         string
		isolation    Isolation
		perPrincipal bool
		// want has the users for which Connect was called, sorted; "" is a call without a user.
		want string
	}{
		{"shared", IsolateNone, false, `[""]`},
		{"principal", IsolatePrincipals, false, `["" "" ""]`}, // two users, and the catalog
		{"credentials", IsolatePrincipals, true, `["ann" "bob"]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var users []string
				u := streamUpstream("up", toolServer("up", "a"))
				connect := u.Bridge.Connect
				u.Isolation, u.PerPrincipal, u.Bridge.IdleTimeout = tt.isolation, tt.perPrincipal, time.Minute
				u.Bridge.Connect = func(ctx context.Context, w io.Writer) (jsonrpc.Framer, error) {
					user := ""
					if p := auth.PrincipalOf(ctx); p != nil {
						user = p.Subject
					}
					mu.Lock()
					users = append(users, user)
					mu.Unlock()
					return connect(ctx, w)
				}
				g := newGateway(t, &Options{Upstreams: []Upstream{u}})
				defer g.Close()
				p := g.Stateless()
				for _, user := range []string{"ann", "bob", "ann", "bob"} {
					if got := request(t, as(t.Context(), user), p, mcp.MethodToolsCall, `{"name":"up__a",`+modernMeta+"}"); !strings.Contains(got, `"text":"up"`) {
						t.Errorf("%s: got %s", user, got)
					}
					if got := request(t, as(t.Context(), user), p, mcp.MethodToolsList, "{"+modernMeta+"}"); !strings.Contains(got, `"up__a"`) {
						t.Errorf("%s: got %s", user, got)
					}
				}
				mu.Lock()
				slices.Sort(users)
				if got := fmt.Sprintf("%q", users); got != tt.want {
					t.Errorf("connected for %s, want %s", got, tt.want)
				}
				mu.Unlock()
				<-time.After(5 * time.Minute)
				synctest.Wait()
				if s := g.Upstreams()[0]; s.Connections != 0 {
					t.Errorf("got %d connections after the idle timeout, want 0", s.Connections)
				}
				// The gateway serves the old list at once, and reads it again.
				if got := request(t, as(t.Context(), "ann"), p, mcp.MethodToolsList, "{"+modernMeta+"}"); !strings.Contains(got, `"up__a"`) {
					t.Errorf("got %s", got)
				}
				synctest.Wait()
				if s := g.Upstreams()[0]; s.Connections != 1 {
					t.Errorf("%d connections after a list, want 1", s.Connections)
				}
			})
		})
	}
}

// TestPipelined checks a client that sends all its messages at once and closes its output.
func TestPipelined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, &Options{Upstreams: []Upstream{streamUpstream("up", toolServer("up", "a"))}})
		defer g.Close()
		in := strings.Join([]string{
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`,
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			`not JSON`,
			`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`,
			`[{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"up__a"}},{"jsonrpc":"2.0","id":4,"method":"ping"}]`,
			`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"up__a",` + modernMeta + `}}`,
			`{"jsonrpc":"2.0","id":6,"id":7,"method":"ping"}`,
			`{"jsonrpc":"2.0","id":8,"method":"acme/unknown"}`,
		}, "\n") + "\n"
		var out bytes.Buffer
		if err := g.Serve(t.Context(), jsonrpc.NewFramer(&halves{strings.NewReader(in), &out}, nil)); err != nil {
			t.Error(err)
		}
		var got []string
		for line := range strings.Lines(out.String()) {
			got = append(got, line)
		}
		slices.Sort(got)
		if len(got) != 7 {
			t.Errorf("%d responses, want 7:\n%s", len(got), out.String())
		}
		for _, want := range []string{
			`"id":1,"result":{"protocolVersion":"2025-03-26"`, `"id":2,"result":{"tools":[{"name":"up__a"`, `"text":"up"`, `"id":4,"result":{}`,
			`"id":5,"result":{`, `"code":-32700`, `"id":8,"error":{"code":-32601`, "appears twice",
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s is missing in\n%s", want, out.String())
			}
		}
	})
}

// halves is a connection of a reader and a writer.
type halves struct {
	io.Reader
	io.Writer
}

func (*halves) Close() error { return nil }

// TestModernMethods checks requests to which the gateway itself responds because of the era or the
// capabilities of a client.
func TestModernMethods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, &Options{Upstreams: []Upstream{streamUpstream("one", toolServer("one", "a"))}})
		defer g.Close()
		bare := strings.Replace(modernMeta, `,"extensions":{"io.modelcontextprotocol/tasks":{}}`, "", 1)
		for _, tt := range []struct{ method, params, want string }{
			{mcp.MethodResourcesSubscribe, `{"uri":"x:1",` + modernMeta + `}`, `"code":-32601`},
			{mcp.MethodResourcesUnsubscribe, `{"uri":"x:1",` + modernMeta + `}`, `"code":-32601`},
			{mcp.MethodTasksResult, `{"taskId":"x",` + modernMeta + `}`, `"code":-32601`},
			{mcp.MethodTasksGet, `{"taskId":"x",` + bare + `}`, `"code":-32021`},
			{mcp.MethodTasksUpdate, `{"taskId":"x",` + bare + `}`, `"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}`},
			{mcp.MethodTasksCancel, `{"taskId":"x",` + bare + `}`, `"code":-32021`},
			{mcp.MethodTasksGet, `{"taskId":"x",` + modernMeta + `}`, `"code":-32602`},
		} {
			if got := request(t, t.Context(), g.Stateless(), tt.method, tt.params); !strings.Contains(got, tt.want) {
				t.Errorf("%s: got %s, want %s", tt.method, got, tt.want)
			}
		}
	})
}
