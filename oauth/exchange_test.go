package oauth_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/auth"
	"mcpwire/internal/test/issuer"
	"mcpwire/oauth"
)

const typeAccessToken = "urn:ietf:params:oauth:token-type:access_token"

type subjectKey struct{}

// callerWith returns a context whose caller has a token.
func callerWith(ctx context.Context, token string) context.Context {
	return context.WithValue(ctx, subjectKey{}, auth.NewSecret(token))
}

func subjectOf(ctx context.Context) (auth.Secret, error) {
	s, _ := ctx.Value(subjectKey{}).(auth.Secret)
	return s, nil
}

// exchangeWorld returns a world whose authorization server exchanges tokens, and a transport of a
// client that requests it.
func exchangeWorld(t *testing.T, change func(*oauth.ClientOptions, *oauth.TokenExchange)) (*world, *issuer.Issuer, http.RoundTripper) {
	w := newWorld(t)
	as := w.as[worldAS]
	as.AuthMethods("client_secret_basic")
	as.Clients["gateway"] = "s"
	rt := w.transport(func(o *oauth.ClientOptions) {
		g := oauth.TokenExchange{SubjectToken: subjectOf}
		o.ClientID, o.ClientSecret, o.ClientIssuer = "gateway", auth.NewSecret("s"), worldAS
		if change != nil {
			change(o, &g)
		}
		o.Grant = g
	})
	return w, as, rt
}

func TestTokenExchange(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*oauth.ClientOptions, *oauth.TokenExchange)
		want   url.Values
	}{
		{"defaults", nil, url.Values{"subject_token_type": {typeAccessToken}, "resource": {worldServer}}},
		{
			"everything",
			func(o *oauth.ClientOptions, g *oauth.TokenExchange) {
				o.Scopes = []string{"a", "b", "offline_access"}
				g.SubjectTokenType, g.Audience, g.Resource = "urn:ietf:params:oauth:token-type:jwt", "mcp-server", worldServer
			},
			url.Values{"subject_token_type": {"urn:ietf:params:oauth:token-type:jwt"}, "resource": {worldServer}, "audience": {"mcp-server"}, "scope": {"a b"}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, as, rt := exchangeWorld(t, tt.change)
			for _, caller := range []string{"SECRET-alice", "SECRET-bob", "SECRET-alice", "SECRET-alice-2"} {
				resp, err := post(callerWith(t.Context(), caller), rt)
				if err != nil || resp.StatusCode != http.StatusOK {
					t.Fatalf("%s: got %v, %v", caller, resp, err)
				}
			}
			var subjects []string
			for _, form := range as.Asked {
				subjects = append(subjects, form.Get("subject_token"))
				form.Del("subject_token")
				want := url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "requested_token_type": {typeAccessToken}}
				for name, values := range tt.want {
					want[name] = values
				}
				if diff := cmp.Diff(want, form); diff != "" {
					t.Errorf("form (-want +got):\n%s", diff)
				}
			}
			if want := []string{"SECRET-alice", "SECRET-bob", "SECRET-alice-2"}; !slices.Equal(subjects, want) {
				t.Errorf("exchanged %q, want %q", subjects, want)
			}
			// Alice's two requests have one token, and no other caller has it.
			var sent []string
			for _, h := range w.sent {
				sent = append(sent, h.Get("Authorization"))
				for _, values := range h {
					if s := strings.Join(values, " "); strings.Contains(s, "SECRET-alice") || strings.Contains(s, "SECRET-bob") {
						t.Errorf("a caller's token was sent to the server: %q", s)
					}
				}
			}
			if len(sent) != 4 || sent[0] != sent[2] || sent[0] == sent[1] || sent[0] == sent[3] {
				t.Errorf("sent %q", sent)
			}
			if n := w.count(worldServer) - 4 + w.count("oauth-protected-resource/mcp"); n != 0 {
				t.Errorf("%d other requests to the server: %q", n, w.requests())
			}
		})
	}
}

