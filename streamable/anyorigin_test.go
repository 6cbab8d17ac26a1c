package streamable_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"mcpwire/server"
	"mcpwire/streamable"
)

// TestAnyOrigin shows that pages of all origins may use a server that requires a token and says so,
// as browsers send their requests, and that the token is what counts.
func TestAnyOrigin(t *testing.T) {
	if _, err := streamable.NewHandler(server.MustNew("test", "1", nil), &streamable.Options{AnyOrigin: true}); err == nil || !strings.Contains(err.Error(), "Guard") {
		t.Errorf("without a guard: %v", err)
	}
	e := newEndpoint(t, nil, &streamable.Options{AnyOrigin: true, Guard: serverHandler(t, time.Time{})})
	for _, origin := range []string{"https://app.example", "https://other.example:8443", "null", "chrome-extension://abc"} {
		page := map[string]string{"Origin": origin, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
		check := func(what string, got answer, status int) {
			t.Helper()
			h := got.header
			if got.status != status || h.Get("Access-Control-Allow-Origin") != "*" || h.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("%s, %s: %d %v %s, want %d", origin, what, got.status, h, got.body, status)
			}
		}
		preflight := e.do("OPTIONS", "", with(page, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,content-type,mcp-method,mcp-param-region"))
		check("preflight", preflight, 204)
		for _, name := range []string{"Authorization", "Content-Type", "mcp-param-region"} {
			if allowed := preflight.header.Get("Access-Control-Allow-Headers"); !strings.Contains(allowed, name) {
				t.Errorf("%s is not in %s", name, allowed)
			}
		}
		body, headers := callPost(1, "echo", `{"text":"x"}`)
		for k, v := range page {
			headers[k] = v
		}
		check("without a token", e.do("POST", body, headers), 401)
		got := e.do("POST", body, with(headers, "Authorization", "Bearer "+tokenAlice))
		check("with a token", got, 200)
		if exposed := got.header.Get("Access-Control-Expose-Headers"); !strings.Contains(exposed, "WWW-Authenticate") {
			t.Errorf("exposed: %s", exposed)
		}
		v := e.visit("2025-11-25", "{}", with(page, "Authorization", "Bearer "+tokenAlice))
		check("legacy", v.post(request(1, "ping", "{}")), 200)
		check("DELETE", v.do("DELETE", "", v.headers), 204)
	}
	// A request without Origin, and a name that is not the server's.
	if got := e.do("GET", "", map[string]string{"Sec-Fetch-Site": "cross-site"}); got.status != http.StatusUnauthorized {
		t.Errorf("without Origin: %d %s", got.status, got.body)
	}
	if got := e.do("POST", "{}", map[string]string{"Host": "evil.example", "Origin": "https://evil.example", "Authorization": "Bearer " + tokenAlice}); got.status != http.StatusForbidden {
		t.Errorf("another host: %d %s", got.status, got.body)
	}
}
