package streamable_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/streamable"
)

type headerKey struct{}

// TestRequestValues shows that the values of an HTTP request's context reach handlers and views, and
// which requests belong to the same session.
func TestRequestValues(t *testing.T) {
	keys := newStateKeys(t)
	start := func() *endpoint {
		srv := server.MustNew("test", "1", &server.Options{StateKeys: keys, View: func(ctx context.Context, _ string) *server.View {
			if ctx.Value(headerKey{}) == "hide" && server.CallOf(ctx).Method() == "tools/call" {
				return server.NewView(func(server.Kind, string) bool { return false })
			}
			return nil
		}})
		err := server.AddTool(srv, "who", "", func(ctx context.Context, _ struct{}) (string, error) {
			return ctx.Value(headerKey{}).(string) + "/" + server.CallOf(ctx).Session(), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		e := &endpoint{t: t, srv: srv, h: streamable.MustHandler(srv, nil)}
		e.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			e.h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), headerKey{}, r.Header.Get("X-Value"))))
		}))
		t.Cleanup(func() { e.h.Shutdown(context.Background()) })
		return e
	}
	text := func(got answer) string {
		t.Helper()
		var m struct {
			Result struct{ Content []struct{ Text string } }
		}
		if err := json.Unmarshal([]byte(got.body), &m); err != nil || len(m.Result.Content) != 1 {
			t.Fatalf("%d %s", got.status, got.body)
		}
		return m.Result.Content[0].Text
	}
	e, other := start(), start()
	body, headers := callPost(1, "who", "{}")
	if got := text(e.do("POST", body, with(headers, "X-Value", "a"))); got != "a/" {
		t.Errorf("modern: %q", got)
	}
	if got := e.do("POST", body, with(headers, "X-Value", "hide")); !strings.Contains(got.body, "unknown tool") {
		t.Errorf("hidden: %s", got.body)
	}
	call := func(v *legacySession, value string) string {
		t.Helper()
		got := text(v.do("POST", request(1, "tools/call", `{"name":"who"}`), with(v.headers, "X-Value", value)))
		session, ok := strings.CutPrefix(got, value+"/")
		if !ok || session == "" || strings.Contains(v.headers["Mcp-Session-Id"], session) {
			t.Errorf("legacy: %q in session %s", got, v.headers["Mcp-Session-Id"])
		}
		return session
	}
	v, w := e.visit("2025-06-18", "{}", nil), e.visit("2025-06-18", "{}", nil)
	one := call(v, "b")
	if again, elsewhere, second := call(v, "c"), call(&legacySession{other, v.headers}, "d"), call(w, "e"); one != again || one != elsewhere || one == second {
		t.Errorf("sessions %s, %s, %s at another process, and %s of another client", one, again, elsewhere, second)
	}

	// Only the session that is named is notified.
	f, g := v.listen(""), w.listen("")
	e.srv.ListsChanged(one)
	f.want(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	e.srv.ListsChanged(call(w, "x"))
	g.want(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	e.srv.ListsChanged()
	f.want(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	g.want(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	err := server.AddPrompt(e.srv, mcp.Prompt{Name: "p"}, func(context.Context, struct{}) (string, error) { return "", nil })
	if err != nil {
		t.Fatal(err)
	}
	f.want(`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}`)
	g.want(`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}`)
}