// TestTokenExchangeExpiry checks that a token is exchanged again before it expires, even if the
// server still accepts it, and that it is used until then if the authorization server is down.
func TestTokenExchangeExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, as, rt := exchangeWorld(t, nil)
		as.ExpiresIn = 100
		as.Refresh = true
		ctx := callerWith(t.Context(), "alice")
		do := func(at time.Duration, exchanges int) {
			t.Helper()
			mustPostAs(t, ctx, rt)
			if n := len(as.Asked); n != exchanges {
				t.Errorf("%v: %d exchanges, want %d", at, n, exchanges)
			}
		}
		do(0, 1)
		time.Sleep(74 * time.Second)
		do(74*time.Second, 1)
		time.Sleep(2 * time.Second)
		do(76*time.Second, 2)
		as.TokenError = func(url.Values) string { return "temporarily_unavailable" }
		time.Sleep(76 * time.Second)
		do(152*time.Second, 3)
		do(152*time.Second, 3) // no further attempt for some seconds
		time.Sleep(30 * time.Second)
		if _, err := post(ctx, rt); !errors.Is(err, oauth.ErrUnreachable) {
			t.Errorf("after the expiry: got %v", err)
		}
	})
}

func mustPostAs(t *testing.T, ctx context.Context, rt http.RoundTripper) {
	t.Helper()
	resp, err := post(ctx, rt)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("got %v, %v", resp, err)
	}
}

// TestTokenExchangeRejected checks that a token that the server no longer accepts is exchanged once
// more, and that a scope that it demands is requested.
func TestTokenExchangeRejected(t *testing.T) {
	w, as, rt := exchangeWorld(t, nil)
	ctx := callerWith(t.Context(), "alice")
	mustPostAs(t, ctx, rt)
	w.revoke()
	mustPostAs(t, ctx, rt)
	w.need = func(*http.Request) []string { return []string{"write"} }
	mustPostAs(t, ctx, rt)
	if n := len(as.Asked); n != 3 || as.Asked[2].Get("scope") != "write" {
		t.Errorf("got %v", as.Asked)
	}
	w.accept = w.newIssuer("https://nobody.example.com")
	resp, err := post(ctx, rt)
	if err != nil || resp.StatusCode != http.StatusUnauthorized || len(as.Asked) != 4 {
		t.Errorf("got %v, %v after %d exchanges", resp, err, len(as.Asked))
	}
}

func TestTokenExchangeErrors(t *testing.T) {
	for _, tt := range []struct {
		name   string
		caller string
		change func(*world, *issuer.Issuer)
		want   error
		text   string
	}{
		{"no token", "", nil, nil, "get the caller's token: the request has none"},
		{"invalid target", "alice", func(_ *world, as *issuer.Issuer) { as.TokenError = func(url.Values) string { return "invalid_target" } }, oauth.ErrRefused, "(invalid_target)"},
		{"invalid request", "alice", func(_ *world, as *issuer.Issuer) {
			as.TokenError = func(url.Values) string { return "invalid_request" }
		}, oauth.ErrRefused, "(invalid_request)"},
		{"denied", "alice", func(_ *world, as *issuer.Issuer) { as.TokenError = func(url.Values) string { return "access_denied" } }, oauth.ErrDenied, "(access_denied)"},
		{"no type", "alice", func(_ *world, as *issuer.Issuer) {
			as.EditToken = func(a map[string]any) { delete(a, "issued_token_type") }
		}, oauth.ErrUntrusted, `type ""`},
		{"another type", "alice", func(_ *world, as *issuer.Issuer) {
			as.EditToken = func(a map[string]any) { a["issued_token_type"] = "urn:ietf:params:oauth:token-type:refresh_token" }
		}, oauth.ErrUntrusted, "refresh_token"},
		{"no access token", "alice", func(_ *world, as *issuer.Issuer) {
			as.EditToken = func(a map[string]any) { a["issued_token_type"], a["token_type"] = typeAccessToken, "N_A" }
		}, oauth.ErrUntrusted, `"N_A"`},
		{"the same token", "alice-is-long-enough", func(_ *world, as *issuer.Issuer) {
			as.EditToken = func(a map[string]any) {
				a["issued_token_type"], a["access_token"] = typeAccessToken, "alice-is-long-enough"
			}
		}, oauth.ErrUntrusted, "the caller's own token"},
		{"another issuer's metadata", "alice", func(_ *world, as *issuer.Issuer) { as.Document()["issuer"] = worldSecondAS }, oauth.ErrUntrusted, "names another issuer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, as, rt := exchangeWorld(t, nil)
			if tt.change != nil {
				tt.change(w, as)
			}
			_, err := post(callerWith(t.Context(), tt.caller), rt)
			authErr, ok := errors.AsType[*oauth.AuthorizationError](err)
			if !ok || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %v", err)
			}
			if ok && (authErr.Server != worldServer || authErr.Issuer != worldAS) {
				t.Errorf("got server %q, issuer %q", authErr.Server, authErr.Issuer)
			}
			if tt.caller != "" && err != nil && strings.Contains(err.Error(), "alice-is") {
				t.Errorf("the error has the token: %v", err)
			}
			if n := w.count(worldServer); n != 0 {
				t.Errorf("%d requests to the server", n)
			}
		})
	}
}

