package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/client"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// These tests check the decisions of single parts, without clients and servers where that is
// possible.

func discard([]byte) error { return nil }

// partGateway returns a gateway with an idle upstream "up" with credentials by principal, and its
// log.
func partGateway(t *testing.T, o Options) (*Gateway, *upstream, *bytes.Buffer) {
	t.Helper()
	log := new(bytes.Buffer)
	u := streamUpstream("up", toolServer("up", "a"))
	u.PerPrincipal = true
	o.Upstreams, o.Logger = []Upstream{u}, slog.New(slog.NewTextHandler(log, nil))
	g, err := New(&o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g, g.state.Load().byName["up"], log
}

// message returns a parsed message.
func message(frame string) *jsonrpc.Message {
	m := new(jsonrpc.Message)
	must(jsonrpc.Parse([]byte(frame), m, 0))
	return m
}

// backendOf returns the backend of a user, which is not in use.
func backendOf(t *testing.T, u *upstream, user string) *backend {
	t.Helper()
	be, err := u.acquire(as(t.Context(), user))
	if err != nil {
		t.Fatal(err)
	}
	be.release()
	return be
}

// users returns the users who have backends.
func users(u *upstream) (list []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, be := range u.backends {
		list = append(list, strings.Fields(be.principal)[1])
	}
	slices.Sort(list)
	return list
}

func newSnapshot() *snapshot { return &snapshot{profile: new(era.ServerProfile)} }

func TestDefaults(t *testing.T) {
	o := Options{}.withDefaults()
	if got, want := fmt.Sprint(o.Info.Name, o.Info.Version, o.ListWait, o.CatalogTTL, o.DrainTimeout, o.MaxSessions), fmt.Sprint("mcpwire-gateway", "1", 2*time.Second, 5*time.Minute, 10*time.Second, 10_000); got != want || o.Logger == nil {
		t.Errorf("got %s, want %s", got, want)
	}
	o = Options{Info: mcp.Implementation{Name: "mine"}, ListWait: 1, CatalogTTL: 2, DrainTimeout: 3, MaxSessions: 4}.withDefaults()
	if got, want := fmt.Sprint(o.Info.Name, o.Info.Version, int(o.ListWait), int(o.CatalogTTL), int(o.DrainTimeout), o.MaxSessions), "mine1 2 3 4"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	var names []string
	for k := range KindServer + 1 {
		names = append(names, k.String())
	}
	if got, want := strings.Join(names, ", "), "tool, prompt, resource, resource template, server"; got != want {
		t.Errorf("kinds: got %s, want %s", got, want)
	}
}

// TestMaxSessions checks that a session is refused above the limit and after Close.
func TestMaxSessions(t *testing.T) {
	g, _, _ := partGateway(t, Options{MaxSessions: 2})
	var got []bool
	open := func() func() {
		s := g.Session(t.Context(), senderFunc(discard))
		got = append(got, s != nil)
		if s == nil {
			return nil
		}
		return s.Close
	}
	first := open()
	open()
	open()
	first()
	open()
	g.Close()
	open()
	if diff := cmp.Diff([]bool{true, true, false, true, false}, got); diff != "" {
		t.Errorf("opened (-want +got):\n%s", diff)
	}
}

// TestReplaceSecrets checks that the first secret seals, that all of them open, and that invalid
// ones change nothing.
func TestReplaceSecrets(t *testing.T) {
	secret := func(b byte) []byte {
		sum := sha256.Sum256([]byte{b})
		return sum[:]
	}
	g, u, _ := partGateway(t, Options{Secrets: [][]byte{secret(1)}})
	ctx := as(t.Context(), "ann")
	s := g.scope(ctx, backendOf(t, u, "ann"), bridge.EraModern)
	sealed := func() string {
		text, _, err := g.ring.Seal(nil, purposeState, []byte("x"), nil)
		must(err)
		return string(text)
	}
	opens := func(text, task string) [2]bool {
		_, _, err := g.ring.Open(text, maxState, purposeState, nil)
		u, _ := g.ownTask(ctx, task)
		return [2]bool{err == nil, u != nil}
	}
	state, task := sealed(), s.exposedTask("7")
	for _, tt := range []struct {
		name    string
		secrets [][]byte
		fails   bool
		want    bool // the first state and task are still valid
	}{
		{"a second one", [][]byte{secret(2), secret(1)}, false, true},
		{"a short one", [][]byte{secret(3), []byte("short")}, true, true},
		{"without the first", [][]byte{secret(2)}, false, false},
	} {
		err := g.ReplaceSecrets(tt.secrets...)
		if got := opens(state, task); (err != nil) != tt.fails || got != [2]bool{tt.want, tt.want} {
			t.Errorf("%s: got %v, valid %v, want %t", tt.name, err, got, tt.want)
		}
		if got := opens(sealed(), s.exposedTask("8")); got != [2]bool{true, true} {
			t.Errorf("%s: a new state and task: valid %v", tt.name, got)
		}
	}
}

// TestResponseTexts checks which parts of a response are rewritten for the client.
func TestResponseTexts(t *testing.T) {
	g, u, _ := partGateway(t, Options{LabelElicitations: true})
	be := backendOf(t, u, "ann")
	const elicitations = `{"jsonrpc":"2.0","id":1,"error":{"code":-32042,"message":"m","data":{"elicitations":%s}}}`
	const result = `{"jsonrpc":"2.0","id":1,"result":%s}`
	for _, tt := range []struct {
		name       string
		era        bridge.Era
		format     string
		frame, out string // "" means the same
	}{
		{"elicitations", bridge.EraLegacy, elicitations, `[{"message":"x","url":"u"},{"message":"y"}]`, `[{"message":"up: x","url":"u"},{"message":"up: y"}]`},
		{"elicitations that are no array", bridge.EraLegacy, elicitations, `{"message":"x"}`, ""},
		{"elicitations for a modern client", bridge.EraModern, elicitations, `[{"message":"x"}]`, ""},
		{"elicitations in a result", bridge.EraLegacy, result, `{"elicitations":[{"message":"x"}]}`, ""},
		{"input requests", bridge.EraModern, result, `{"inputRequests":{"a":{"method":"elicitation/create","params":{"message":"x"}},"b":{"method":"roots/list"}}}`, `{"inputRequests":{"a":{"method":"elicitation/create","params":{"message":"up: x"}},"b":{"method":"roots/list"}}}`},
		{"input requests of another method", bridge.EraModern, result, `{"inputRequests":{"a":{"method":"sampling/createMessage","params":{"message":"x"}}}}`, ""},
		{"input requests that are no object", bridge.EraModern, result, `{"inputRequests":["elicitation/create"]}`, ""},
		{"a state that is no text", bridge.EraModern, result, `{"requestState":7}`, ""},
		{"a state for a legacy client", bridge.EraLegacy, result, `{"requestState":"x"}`, ""},
		{"URIs", bridge.EraModern, result, `{"content":[{"uri":"a:1"},7,{"resource":{"uri":"a:2"}}],"other":{"uri":"a:3"}}`, `{"content":[{"uri":"a:up+1"},7,{"resource":{"uri":"a:up+2"}}],"other":{"uri":"a:3"}}`},
		{"a result that is no object", bridge.EraModern, result, `[{"content":[{"uri":"a:1"}]}]`, ""},
		{"a URI that is no text", bridge.EraModern, result, `{"content":[{"uri":7}]}`, ""},
		{"a page of an app", bridge.EraModern, result, `{"_meta":{"ui":{"resourceUri":"ui://a"},"ui/resourceUri":"ui://a","x":{"uri":"a:1"}}}`, `{"_meta":{"ui":{"resourceUri":"ui://up+a"},"ui/resourceUri":"ui://up+a","x":{"uri":"a:1"}}}`},
		{"the result of a task", bridge.EraModern, result, `{"result":{"content":[{"uri":"a:1"}]}}`, `{"result":{"content":[{"uri":"a:up+1"}]}}`},
		{"a result in the result of a task", bridge.EraModern, result, `{"result":{"result":{"content":[{"uri":"a:1"}]}}}`, ""},
		{"a result of a task that is no object", bridge.EraModern, result, `{"result":["uri"],"content":[]}`, ""},
		{"sampling", bridge.EraModern, result, `{"inputRequests":{"a":{"params":{"messages":[{"content":{"uri":"a:1"}}]}}}}`, `{"inputRequests":{"a":{"params":{"messages":[{"content":{"uri":"a:up+1"}}]}}}}`},
		{"sampling in the result of a task", bridge.EraModern, result, `{"result":{"inputRequests":{"a":{"params":{"content":[{"uri":"a:1"}]}}}}}`, ""},
		{"params that are no object", bridge.EraModern, result, `{"inputRequests":{"a":{"params":["uri"]},"b":{"uri":7}}}`, ""},
		{"structured content", bridge.EraModern, result, `{"structuredContent":{"a":{"params":{"content":[{"uri":"a:1"}]}}}}`, ""},
	} {
		s := g.scope(as(t.Context(), "ann"), be, tt.era)
		if tt.out == "" {
			tt.out = tt.frame
		}
		got := string(s.response(mcp.MethodToolsCall, fmt.Appendf(nil, tt.format, tt.frame)))
		if want := fmt.Sprintf(tt.format, tt.out); got != want {
			t.Errorf("%s: got %s, want %s", tt.name, got, want)
		}
	}
	m := message(`{"jsonrpc":"2.0","method":"x"}`)
	if got := string(frameOf(nil, m)); got != `{"jsonrpc":"2.0","method":"x"}` {
		t.Errorf("frame of a message: got %s", got)
	}
	if got := string(frameOf([]byte("{\n}"), m)); got != "{}" && got != "{ }" {
		t.Errorf("frame: got %q", got)
	}
}

// TestFindApps checks which servers have MCP Apps, and which tools belong to one.
func TestFindApps(t *testing.T) {
	for _, tt := range []struct {
		capabilities, meta, resource string
		apps, app                    bool
	}{
		{`{}`, `{}`, "file:///a", false, false},
		{`{}`, `{"ui":{"resourceUri":"ui://a"}}`, "file:///a", true, true},
		{`{}`, `{"ui/resourceUri":"ui://a"}`, "file:///a", true, true},
		{`{}`, `{"uix":1}`, "file:///a", false, false},
		{`{}`, `{}`, "ui://a", true, false},
		{`{"extensions":{"io.modelcontextprotocol/ui":{}}}`, `{}`, "file:///a", true, false},
		{`{"extensions":{"other":{}}}`, `{}`, "file:///a", false, false},
	} {
		s := newSnapshot()
		s.profile.Capabilities = []byte(tt.capabilities)
		s.lists[KindTool].items = []item{{own: "a", raw: []byte(`{"name":"a","_meta":` + tt.meta + `}`)}}
		s.lists[KindResource].items = []item{{own: tt.resource}}
		s.findApps()
		if got := s.lists[KindTool].items[0].app; s.apps != tt.apps || got != tt.app {
			t.Errorf("%+v: got apps %t, the tool %t", tt, s.apps, got)
		}
	}
}

func TestResultOf(t *testing.T) {
	failed := errors.New("failed")
	for _, tt := range []struct {
		response string
		err      error
		want     string
		fails    string
	}{
		{"", nil, "", ""},
		{"", failed, "", "failed"},
		{`{"jsonrpc":"2.0","id":1,"result":{}}`, failed, "", "failed"},
		{`{"jsonrpc":"2.0","id":1,"result":{"x":1}}`, nil, `{"x":1}`, ""},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":-32099,"message":"no"}}`, nil, "", "no"},
		{`{"jsonrpc":`, nil, "", "JSON"},
	} {
		got, err := resultOf([]byte(tt.response), tt.err)
		if string(got) != tt.want || (err != nil) != (tt.fails != "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
			t.Errorf("%q, %v: got %s, %v", tt.response, tt.err, got, err)
		}
	}
}

// TestNextPage checks that a cursor stays valid, and that the next page begins after the last item
// of the page before, when items before it are removed.
func TestNextPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tools []string
		for i := range maxPageItems + 3 {
			tools = append(tools, fmt.Sprintf("t%05d", i))
		}
		srv := toolServer("many", tools...)
		defer srv.Close(context.Background())
		g := newGateway(t, &Options{Upstreams: []Upstream{streamUpstream("many", srv)}})
		defer g.Close()
		list := func(cursor string) string {
			if cursor != "" {
				cursor = `"cursor":"` + cursor + `",`
			}
			return request(t, t.Context(), g.Stateless(), mcp.MethodToolsList, "{"+cursor+modernMeta+"}")
		}
		first := list("")
		last := fmt.Sprintf("t%05d", strings.Count(first, `"name":"many__`)-1)
		cursor := jsonwire.Text(jsonwire.Lookup([]byte(first), "result", "nextCursor"))
		if cursor == "" {
			t.Fatal("there is one page only")
		}
		rest := func() string {
			var names []string
			second := list(cursor)
			for _, tool := range tools {
				if strings.Contains(second, `"many__`+tool+`"`) {
					names = append(names, tool)
				}
			}
			return strings.Join(names, " ")
		}
		after := func(name string) string {
			i := slices.Index(tools, name)
			return strings.Join(tools[i+1:], " ")
		}
		if got, want := rest(), after(last); got != want {
			t.Errorf("unchanged: got %s, want %s", got, want)
		}
		srv.RemoveTools(tools[0], tools[7])
		time.Sleep(time.Minute)
		list("")
		synctest.Wait()
		if got, want := rest(), after(last); got != want {
			t.Errorf("two items removed: got %s, want %s", got, want)
		}
	})
}

