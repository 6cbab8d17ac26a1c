package streamable_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpwire/auth"
	"mcpwire/client"
	"mcpwire/internal/test/issuer"
	"mcpwire/internal/test/wait"
	"mcpwire/mcp"
	"mcpwire/oauth"
	"mcpwire/server"
	"mcpwire/streamable"
)

const (
	tokenAlice = "alice-0123456789abcdef"
	tokenBob   = "bob-0123456789abcdef"
)

// serverHandler accepts two callers: alice, who has every scope, until expires unless that is zero,
// and bob, who has only the read scope.
func serverHandler(t *testing.T, expires time.Time) *auth.Guard {
	t.Helper()
	tokens, err := auth.NewStatic(
		auth.StaticToken{Token: tokenAlice, Subject: "alice", Scopes: []string{"read", "write"}, Expires: expires},
		auth.StaticToken{Token: tokenBob, Subject: "bob", Scopes: []string{"read"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	g, err := auth.NewGuard(&auth.GuardOptions{Verifier: tokens})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func as(token string) map[string]string { return map[string]string{"Authorization": "Bearer " + token} }

// TestPrincipals shows that a session is visible only to its principal, even to callers who know
// its id.
//
// Spec: S81 S83 S218
func TestPrincipals(t *testing.T) {
	e := newEndpoint(t, nil, &streamable.Options{Guard: serverHandler(t, time.Time{})})
	if got := e.do("POST", initialize("2025-11-25", "{}"), nil); got.status != 401 || got.header.Get("WWW-Authenticate") == "" {
		t.Errorf("nobody: %d %v", got.status, got.header)
	}
	v := e.visit("2025-11-25", "{}", as(tokenAlice))
	f := v.listen("")
	id, _ := f.next()
	for _, method := range []string{"POST", "GET", "DELETE"} {
		for token, want := range map[string]int{tokenBob: 404, "": 401, "wrong-0123456789abcdef": 401} {
			headers := with(v.headers, "Authorization", "", "Last-Event-ID", "")
			if token != "" {
				headers = with(headers, "Authorization", "Bearer "+token)
			}
			if method == "GET" {
				headers["Last-Event-ID"] = id
			}
			if got := e.do(method, request(1, "ping", "{}"), headers); got.status != want {
				t.Errorf("%s by %q: %d %s, want %d", method, token, got.status, got.body, want)
			}
		}
	}
	// The same applies to its events.
	w := e.visit("2025-11-25", "{}", as(tokenBob))
	if got := w.do("GET", "", with(w.headers, "Last-Event-ID", id)); got.status != 400 {
		t.Errorf("the event of another session: %d %s", got.status, got.body)
	}
	if got := v.post(request(1, "ping", "{}")); got.status != 200 {
		t.Errorf("with its own principal: %d %s", got.status, got.body)
	}
}

func TestSSEPrincipals(t *testing.T) {
	e := newEndpoint(t, nil, &streamable.Options{Guard: serverHandler(t, time.Time{})})
	e.serve(e.h.SSE("/messages"))
	f := e.flow(e.start("GET", "", as(tokenAlice)))
	_, address := f.next()
	root := e.url
	e.url = root + address
	for token, want := range map[string]int{tokenAlice: 202, tokenBob: 404} {
		if got := e.do("POST", initialize("2024-11-05", "{}"), as(token)); got.status != want {
			t.Errorf("by %s: %d %s, want %d", token, got.status, got.body, want)
		}
	}
	if got := e.do("POST", "{}", nil); got.status != 401 {
		t.Errorf("nobody: %d", got.status)
	}
}

// needs is an [streamable.Options.Scopes].
func needs(method, name string) []string {
	switch {
	case method == "tools/call" && name != "echo", method == "resources/subscribe" && name == "test://a", method == "tasks/result" && name == "7":
		return []string{"write"}
	}
	return []string{"read"}
}

// TestScopes shows that scopes are required in every revision and for every kind of request.
func TestScopes(t *testing.T) {
	e := newEndpoint(t, nil, &streamable.Options{Guard: serverHandler(t, time.Time{}), Scopes: needs, NDJSON: true})
	denied := func(name string, got answer) {
		t.Helper()
		if challenge := got.header.Get("WWW-Authenticate"); got.status != 403 || !strings.Contains(challenge, `insufficient_scope`) || !strings.Contains(challenge, `write`) {
			t.Errorf("%s: %d %s, %s", name, got.status, got.body, challenge)
		}
	}
	body, headers := callPost(1, "steps", "{}")
	denied("modern", e.do("POST", body, with(headers, "Authorization", "Bearer "+tokenBob)))
	if got := e.do("POST", body, with(headers, "Authorization", "Bearer "+tokenAlice)); got.status != 200 {
		t.Errorf("with the scope: %d %s", got.status, got.body)
	}
	body, headers = callPost(1, "echo", `{"text":"x"}`)
	if got := e.do("POST", body, with(headers, "Authorization", "Bearer "+tokenBob)); got.status != 200 {
		t.Errorf("a method without a scope: %d %s", got.status, got.body)
	}
	steps := request(1, "tools/call", `{"name":"steps"}`)
	for _, version := range legacyVersions {
		v := e.visit(version, "{}", as(tokenBob))
		denied(version, v.post(steps))
		denied(version, v.post(request(1, "resources/subscribe", `{"uri":"test://a"}`)))
		denied(version, v.post(request(1, "tasks/result", `{"taskId":"7"}`)))
		if got := v.post(request(1, "tools/call", `{"name":"echo","arguments":{"text":"x"}}`)); got.status != 200 {
			t.Errorf("%s: %d %s", version, got.status, got.body)
		}
		if version == legacyVersions[0] {
			denied("batch", v.post("["+request(2, "ping", "{}")+","+steps+"]"))
		}
	}
	lines := initialize("2025-03-26", "{}") + "\n" + `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" + steps + "\n[" + request(2, "ping", "{}") + "," + steps + "]\n" + request(3, "ping", "{}") + "\n"
	got := e.do("POST", lines, with(as(tokenBob), "Content-Type", "application/x-ndjson"))
	answers := strings.Split(got.body, "\n")
	slices.Sort(answers) // in any order
	want := []string{`{"jsonrpc":"2.0","error":{"code":-32600,"message":"forbidden`, `"id":1,"error":{"code":-32600`, `"id":2,"error":{"code":-32600`, `"id":3,"result":{}`}
	if n := strings.Count(got.body, "forbidden"); n != 2 || strings.Contains(got.body, "done") || !strings.Contains(got.body, want[3]) || !strings.Contains(got.body, want[2]) {
		t.Errorf("lines: %s", got.body)
	}
}

// TestExpiry shows that sessions and streams end when their token expires.
func TestExpiry(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		inBubbleOf(t, h2, nil, func(e *endpoint) http.Handler {
			e.h = streamable.MustHandler(e.srv, &streamable.Options{Guard: serverHandler(e.t, time.Now().Add(time.Minute)), NDJSON: true})
			mux := http.NewServeMux()
			mux.Handle("/", e.h)
			mux.Handle("/sse", e.h.SSE("/messages"))
			return mux
		}, func(e *endpoint) {
			t := e.t
			body, headers := modernPost(1, "subscriptions/listen", `"notifications":{}`)
			listen := e.flow(e.start("POST", body, with(headers, "Authorization", "Bearer "+tokenAlice)))
			listen.next()
			news := e.visit("2025-06-18", "{}", as(tokenAlice)).listen("")
			e.url += "/sse"
			old := e.flow(e.start("GET", "", as(tokenAlice)))
			old.next()
			e.url = strings.TrimSuffix(e.url, "/sse")
			flows := map[string]*eventReader{"listen": listen, "GET": news, "SSE": old}
			var all sync.WaitGroup
			for name, f := range flows {
				all.Go(func() {
					if got := took(func() { f.r.Read() }); got != time.Minute {
						t.Errorf("h2 %v: the stream of %s ends after %v, want 1m", h2, name, got)
					}
				})
			}
			all.Wait()
			if got := e.do("POST", body, with(headers, "Authorization", "Bearer "+tokenAlice)); got.status != 401 {
				t.Errorf("afterwards: %d", got.status)
			}
		})
	}
}

// TestMaxPerCaller shows that the sessions and streams of a caller are limited, and that failed and
// ended ones do not count.
func TestMaxPerCaller(t *testing.T) {
	const version = "2025-11-25"
	e := newEndpoint(t, &server.Options{}, &streamable.Options{Limits: streamable.Limits{MaxPerCaller: 1}})
	for range 3 {
		if got := e.do("POST", request(1, "initialize", `{"protocolVersion":7}`), nil); got.status != 200 || !strings.Contains(got.body, `"error"`) {
			t.Fatalf("bad initialize: %d %s", got.status, got.body)
		}
	}
	for range 3 {
		v := e.visit(version, "{}", nil)
		if got := e.do("POST", initialize(version, "{}"), nil); got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" {
			t.Errorf("a second session: %d %s", got.status, got.body)
		}
		var f *eventReader
		// The earlier one counts until the server has noticed the disconnect.
		wait.Until(t, "a free stream", func() bool {
			resp := e.start("GET", "", v.headers)
			if resp.StatusCode == 200 {
				f = e.flow(resp)
				return true
			}
			resp.Body.Close()
			return false
		})
		if got := v.do("GET", "", v.headers); got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" {
			t.Errorf("a second stream: %d %s", got.status, got.body)
		}
		if got := v.do("DELETE", "", v.headers); got.status != 204 {
			t.Fatalf("DELETE: %d %s", got.status, got.body)
		}
		for {
			if _, data := f.next(); data == "EOF" {
				break
			}
		}
		wait.Until(t, "a free stream", func() bool {
			body, headers := modernPost(1, "subscriptions/listen", `"notifications":{}`)
			resp := e.start("POST", body, headers)
			resp.Body.Close()
			return resp.StatusCode == 200
		})
	}
}

// TestCallPrincipal shows that a handler gets the caller's identity from the token only.
//
// Spec: S192
func TestCallPrincipal(t *testing.T) {
	e := newEndpoint(t, nil, &streamable.Options{Guard: serverHandler(t, time.Time{})})
	err := server.AddTool(e.srv, "who", "", func(ctx context.Context, _ struct{}) (string, error) {
		p := auth.PrincipalOf(ctx)
		if id := server.PrincipalID(ctx); id != p.ID() {
			return "", fmt.Errorf("the call's principal is %q, the context's %q", id, p.ID())
		}
		return p.Subject + " " + strings.Join(p.Scopes, ","), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]string{tokenAlice: "alice read,write", tokenBob: "bob read"} {
		body, headers := callPost(1, "who", "{}")
		if got := e.do("POST", body, with(headers, "Authorization", "Bearer "+token)); !strings.Contains(got.body, `"text":"`+want+`"`) {
			t.Errorf("modern: %s, want %s", got.body, want)
		}
		if got := e.visit("2025-06-18", "{}", as(token)).post(request(1, "tools/call", `{"name":"who"}`)); !strings.Contains(got.body, `"text":"`+want+`"`) {
			t.Errorf("legacy: %s, want %s", got.body, want)
		}
	}
}

// TestTokenExchange makes a tool call another server for its callers, in both eras and in
// sessions that several requests share.
func TestTokenExchange(t *testing.T) {
	tokens, err := auth.NewStatic(auth.StaticToken{Token: tokenAlice, Subject: "alice"}, auth.StaticToken{Token: tokenBob, Subject: "bob"})
	if err != nil {
		t.Fatal(err)
	}
	guard, err := auth.NewGuard(&auth.GuardOptions{Verifier: tokens, KeepToken: true})
	if err != nil {
		t.Fatal(err)
	}
	// The authorization server exchanges the token T for "for-other-T".
	as := issuer.New("https://as.example.com")
	as.Clients[""] = ""
	as.EditToken = func(response map[string]any) {
		response["access_token"] = "for-other-" + as.Asked[len(as.Asked)-1].Get("subject_token")
	}
	exchange, err := oauth.NewClient(&oauth.ClientOptions{
		ClientIssuer: as.URL, MetadataTransport: as,
		Grant: oauth.TokenExchange{SubjectToken: func(ctx context.Context) (auth.Secret, error) { return auth.TokenOf(ctx), nil }},
	})
	if err != nil {
		t.Fatal(err)
	}
	transport, err := exchange.Transport("https://other.example.com/", direct{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("Authorization"))
	})})
	if err != nil {
		t.Fatal(err)
	}
	e := newEndpoint(t, nil, &streamable.Options{Guard: guard})
	if err := server.AddTool(e.srv, "call", "", func(ctx context.Context, _ struct{}) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://other.example.com/", nil)
		if err != nil {
			return "", err
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return string(text), err
	}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, revision := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
		for _, token := range []string{tokenAlice, tokenBob} {
			c, err := client.Dial(t.Context(), streamable.NewTransport(e.url, &streamable.TransportOptions{Header: http.Header{"Authorization": {"Bearer " + token}}}), &client.Options{Revisions: []mcp.Revision{revision}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			wg.Go(func() {
				for range 10 {
					got, err := client.CallTool[string](t.Context(), c, "call", nil)
					if want := "Bearer for-other-" + token; got != want || err != nil {
						t.Errorf("%v, %s: got %q, %v", revision, strings.TrimSuffix(token, "-0123456789abcdef"), got, err)
					}
				}
			})
		}
	}
	wg.Wait()
}