// TestTokenExchangeOfOne checks that one caller whose token is rejected neither blocks the others
// nor causes a token request for each request, and that requests of one caller share an exchange.
func TestTokenExchangeOfOne(t *testing.T) {
	_, as, rt := exchangeWorld(t, nil)
	as.TokenError = func(form url.Values) string {
		if form.Get("subject_token") == "revoked" {
			return "invalid_request"
		}
		return ""
	}
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			caller := []string{"revoked", "alice", "bob"}[i%3]
			resp, err := post(callerWith(t.Context(), caller), rt)
			if ok := err == nil && resp.StatusCode == http.StatusOK; ok == (caller == "revoked") {
				t.Errorf("%s: got %v, %v", caller, resp, err)
			}
		})
	}
	wg.Wait()
	if n := len(as.Asked); n != 3 {
		t.Errorf("%d exchanges, want 3", n)
	}
}

// TestTokenExchangeMemory checks that the number of tokens is bounded.
func TestTokenExchangeMemory(t *testing.T) {
	_, as, rt := exchangeWorld(t, nil)
	first := callerWith(t.Context(), "first")
	mustPostAs(t, first, rt)
	for i := range 4096 {
		mustPostAs(t, callerWith(t.Context(), fmt.Sprint(i)), rt)
	}
	mustPostAs(t, callerWith(t.Context(), "4095"), rt)
	mustPostAs(t, first, rt)
	if n := len(as.Asked); n != 4098 {
		t.Errorf("%d exchanges, want 4098: the first token is evicted, the last is not", n)
	}
}

func TestTokenExchangeOptions(t *testing.T) {
	for _, tt := range []struct {
		o    oauth.ClientOptions
		want string
	}{
		{oauth.ClientOptions{Grant: oauth.TokenExchange{}, ClientIssuer: worldAS}, "oauth: TokenExchange has no source of subject tokens"},
		{oauth.ClientOptions{Grant: oauth.TokenExchange{SubjectToken: subjectOf}}, "oauth: this grant needs ClientIssuer: credentials are for one authorization server"},
		{oauth.ClientOptions{Grant: oauth.TokenExchange{SubjectToken: subjectOf}, ClientIssuer: oauth.TrustFirstIssuer}, "oauth: TokenExchange needs ClientIssuer: the callers' tokens are for one authorization server"},
		{oauth.ClientOptions{Grant: oauth.TokenExchange{SubjectToken: subjectOf, Resource: "/mcp"}, ClientIssuer: worldAS}, "oauth: TokenExchange.Resource is not an absolute URL without a fragment"},
	} {
		if _, err := oauth.NewClient(&tt.o); err == nil || err.Error() != tt.want {
			t.Errorf("got %v, want %s", err, tt.want)
		}
	}
}

// TestTokenExchangeDPoP checks that exchanged tokens can be bound to a key.
func TestTokenExchangeDPoP(t *testing.T) {
	w, as, rt := exchangeWorld(t, func(o *oauth.ClientOptions, _ *oauth.TokenExchange) { o.DPoP = oauth.DPoPOn })
	as.Document()["dpop_signing_alg_values_supported"] = []string{"ES256"}
	mustPostAs(t, callerWith(t.Context(), "alice"), rt)
	if h := w.sent[0].Get("Authorization"); !strings.HasPrefix(h, "DPoP ") {
		t.Errorf("got %q", h)
	}
}

func ExampleTokenExchange() {
	// The guard of this server has auth.GuardOptions.KeepToken.
	client, err := oauth.NewClient(&oauth.ClientOptions{
		ClientIssuer: "https://login.example.com",
		ClientID:     "my-server",
		ClientSecret: auth.NewSecret("from a file"),
		Grant: oauth.TokenExchange{
			SubjectToken: func(ctx context.Context) (auth.Secret, error) { return auth.TokenOf(ctx), nil },
			Audience:     "other-server",
		},
	})
	if err != nil {
		panic(err)
	}
	transport, err := client.Transport("https://other.example.com/api", nil)
	if err != nil {
		panic(err)
	}
	// A request with the context of a call has a token for its caller.
	_ = &http.Client{Transport: transport}
}