// TestStaleUpstreams checks which upstreams a list names as out of date.
func TestStaleUpstreams(t *testing.T) {
	type up struct{ read, stale, mustLogIn bool }
	for _, tt := range []struct {
		up   up
		view View
		want string
	}{
		{up{true, false, false}, nil, ""},
		{up{true, true, false}, nil, `["up"]`},
		{up{false, false, false}, nil, `["up"]`},
		{up{false, true, true}, nil, ""},
		{up{true, true, true}, nil, `["up"]`},
		{up{true, false, true}, nil, ""},
		{up{true, true, false}, prefixView("up__"), `["up"]`},
		{up{true, true, false}, prefixView("other__"), ""},
		{up{false, false, false}, prefixView("other__"), ""},
	} {
		ix := &index{st: &state{upstreams: []*upstream{{name: "up"}}, opts: Options{Upstreams: []Upstream{{Name: "up"}}}}, stale: []bool{tt.up.stale}, mustLogIn: []bool{tt.up.mustLogIn}, snaps: make([]*snapshot, 1), lists: map[listKey]*visibleList{}}
		if tt.up.read {
			ix.snaps[0] = newSnapshot()
			it := item{own: "a", raw: []byte(`{"name":"a"}`)}
			ix.snaps[0].lists[KindTool].items = []item{it}
			ix.names[KindTool] = map[string]place{"up__a": {0, &ix.snaps[0].lists[KindTool].items[0]}}
		}
		if got := string(ix.staleNames(tt.view)); got != tt.want {
			t.Errorf("%+v, view %v: got %s, want %s", tt.up, tt.view, got, tt.want)
		}
		// A client must not keep a list without the newest items.
		if list := ix.list(KindTool, tt.view); (tt.up.stale || !tt.up.read) && list.ttl != 0 {
			t.Errorf("%+v: the list has the TTL %d", tt.up, list.ttl)
		}
	}
}

