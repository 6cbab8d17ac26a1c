package streamable_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/middleware"
	"mcpwire/server"
	"mcpwire/streamable"
)

// newStateKeys returns keys that the servers of a test share.
func newStateKeys(t *testing.T) *server.StateKeys {
	t.Helper()
	keys, err := server.NewStateKeys([]byte("0123456789abcdef0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// TestSealedSession shows that any process with the same keys serves a session, also after all
// processes have restarted. It is unknown to other principals, and to everyone once it has changed
// or ended.
func TestSealedSession(t *testing.T) {
	keys := newStateKeys(t)
	o := &streamable.Options{Guard: serverHandler(t, time.Time{})}
	start := func() *endpoint { return newEndpoint(t, &server.Options{StateKeys: keys}, o) }
	first, second := start(), start()
	for _, version := range legacyVersions {
		v := first.visit(version, "{}", as(tokenAlice))
		id := v.headers["Mcp-Session-Id"]
		if !strings.Contains(id, ".") {
			t.Errorf("%s: id %q", version, id)
		}
		w := &legacySession{second, v.headers}
		for _, at := range []*legacySession{w, v, w, v} {
			if got := at.post(request(1, "tools/call", `{"name":"echo","arguments":{"text":"x"}}`)); got.status != 200 || !strings.Contains(got.body, `"text":"x"`) {
				t.Errorf("%s: %d %s", version, got.status, got.body)
			}
		}
		if err := first.h.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		first = start()
		v = &legacySession{first, v.headers}
		if got := v.post(request(1, "ping", "{}")); got.status != 200 {
			t.Errorf("%s: after a restart: %d %s", version, got.status, got.body)
		}
		raw, err := base64.RawURLEncoding.DecodeString(id[27:])
		if err != nil {
			t.Fatal(err)
		}
		raw[len(raw)-20] ^= 1
		forged := id[:27] + base64.RawURLEncoding.EncodeToString(raw)
		third := start() // has no session in memory
		for _, e := range []*endpoint{second, third} {
			for what, headers := range map[string]map[string]string{
				"forged":      with(v.headers, "Mcp-Session-Id", forged),
				"foreign":     with(v.headers, "Authorization", "Bearer "+tokenBob),
				"the key":     with(v.headers, "Mcp-Session-Id", id[:26]),
				"another key": with(v.headers, "Mcp-Session-Id", strings.Repeat("A", 26)+id[26:]),
				"long":        with(v.headers, "Mcp-Session-Id", id+strings.Repeat("A", 1024)),
			} {
				got := (&legacySession{e, headers}).post(request(1, "ping", "{}"))
				if got.status != 404 || !strings.Contains(got.body, "session not found") {
					t.Errorf("%s: %s: %d %s", version, what, got.status, got.body)
				}
			}
		}
		if got := w.do("DELETE", "", w.headers); got.status != 204 {
			t.Errorf("%s: DELETE: %d %s", version, got.status, got.body)
		}
		if got := w.post(request(1, "ping", "{}")); got.status != 404 {
			t.Errorf("%s: a session that has ended: %d %s", version, got.status, got.body)
		}
	}
}

// TestInitializedElsewhere shows that a process serves a client whose notifications/initialized
// another process got.
func TestInitializedElsewhere(t *testing.T) {
	keys := newStateKeys(t)
	start := func() *endpoint { return newEndpoint(t, &server.Options{StateKeys: keys}, nil) }
	first, second := start(), start()
	for _, version := range legacyVersions {
		got := first.do("POST", initialize(version, "{}"), nil)
		headers := map[string]string{"Mcp-Session-Id": got.header.Get("Mcp-Session-Id"), "Mcp-Protocol-Version": version}
		v, w := &legacySession{first, headers}, &legacySession{second, headers}
		if got := w.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`); got.status != 202 {
			t.Errorf("%s: %d %s", version, got.status, got.body)
		}
		for _, at := range []*legacySession{v, w} {
			if got := at.post(request(1, "tools/call", `{"name":"echo","arguments":{"text":"x"}}`)); got.status != 200 || !strings.Contains(got.body, `"text":"x"`) {
				t.Errorf("%s: %d %s", version, got.status, got.body)
			}
		}
	}
}

// TestSealedSessionTooLong shows that a session whose id would be too long is not sealed, and needs
// a store.
func TestSealedSessionTooLong(t *testing.T) {
	keys := newStateKeys(t)
	store := streamable.NewMemorySessions()
	var noise strings.Builder
	for i := range 200 {
		noise.WriteString(base64.RawStdEncoding.EncodeToString([]byte{byte(i * 37), byte(i * 101), byte(i * 59), byte(i * i), byte(i), byte(i * 7)}))
	}
	capabilities := `{"experimental":{"noise":{"x":"` + noise.String() + `"}}}`
	for _, tt := range []struct {
		store streamable.SessionStore
		want  int
	}{{nil, 404}, {store, 200}} {
		o := &streamable.Options{Sessions: tt.store}
		first, second := newEndpoint(t, &server.Options{StateKeys: keys}, o), newEndpoint(t, &server.Options{StateKeys: keys}, o)
		v := first.visit("2025-11-25", capabilities, nil)
		if id := v.headers["Mcp-Session-Id"]; len(id) != 26 {
			t.Errorf("id %q", id)
		}
		if got := (&legacySession{second, v.headers}).post(request(1, "ping", "{}")); got.status != tt.want {
			t.Errorf("store %v: %d %s, want %d", tt.store != nil, got.status, got.body, tt.want)
		}
		if got := v.post(request(1, "ping", "{}")); got.status != 200 {
			t.Errorf("store %v: %d %s", tt.store != nil, got.status, got.body)
		}
	}
}

// TestSealedSessionLifetime shows that a sealed session survives the idle timeout, and ends with
// its lifetime even while it is used.
func TestSealedSessionLifetime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := server.MustNew("test", "1", &server.Options{StateKeys: newStateKeys(t)})
		addTools(t, srv)
		h := streamable.MustHandler(srv, &streamable.Options{Timeouts: streamable.Timeouts{Lifetime: 3 * time.Hour}})
		inBubbleWith(t, srv, h, func(e *endpoint) {
			v := e.visit("2025-11-25", "{}", nil)
			for i := range 2 {
				advance(time.Hour)
				if n := h.Stats().Sessions; n != 0 {
					t.Errorf("after %d idle hours there are %d sessions", i+1, n)
				}
				if got := v.post(request(1, "ping", "{}")); got.status != 200 {
					t.Errorf("after %d idle hours: %d %s", i+1, got.status, got.body)
				}
			}
			f := v.listen("")
			go func() {
				for {
					if _, data := f.next(); data == "EOF" {
						return
					}
				}
			}()
			advance(time.Hour + time.Second)
			if got := v.post(request(1, "ping", "{}")); got.status != 404 {
				t.Errorf("after its lifetime: %d %s", got.status, got.body)
			}
			advance(20 * time.Minute)
			if n := h.Stats().Sessions; n != 0 {
				t.Errorf("%d sessions are left", n)
			}
		})
	})
}

// inBubbleWithAll is inBubbleWith for several handlers, which start creates.
func inBubbleWithAll(t *testing.T, n int, start func(t *testing.T) (*server.Server, *streamable.Handler), test func(all []*endpoint)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var serve func(all []*endpoint)
		serve = func(all []*endpoint) {
			if len(all) == n {
				test(all)
				return
			}
			srv, h := start(t)
			inBubbleWith(t, srv, h, func(e *endpoint) { serve(append(all, e)) })
		}
		serve(nil)
	})
}

// TestSharedState shows that the settings of a client at one process apply at the others, both at
// those that have the session and at those that load it later. A DELETE at one process ends it at
// all.
func TestSharedState(t *testing.T) {
	keys := newStateKeys(t)
	for name, so := range map[string]*server.Options{"sealed": {StateKeys: keys}, "stored": nil} {
		for _, watched := range []bool{true, false} {
			var store streamable.SessionStore = streamable.NewMemorySessions()
			if !watched {
				store = struct{ streamable.SessionStore }{store}
			}
			start := func(t *testing.T) (*server.Server, *streamable.Handler) {
				srv := server.MustNew("test", "1", so)
				addTools(t, srv)
				err := errors.Join(
					server.AddResource(srv, mcp.Resource{URI: "file:///a", Name: "a"}, server.Static("text")),
					server.AddTool(srv, "log", "", func(ctx context.Context, _ struct{}) (string, error) {
						return "", server.CallOf(ctx).Log(mcp.LevelInfo, "", "told")
					}))
				if err != nil {
					t.Fatal(err)
				}
				return srv, streamable.MustHandler(srv, &streamable.Options{Sessions: store})
			}
			inBubbleWithAll(t, 4, start, func(all []*endpoint) {
				testSharedState(t, name, watched, all)
			})
		}
	}
}

func testSharedState(t *testing.T, name string, watched bool, all []*endpoint) {
	first, second, third, fourth := all[0], all[1], all[2], all[3]
	v := first.visit("2025-11-25", "{}", nil)
	at := func(e *endpoint) *legacySession { return &legacySession{e, v.headers} }
	told := func(e *endpoint) bool {
		got := at(e).post(request(1, "tools/call", `{"name":"log"}`))
		if got.status != 200 {
			t.Fatalf("%s: %d %s", name, got.status, got.body)
		}
		return strings.Contains(got.body, "told")
	}
	set := func(e *endpoint, method, params string) {
		t.Helper()
		if got := at(e).post(request(7, method, params)); got.status != 200 || strings.Contains(got.body, "error") {
			t.Fatalf("%s: %s: %d %s", name, method, got.status, got.body)
		}
		synctest.Wait()
	}
	if !told(first) || !told(second) {
		t.Errorf("%s: nothing is logged", name)
	}
	set(first, "logging/setLevel", `{"level":"error"}`)
	if told(second) == watched {
		t.Errorf("%s: watched %v: the level has an effect elsewhere: %v", name, watched, !watched)
	}
	set(second, "resources/subscribe", `{"uri":"file:///a"}`)
	for i, e := range all[:3] {
		if told(e) {
			t.Errorf("%s: watched %v: the level has no effect at process %d", name, watched, i)
		}
		if i == 0 && !watched {
			continue // this process gets the subscription later
		}
		news := at(e).listen("")
		synctest.Wait()
		e.srv.ResourceUpdated("file:///a")
		news.next() // an event without data
		if _, data := news.next(); !strings.Contains(data, "resources/updated") {
			t.Errorf("%s: watched %v: process %d has no subscription: %s", name, watched, i, data)
		}
		news.resp.Body.Close()
	}
	set(third, "resources/unsubscribe", `{"uri":"file:///a"}`)
	if got := at(second).do("DELETE", "", v.headers); got.status != 204 {
		t.Errorf("%s: DELETE: %d %s", name, got.status, got.body)
	}
	synctest.Wait()
	for i, e := range []*endpoint{first, second, third, fourth} {
		want := 404
		if !watched && (e == first || e == third) {
			want = 200 // this process learns of the end later
		}
		if got := at(e).post(request(1, "ping", "{}")).status; got != want {
			t.Errorf("%s: watched %v: process %d after the DELETE: %d, want %d", name, watched, i, got, want)
		}
	}
}

// TestSharedStateUnwatched shows that without a watcher a process reads the record of a session
// when it renews it in the store.
func TestSharedStateUnwatched(t *testing.T) {
	memory := streamable.NewMemorySessions()
	var level atomic.Value
	synctest.Test(t, func(t *testing.T) {
		srv := server.MustNew("test", "1", nil)
		addTools(t, srv)
		srv.Use(func(next middleware.Handler) middleware.Handler {
			return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
				if m.Method == mcp.MethodSetLevel {
					level.Store(string(m.Params))
				}
				return next(ctx, m)
			}
		})
		h := streamable.MustHandler(srv, &streamable.Options{Sessions: struct{ streamable.SessionStore }{memory}})
		inBubbleWith(t, srv, h, func(e *endpoint) {
			v := e.visit("2025-11-25", "{}", nil)
			change := func(f func(*streamable.SavedSession)) {
				if err := memory.Update(t.Context(), v.headers["Mcp-Session-Id"], f); err != nil {
					t.Fatal(err)
				}
			}
			change(func(s *streamable.SavedSession) { s.LogLevel, s.Version = "error", s.Version+1 })
			use := func() int {
				for range 3 {
					advance(4 * time.Minute)
					v.post(request(1, "ping", "{}"))
				}
				return v.post(request(1, "ping", "{}")).status
			}
			if got := use(); got != http.StatusOK || level.Load() != `{"level":"error"}` {
				t.Errorf("status %d, level %v", got, level.Load())
			}
			change(func(s *streamable.SavedSession) { *s = streamable.SavedSession{Version: s.Version + 1, Ended: true} })
			if got := use(); got != http.StatusNotFound {
				t.Errorf("a session that was ended elsewhere: %d", got)
			}
		})
	})
}

// TestStateNotStored shows that a change that cannot be stored for other processes returns an
// error.
func TestStateNotStored(t *testing.T) {
	store := newFaultyStore()
	inBubble(t, false, &streamable.Options{Sessions: store}, func(e *endpoint) {
		v := e.visit("2025-11-25", "{}", nil)
		store.fails.Store(true)
		got := v.post(request(1, "logging/setLevel", `{"level":"error"}`))
		if got.status != 200 || !strings.Contains(got.body, "could not be stored") || !strings.Contains(got.body, "-32603") {
			e.t.Errorf("%d %s", got.status, got.body)
		}
		if got := v.post(request(1, "logging/setLevel", `{"level":"nonsense"}`)); !strings.Contains(got.body, "-32602") {
			e.t.Errorf("a rejected request: %d %s", got.status, got.body)
		}
		store.fails.Store(false)
		if got := v.post(request(1, "logging/setLevel", `{"level":"error"}`)); got.status != 200 || strings.Contains(got.body, "error") {
			e.t.Errorf("%d %s", got.status, got.body)
		}
		saved, err := store.sessions.Load(e.t.Context(), v.headers["Mcp-Session-Id"])
		if err != nil || saved.LogLevel != "error" {
			e.t.Errorf("saved %+v, %v", saved, err)
		}
		if err := store.sessions.Update(e.t.Context(), v.headers["Mcp-Session-Id"], func(s *streamable.SavedSession) { s.Ended = true }); err != nil {
			e.t.Fatal(err)
		}
		if got := v.post(request(1, "logging/setLevel", `{"level":"info"}`)); !strings.Contains(got.body, "has ended") {
			e.t.Errorf("%d %s", got.status, got.body)
		}
		if got := v.post(request(1, "ping", "{}")); got.status != 404 {
			e.t.Errorf("a session that has ended: %d %s", got.status, got.body)
		}
	})
}

// TestRoundRobin shows that a client behind a load balancer without session affinity sees one
// server, in each era.
func TestRoundRobin(t *testing.T) {
	keys := newStateKeys(t)
	var nodes []*endpoint
	for range 3 {
		nodes = append(nodes, newEndpoint(t, &server.Options{StateKeys: keys, Limits: server.Limits{PageSize: 2}}, nil))
	}
	var turn atomic.Uint32
	var served [3]atomic.Uint32
	balancer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i := turn.Add(1) % 3
		served[i].Add(1)
		nodes[i].h.ServeHTTP(w, r)
	}))
	defer balancer.Close()
	for _, revision := range []mcp.Revision{mcp.Revision20250326, mcp.Revision20250618, mcp.Revision20251125, mcp.Revision20260728} {
		c, err := client.Dial(t.Context(), streamable.NewTransport(balancer.URL, nil), &client.Options{Revisions: []mcp.Revision{revision}})
		if err != nil {
			t.Fatalf("%v: %v", revision, err)
		}
		tools := 0
		for _, err := range c.Tools(t.Context()) { // in pages of two
			if err != nil {
				t.Errorf("%v: %v", revision, err)
			}
			tools++
		}
		if tools < 5 {
			t.Errorf("%v: %d tools", revision, tools)
		}
		for i := range 30 {
			text := strconv.Itoa(i)
			result, err := c.CallTool(t.Context(), "echo", map[string]any{"text": text})
			if err != nil {
				t.Errorf("%v: %v", revision, err)
			} else if got, ok := result.Content[0].(mcp.TextContent); !ok || got.Text != text {
				t.Errorf("%v: %+v", revision, result.Content)
			}
		}
		if err := c.Close(); err != nil {
			t.Errorf("%v: %v", revision, err)
		}
	}
	for i := range served {
		if n := served[i].Load(); n < 40 {
			t.Errorf("process %d had %d requests", i, n)
		}
	}
}
