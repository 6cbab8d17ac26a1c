package streamable_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"mcpwire/auth"
	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/oauth"
	"mcpwire/server"
	"mcpwire/streamable"
)

// An exchanger is a transport to two servers: an authorization server that exchanges the token T
// for "for-other-T", and a server that returns the token that it gets.
type exchanger struct{}

// RoundTrip implements http.RoundTripper.
func (exchanger) RoundTrip(req *http.Request) (*http.Response, error) {
	out := httptest.NewRecorder()
	switch req.URL.String() {
	case "https://as.example.com/.well-known/oauth-authorization-server":
		fmt.Fprint(out, `{"issuer":"https://as.example.com","token_endpoint":"https://as.example.com/token"}`)
	case "https://as.example.com/token":
		if err := req.ParseForm(); err != nil {
			return nil, err
		}
		fmt.Fprintf(out, `{"access_token":"for-other-%s","token_type":"Bearer","issued_token_type":"urn:ietf:params:oauth:token-type:access_token"}`, req.PostForm.Get("subject_token"))
	case "https://other.example.com/":
		fmt.Fprint(out, req.Header.Get("Authorization"))
	}
	return out.Result(), nil
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
	exchange, err := oauth.NewClient(&oauth.ClientOptions{
		ClientIssuer: "https://as.example.com", MetadataTransport: exchanger{},
		Grant: oauth.TokenExchange{SubjectToken: func(ctx context.Context) (auth.Secret, error) { return auth.TokenOf(ctx), nil }},
	})
	if err != nil {
		t.Fatal(err)
	}
	transport, err := exchange.Transport("https://other.example.com/", exchanger{})
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
			c, err := client.Dial(t.Context(), streamable.Dial(e.url, &streamable.DialOptions{Header: http.Header{"Authorization": {"Bearer " + token}}}), &client.Options{Revisions: []mcp.Revision{revision}})
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