// TestServerRequests checks which requests of servers belong to a progress token and to an upstream
// that goes away, and which cancellations a session forwards.
func TestServerRequests(t *testing.T) {
	g, u, _ := partGateway(t, Options{})
	s := g.openSession(t.Context(), senderFunc(discard), nil)
	failed := func() *upstreamSession {
		us := &upstreamSession{s: s, ready: make(chan struct{}), err: errors.New("no server")}
		close(us.ready)
		return us
	}
	one, two := failed(), failed()
	s.upstreams = map[*upstream]*upstreamSession{u: one}
	s.serverRequests = map[string]*serverRequest{
		"1": {from: one, token: jsonrpc.ID(`"t"`)}, "2": {from: one}, "3": {from: two, token: jsonrpc.ID(`"u"`)}, "4": {from: two, token: jsonrpc.ID(`7`)},
	}
	for token, want := range map[string]*upstreamSession{`"t"`: one, `"u"`: two, `7`: two, `"7"`: nil, `"v"`: nil, ``: nil} {
		found := s.upstreamsWithToken(jsonrpc.ID(token))
		if len(found) > 1 || found[want] != (want != nil) || len(found) > 0 && want == nil {
			t.Errorf("token %s: got %d upstreams", token, len(found))
		}
	}
	if got := s.cancelCall(t.Context(), nil, message(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)); got {
		t.Error("the cancellation of an unknown call was forwarded")
	}
	pending := &upstreamSession{ready: make(chan struct{})}
	if pending.isReady() || !one.isReady() {
		t.Error("a session without a handshake is ready, or one with a failed handshake is not")
	}
	pending.close() // has no peer yet
	s.forget(u)     // closes one, which has no peer
	if len(s.serverRequests) != 2 || s.serverRequests["3"] == nil || len(s.upstreams) != 0 {
		t.Errorf("after the upstream is gone: got %d requests and %d upstreams, want 2 and 0", len(s.serverRequests), len(s.upstreams))
	}
	s.forget(u)
	s.serverRequests = nil
}

// TestLoginChanged checks which connections end with a login.
func TestLoginChanged(t *testing.T) {
	for _, tt := range []struct {
		name, upstream, user string
		at                   time.Duration
		want                 []string
	}{
		{"a login", "up", "ann", time.Hour, []string{"bob"}},
		{"an older login", "up", "ann", -time.Hour, []string{"ann", "bob"}},
		{"another user", "up", "carol", time.Hour, []string{"ann", "bob"}},
		{"another upstream", "other", "ann", time.Hour, []string{"ann", "bob"}},
	} {
		g, u, _ := partGateway(t, Options{})
		backendOf(t, u, "ann")
		backendOf(t, u, "bob")
		g.LoginChanged(tt.upstream, time.Now().Add(tt.at), func(ctx context.Context) bool { return u.keyOf(ctx) == u.keyOf(as(t.Context(), tt.user)) })
		if diff := cmp.Diff(tt.want, users(u)); diff != "" {
			t.Errorf("%s: users with connections (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestEvict checks that only a connection of a principal that nobody uses is closed for another one.
func TestEvict(t *testing.T) {
	_, u, _ := partGateway(t, Options{})
	evict := func() bool {
		u.mu.Lock()
		defer u.mu.Unlock()
		return u.evictIdleLocked()
	}
	shared, err := u.newBackend(t.Context(), "")
	must(err)
	u.backends[""] = shared
	used, err := u.acquire(as(t.Context(), "ann"))
	must(err)
	if evict() || len(u.backends) != 2 {
		t.Errorf("evicted a connection that is in use or belongs to all: %d are left", len(u.backends))
	}
	backendOf(t, u, "bob")
	if !evict() || len(u.backends) != 2 || u.backends[used.principal] != used || u.backends[""] != shared {
		t.Errorf("bob's idle connection was not evicted: %d are left", len(u.backends))
	}
	used.release()
}

// A refusingLogin is a login whose upstream has refused a request.
type refusingLogin struct {
	*fakeLogin
	refused bool
}

func (l refusingLogin) Refused(context.Context) bool { return l.refused }

// TestAfterLogin checks which failed calls lead to another login.
func TestAfterLogin(t *testing.T) {
	const ok, failed = `{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}`
	lost := errors.New("connection lost")
	for _, tt := range []struct {
		name              string
		none, in, refused bool
		response          string
		err               error
		canceled          bool
		want              bool
	}{
		{"no login", true, false, false, failed, nil, false, false},
		{"a result", false, false, true, ok, nil, false, false},
		{"an error", false, false, false, failed, nil, false, true},
		{"a lost connection", false, false, false, "", lost, false, true},
		{"a canceled call", false, false, false, "", lost, true, false},
		{"an error of a caller who is logged in", false, true, false, failed, nil, false, false},
		{"an error that needs more", false, true, true, failed, nil, false, true},
	} {
		g, u, _ := partGateway(t, Options{})
		login := newFakeLogin()
		login.in = tt.in
		if !tt.none {
			conf := *u.conf.Load()
			conf.Login = refusingLogin{login, tt.refused}
			u.conf.Store(&conf)
		}
		ctx, cancel := context.WithCancel(as(t.Context(), "ann"))
		if tt.canceled {
			cancel()
		}
		err := g.afterLogin(ctx, u, []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`), []byte(tt.response), tt.err)
		cancel()
		e, got := errors.AsType[*loginError](err)
		if got != tt.want || !got && err != nil || got && (e.page != login.page || e.final) {
			t.Errorf("%s: got %v, want a login %t", tt.name, err, tt.want)
		}
	}
}

// TestAnswerLogin checks the form in which a client learns that it must log in.
func TestAnswerLogin(t *testing.T) {
	g, _, _ := partGateway(t, Options{})
	const round, required, toolText, plain = `"resultType":"input_required"`, `"code":-32042`, `"isError":true`, `"reason":"login required"`
	for _, tt := range []struct {
		name   string
		era    bridge.Era
		byURL  bool
		final  bool
		method string
		params string
		want   string
	}{
		{"modern", bridge.EraModern, true, false, mcp.MethodToolsCall, `{}`, round},
		{"modern prompt", bridge.EraModern, true, false, mcp.MethodPromptsGet, `{}`, round},
		{"modern, in an input round", bridge.EraModern, true, true, mcp.MethodToolsCall, `{}`, toolText},
		{"modern, of another method", bridge.EraModern, true, false, mcp.MethodComplete, `{}`, plain},
		{"modern, without pages", bridge.EraModern, false, false, mcp.MethodToolsCall, `{}`, toolText},
		{"modern prompt, without pages", bridge.EraModern, false, false, mcp.MethodPromptsGet, `{}`, plain},
		{"legacy", bridge.EraLegacy, true, false, mcp.MethodToolsCall, `{}`, required},
		{"legacy prompt", bridge.EraLegacy, true, false, mcp.MethodPromptsGet, `{}`, required},
		{"legacy, without pages", bridge.EraLegacy, false, false, mcp.MethodToolsCall, `{}`, toolText},
		{"legacy task, without pages", bridge.EraLegacy, false, false, mcp.MethodToolsCall, `{"task":{}}`, plain},
	} {
		m := message(`{"jsonrpc":"2.0","id":1,"method":"` + tt.method + `","params":` + tt.params + `}`)
		got, err := g.answerLogin(nil, tt.era, tt.byURL, m, &loginError{upstream: "up", page: newFakeLogin().page, final: tt.final})
		if err != nil || !strings.Contains(string(got), tt.want) || !strings.Contains(string(got), "https://gw.example.com/login/1") {
			t.Errorf("%s: got %s, %v, want %s", tt.name, got, err, tt.want)
		}
	}
}

// TestAnnounceLogin checks for which pages a session waits, and which clients can show them.
func TestAnnounceLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _, _ := partGateway(t, Options{})
		var sent []string
		s := g.openSession(t.Context(), senderFunc(func(b []byte) error { sent = append(sent, string(b)); return nil }), nil)
		for params, want := range map[string]bool{
			`{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{"url":{}}}}`:  true,
			`{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{"form":{}}}}`: false,
			`{"protocolVersion":"2025-06-18","capabilities":{"elicitation":{"url":{}}}}`:  false,
			`{"protocolVersion":"1999-01-01","capabilities":{"elicitation":{"url":{}}}}`:  false,
			`{}`: false,
		} {
			s.params = []byte(params)
			if got := s.showsPages(); got != want {
				t.Errorf("%s: shows pages %t, want %t", params, got, want)
			}
		}
		page := func(i int) *LoginPage {
			p := *newFakeLogin().page
			p.ID = fmt.Sprint(i)
			return &p
		}
		login := newFakeLogin()
		login.page.ID = "0"
		s.announceLogin(login.page)
		s.announceLogin(login.page)
		for i := range maxLoginWaits + 5 {
			s.announceLogin(page(i))
		}
		if len(s.logins) != maxLoginWaits {
			t.Errorf("waits for %d pages, want %d", len(s.logins), maxLoginWaits)
		}
		close(login.done)
		synctest.Wait()
		if want := []string{`{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"0"}}`}; !slices.Equal(sent, want) {
			t.Errorf("sent %q, want %q", sent, want)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if len(s.logins) != 0 || len(sent) != 1 {
			t.Errorf("after the expiry: waits for %d pages, has sent %q", len(s.logins), sent)
		}
		other := g.openSession(t.Context(), senderFunc(discard), nil)
		s.Close()
		s.announceLogin(page(1))
		g.Close() // and no goroutine can be started from here on
		other.closed = false
		other.announceLogin(page(1))
		if len(s.logins)+len(other.logins) != 0 {
			t.Error("waits for a page after Close")
		}
	})
}

// TestNameLog checks that the log has each hidden or unusual name once, up to a limit.
func TestNameLog(t *testing.T) {
	var log bytes.Buffer
	ix := &index{st: &state{opts: Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}}, hiddenNames: []string{"a", "b", "a"}, refusedNames: []string{"a", "c d"}}
	var c indexCache
	c.logNamesLocked(ix)
	c.logNamesLocked(ix)
	if hidden, refused := strings.Count(log.String(), "is hidden"), strings.Count(log.String(), "may refuse"); hidden != 2 || refused != 2 {
		t.Errorf("got %d hidden and %d unusual names, want 2 and 2", hidden, refused)
	}
	ix.hiddenNames, ix.refusedNames = nil, nil
	for i := range maxLogged {
		ix.hiddenNames, ix.refusedNames = append(ix.hiddenNames, fmt.Sprint("h", i)), append(ix.refusedNames, fmt.Sprint("r", i))
	}
	c.logNamesLocked(ix)
	if got := strings.Count(log.String(), "\n"); got != maxLogged || len(c.logged) != maxLogged {
		t.Errorf("got %d lines, %d names, want %d", got, len(c.logged), maxLogged)
	}
}

// TestHiddenNames checks that a tool whose name is taken is hidden, and that the log and the status
// say so.
func TestHiddenNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		long := strings.Repeat("c", 70)
		u := streamUpstream("up", toolServer("up", "a", "b", long))
		u.Rename = map[string]string{"a": "x", "b": "x"}
		g, err := New(&Options{Upstreams: []Upstream{u, streamUpstream("two", toolServer("two", "a"))}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		must(err)
		defer g.Close()
		c := dialStream(t, g, client.Options{Revisions: []mcp.Revision{mcp.LatestRevision}})
		defer c.Close()
		if got, want := toolNames(t, c), "x up__"+long+" two__a"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if _, err := c.CallTool(t.Context(), "two__log_in", nil); !client.IsServerError(err) || !strings.Contains(err.Error(), "unknown tool") {
			t.Errorf("log_in of an upstream without logins: got %v", err)
		}
		text := log.String()
		if strings.Count(text, "an item is hidden") != 1 || strings.Count(text, "APIs of models may refuse") != 1 {
			t.Errorf("the log has %s", text)
		}
		for i, want := range []int{1, 0} {
			if got := g.Upstreams()[i].Catalogs["modern"].Duplicates; got != want {
				t.Errorf("upstream %d: got %d duplicates, want %d", i, got, want)
			}
		}
	})
}

// TestTooSlow checks that only a read that goes on is too slow, once.
func TestTooSlow(t *testing.T) {
	g, u, _ := partGateway(t, Options{})
	c := backendOf(t, u, "ann").catalogs[0]
	before := g.generation.Load()
	c.tooSlow()
	if c.err != nil || g.generation.Load() != before {
		t.Errorf("without a read: got %v", c.err)
	}
	c.loading = make(chan struct{})
	c.tooSlow()
	c.tooSlow()
	if c.err == nil || g.generation.Load() != before+1 {
		t.Errorf("with a read: got %v, %d changes, want 1", c.err, g.generation.Load()-before)
	}
	c.loading = nil
}

// TestCatalogFinished checks when a catalog is read again, and what the log has of failures.
func TestCatalogFinished(t *testing.T) {
	failed := errors.New("no lists")
	for _, tt := range []struct {
		name          string
		err           error
		dirty, closed bool
		again         bool
		logged        bool
	}{
		{"read", nil, false, false, false, false},
		{"changed meanwhile", nil, true, false, true, false},
		{"failed", failed, false, false, false, true},
		{"failed and changed", failed, true, false, false, true},
		{"closed", nil, true, true, false, false},
		{"failed after Close", failed, false, true, false, false},
	} {
		_, u, log := partGateway(t, Options{})
		c := backendOf(t, u, "ann").catalogs[0]
		c.mu.Lock()
		c.loading, c.dirty, c.closed = make(chan struct{}), tt.dirty, tt.closed
		c.mu.Unlock()
		var snap *snapshot
		if tt.err == nil {
			snap = newSnapshot()
		}
		got := c.finished(snap, tt.err)
		c.mu.Lock()
		ended := c.loading == nil
		c.loading, c.dirty = nil, false
		c.mu.Unlock()
		if got != tt.again || ended == tt.again {
			t.Errorf("%s: again %t, read ended %t", tt.name, got, ended)
		}
		if logged := strings.Contains(log.String(), "the lists of an upstream could not be read"); logged != tt.logged {
			t.Errorf("%s: the log has %q", tt.name, log)
		}
	}
}

// TestStatus checks the state, the eras and the metrics of an upstream.
func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		slow := fullServer("slow", mcp.LatestLegacyRevision)
		defer slow.Close(context.Background())
		must(server.AddTool(slow, "wait", "", func(context.Context, none) (string, error) {
			<-release
			return "", nil
		}))
		modern := fullServer("modern", mcp.LatestRevision)
		defer modern.Close(context.Background())
		broken := streamUpstream("broken", nil)
		broken.Bridge.Connect = func(context.Context, io.Writer) (jsonrpc.Framer, error) { return nil, errors.New("no such program") }
		ups := []Upstream{streamUpstream("slow", slow), streamUpstream("modern", modern), broken, streamUpstream("idle", toolServer("idle", "a"))}
		g := newGateway(t, &Options{Upstreams: ups})
		defer g.Close()
		check := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for _, s := range g.Upstreams() {
				got = append(got, fmt.Sprintf("%s %s %v %t", s.Name, s.State, s.Eras, strings.Contains(s.LastError, "no such program")))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: states (-want +got):\n%s", when, diff)
			}
		}
		check("at first", "slow idle [] false", "modern idle [] false", "broken idle [] false", "idle idle [] false")
		p := g.Stateless()
		done := make(chan string)
		go func() {
			done <- request(t, t.Context(), p, mcp.MethodToolsCall, `{"name":"slow__wait",`+modernMeta+"}")
		}()
		request(t, t.Context(), p, mcp.MethodToolsCall, `{"name":"modern__who",`+modernMeta+"}")
		request(t, t.Context(), p, mcp.MethodToolsCall, `{"name":"broken__a",`+modernMeta+"}")
		synctest.Wait()
		states := map[string]string{}
		for _, s := range g.Upstreams() {
			states[s.Name] = fmt.Sprint(s.State, s.Eras)
		}
		if diff := cmp.Diff(map[string]string{"slow": "up[legacy]", "modern": "up[modern]", "broken": "down[]"}, map[string]string{"slow": states["slow"], "modern": states["modern"], "broken": states["broken"]}); diff != "" {
			t.Errorf("after calls: states (-want +got):\n%s", diff)
		}
		metric := func(name string) string {
			line := metricPrefix + name
			_, rest, ok := strings.Cut(string(g.appendMetrics(nil)), "\n"+line+" ")
			if !ok {
				return "none"
			}
			value, _, _ := strings.Cut(rest, "\n")
			return value
		}
		got := []string{metric(`upstream_up{upstream="slow"}`), metric(`upstream_up{upstream="broken"}`), metric(`upstream_requests_in_flight{upstream="slow"}`), metric("sessions")}
		if diff := cmp.Diff([]string{"1", "0", "1", "0"}, got); diff != "" {
			t.Errorf("metrics (-want +got):\n%s", diff)
		}
		if err := g.Apply(&Options{Upstreams: ups[1:2], DrainTimeout: time.Hour}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		check("draining", "modern up [modern] false", "slow draining [legacy] false")
		if got := []string{metric(`upstream_up{upstream="slow"}`), metric(`upstream_up{upstream="modern"}`)}; got[0] != "none" || got[1] != "1" {
			t.Errorf("metrics of a draining and another upstream: got %q", got)
		}
		close(release)
		<-done
		synctest.Wait()
		check("drained", "modern up [modern] false")
	})
}

// TestCancelModern checks that the cancellation of a modern client on a stream reaches the server's
// handler, and that other notifications do not.
func TestCancelModern(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		canceled := make(chan struct{})
		srv := toolServer("up")
		must(server.AddTool(srv, "wait", "", func(ctx context.Context, _ none) (string, error) {
			<-ctx.Done()
			close(canceled)
			return "", ctx.Err()
		}))
		g := newGateway(t, &Options{Upstreams: []Upstream{streamUpstream("up", srv)}})
		defer g.Close()
		ours, theirs := net.Pipe()
		go g.Serve(context.Background(), jsonrpc.NewFramer(theirs, nil))
		f := jsonrpc.NewFramer(ours, nil)
		defer f.Close()
		write := func(frame string) {
			t.Helper()
			must(f.WriteFrame([]byte(frame)))
			synctest.Wait()
		}
		isCanceled := func() bool {
			select {
			case <-canceled:
				return true
			default:
				return false
			}
		}
		write(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up__wait",` + modernMeta + `}}`)
		time.Sleep(time.Minute)
		write(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"requestId":1,"progressToken":1,"progress":1,` + modernMeta + `}}`)
		write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		if isCanceled() {
			t.Error("the call is canceled by another notification")
		}
		write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		time.Sleep(time.Second)
		if !isCanceled() {
			t.Error("the call is not canceled")
		}
	})
}

// TestWaitingNotifications checks that the notifications before an acknowledgment are bounded.
func TestWaitingNotifications(t *testing.T) {
	sub := new(subscription)
	for range maxWaiting + 1 {
		if err := sub.send([]byte(`{}`), bridge.Provenance{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(sub.waiting); got != maxWaiting {
		t.Errorf("%d notifications wait, want %d", got, maxWaiting)
	}
}
