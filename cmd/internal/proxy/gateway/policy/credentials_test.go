package policy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/auth"
	"mcpwire/cmd/internal/proxy/gateway/config"
	"mcpwire/internal/test/issuer"
	"mcpwire/oauth"
)

const (
	testIssuer   = "https://idp.example.com"
	testUpstream = "https://up.example.com/mcp"
)

// An idp is a transport with an authorization server and an upstream, which records its requests.
type idp struct {
	*issuer.Issuer
	// needToken rejects requests to the upstream without a token.
	needToken bool

	mu sync.Mutex
	// sent are the headers of requests to other servers.
	sent []http.Header
}

func newIDP() *idp {
	i := issuer.New(testIssuer)
	i.Clients["gateway"] = "gateway-secret"
	i.AuthMethods("client_secret_basic")
	i.Metadata["/.well-known/oauth-protected-resource/mcp"] = map[string]any{
		"resource": testUpstream, "authorization_servers": []string{testIssuer}, "scopes_supported": []string{"up"},
	}
	return &idp{Issuer: i}
}

func (i *idp) RoundTrip(req *http.Request) (*http.Response, error) { return issuer.RoundTrip(i, req) }

func (i *idp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if site := r.URL.Scheme + "://" + r.URL.Host; site == testIssuer || strings.HasPrefix(r.URL.Path, "/.well-known/") {
		i.Issuer.ServeHTTP(w, r)
		return
	}
	i.mu.Lock()
	i.sent = append(i.sent, r.Header)
	i.mu.Unlock()
	if i.needToken && !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer "+issuedToken) {
		w.WriteHeader(http.StatusUnauthorized)
	}
}

// issuedToken is the beginning of the tokens of an idp.
const issuedToken = "SECRET-access-"

// authorizations returns the headers Authorization that the upstream got.
func (i *idp) authorizations() (list []string) {
	for _, h := range i.sent {
		list = append(list, strings.TrimSuffix(h.Get("Authorization"), "-of-idp.example.com"))
	}
	return list
}

func text(s string) Source { return func() (auth.Secret, error) { return auth.NewSecret(s), nil } }

func get(t *testing.T, ctx context.Context, rt http.RoundTripper, address string) error {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if len(resp.Request.Header) > 0 {
		t.Errorf("the response has the request's headers %v", resp.Request.Header)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

func TestHeaders(t *testing.T) {
	i := newIDP()
	c := &Credentials{Headers: map[string]Source{"X-Api-Key": text("k")}, Token: text("t")}
	rt, err := c.Transport(testUpstream, i)
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{testUpstream, "HTTPS://UP.example.com/other", "https://evil.example.com/mcp", "http://up.example.com/mcp", "https://up.example.com:444/mcp"} {
		if err := get(t, t.Context(), rt, address); err != nil {
			t.Error(err)
		}
	}
	both := http.Header{"X-Api-Key": {"k"}, "Authorization": {"Bearer t"}}
	if diff := cmp.Diff([]http.Header{both, both, {}, {}, {}}, i.sent); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

// TestSecretIsReadAgain checks that a changed file is read again, and that the former secret is
// used while the file is missing or invalid.
func TestSecretIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	write := func(s string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		i := newIDP()
		c := &Credentials{Token: func() (auth.Secret, error) {
			reads++
			b, err := os.ReadFile(path)
			return auth.NewSecret(string(b)), err
		}}
		rt, err := c.Transport(testUpstream, i)
		if err != nil {
			t.Fatal(err)
		}
		do := func() {
			t.Helper()
			if err := get(t, t.Context(), rt, testUpstream); err != nil {
				t.Error(err)
			}
		}
		do()
		write("two")
		do()
		time.Sleep(sourceTTL)
		do()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(sourceTTL)
		do()
		write("bad\nvalue")
		time.Sleep(sourceTTL)
		do()
		want := []string{"Bearer one", "Bearer one", "Bearer two", "Bearer two", "Bearer two"}
		if diff := cmp.Diff(want, i.authorizations()); diff != "" || reads != 4 {
			t.Errorf("%d reads, headers (-want +got):\n%s", reads, diff)
		}
	})
}

// gatewaySecret returns a reference to the secret of the gateway at the authorization server.
func gatewaySecret(t *testing.T) config.Reference {
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte("gateway-secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Reference{File: path}
}

func TestClientCredentials(t *testing.T) {
	i := newIDP()
	i.needToken = true
	c := &Credentials{Client: &config.ClientCredentials{Issuer: testIssuer, ID: "gateway", Secret: gatewaySecret(t), Scopes: []string{"read"}}, MetadataTransport: i}
	rt, err := c.Transport(testUpstream, i)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := get(t, t.Context(), rt, testUpstream); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"", "Bearer SECRET-access-1", "Bearer SECRET-access-1", "Bearer SECRET-access-1"}, i.authorizations()); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]url.Values{{"grant_type": {"client_credentials"}, "resource": {testUpstream}, "scope": {"read"}}}, i.Asked); diff != "" {
		t.Errorf("forms (-want +got):\n%s", diff)
	}
}

// A fakeVerifier makes principals of tokens such as "alice.scope.1".
type fakeVerifier struct{}

func (fakeVerifier) Verify(_ context.Context, token string) (*auth.Principal, error) {
	parts := strings.Split(token, ".")
	if len(parts) < 2 {
		return nil, auth.ErrInvalidToken
	}
	return &auth.Principal{Issuer: testIssuer, Subject: parts[0], Scopes: parts[1 : len(parts)-1], Expires: time.Now().Add(time.Minute)}, nil
}

func TestExchange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tokens CallerTokens
		i := newIDP()
		i.needToken = true
		i.TokenError = func(form url.Values) string {
			if form.Get("subject_token") == "mallory.1" {
				return "invalid_request"
			}
			return ""
		}
		c := &Credentials{
			Headers:  map[string]Source{"X-Api-Key": text("k")},
			Exchange: &config.Exchange{Issuer: testIssuer, ID: "gateway", Secret: gatewaySecret(t), Audience: "up"}, Tokens: &tokens,
			MetadataTransport: i,
		}
		rt, err := c.Transport(testUpstream, i)
		if err != nil {
			t.Fatal(err)
		}
		v := tokens.Verifier(fakeVerifier{})
		// call verifies the token of a caller and makes a request with the principal.
		call := func(token string) error {
			t.Helper()
			p, err := v.Verify(t.Context(), token)
			if err != nil {
				t.Fatal(err)
			}
			return get(t, auth.WithPrincipal(t.Context(), p), rt, testUpstream)
		}
		for _, token := range []string{"alice.1", "bob.1", "alice.1", "alice.2", "alice.admin.3", "alice.2"} {
			if err := call(token); err != nil {
				t.Errorf("%s: %v", token, err)
			}
		}
		var subjects []string
		for _, form := range i.Asked {
			subjects = append(subjects, form.Get("subject_token"))
			if form.Get("audience") != "up" {
				t.Errorf("got %v", form)
			}
		}
		if diff := cmp.Diff([]string{"alice.1", "bob.1", "alice.2", "alice.admin.3"}, subjects); diff != "" {
			t.Errorf("exchanged tokens (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"Bearer SECRET-access-1", "Bearer SECRET-access-2", "Bearer SECRET-access-1", "Bearer SECRET-access-3", "Bearer SECRET-access-4", "Bearer SECRET-access-3"}, i.authorizations()); diff != "" {
			t.Errorf("headers (-want +got):\n%s", diff)
		}
		sent := len(i.sent)
		if err := call("mallory.1"); !errors.Is(err, oauth.ErrRefused) {
			t.Errorf("revoked token: got %v", err)
		}
		if err := get(t, t.Context(), rt, testUpstream); err == nil || !strings.Contains(err.Error(), "the caller has no token") {
			t.Errorf("no principal: got %v", err)
		}
		unknown := auth.WithPrincipal(t.Context(), &auth.Principal{Issuer: testIssuer, Subject: "unknown"})
		if err := get(t, unknown, rt, testUpstream); err == nil || !strings.Contains(err.Error(), "no longer known") {
			t.Errorf("unknown token: got %v", err)
		}
		time.Sleep(time.Minute)
		old := auth.WithPrincipal(t.Context(), &auth.Principal{Issuer: testIssuer, Subject: "alice"})
		if err := get(t, old, rt, testUpstream); !errors.Is(err, auth.ErrExpired) {
			t.Errorf("expired token: got %v", err)
		}
		// The caller has a new token with more scopes, and the connection still has the old
		// principal.
		if _, err := v.Verify(t.Context(), "alice.admin.4"); err != nil {
			t.Fatal(err)
		}
		if err := get(t, old, rt, testUpstream); err != nil {
			t.Errorf("expired token with a newer one of the caller: got %v", err)
		}
		sent++
		if len(i.sent) != sent {
			t.Errorf("got %d requests without a token, want 0", len(i.sent)-sent)
		}
	})
}

// TestCallerTokensAreBounded checks that the least recently used tokens are evicted.
func TestCallerTokensAreBounded(t *testing.T) {
	var tokens CallerTokens
	v := tokens.Verifier(fakeVerifier{})
	known := func(subject string) bool {
		_, err := tokens.Of(as(t.Context(), subject))
		return err == nil
	}
	// add adds the token of a caller of another issuer than as has.
	add := func(subject string, size int) {
		tokens.remember(&auth.Principal{Issuer: "i", Subject: subject}, strings.Repeat("x", size))
	}
	for n := range maxCallerTokens + 1 {
		add(fmt.Sprint(n), 10)
	}
	if got := []bool{known("0"), known("1"), known(fmt.Sprint(maxCallerTokens))}; !slices.Equal(got, []bool{false, true, true}) {
		t.Errorf("known tokens: got %v, want the first one evicted", got)
	}
	const big = 1 << 20
	for n := range 100 {
		add(fmt.Sprint("big ", n), big)
	}
	if tokens.bytes > maxCallerTokenBytes || tokens.bytes < maxCallerTokenBytes-2*big || known("1") || !known("big 99") {
		t.Errorf("got %d bytes, want at most %d", tokens.bytes, maxCallerTokenBytes)
	}
	if _, err := v.Verify(t.Context(), "x"); !errors.Is(err, auth.ErrInvalidToken) {
		t.Errorf("got %v", err)
	}
}

// TestOnlyAcceptedTokensAreRemembered checks that a token that the verifier rejects is not exchanged,
// whatever else the verifier returns.
func TestOnlyAcceptedTokensAreRemembered(t *testing.T) {
	alice := &auth.Principal{Issuer: "i", Subject: "alice"}
	for _, tt := range []struct {
		name string
		p    *auth.Principal
		err  error
		want bool
	}{
		{"accepted", alice, nil, true},
		{"rejected", alice, auth.ErrExpired, false},
		{"neither", nil, nil, false},
	} {
		var tokens CallerTokens
		p, err := tokens.Verifier(verifierFunc(func() (*auth.Principal, error) { return tt.p, tt.err })).Verify(t.Context(), "token")
		if p != tt.p || err != tt.err {
			t.Errorf("%s: Verify returned %v, %v", tt.name, p, err)
		}
		token, err := tokens.Of(as(t.Context(), "alice"))
		if got := err == nil && token.Reveal() == "token"; got != tt.want {
			t.Errorf("%s: the token is known: %t, want %t", tt.name, got, tt.want)
		}
	}
}

type verifierFunc func() (*auth.Principal, error)

func (f verifierFunc) Verify(context.Context, string) (*auth.Principal, error) { return f() }

// TestNoSecret checks that a request whose secret is empty and can no longer be read is not sent,
// and that its body is closed.
func TestNoSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fail error
		i := newIDP()
		rt, err := (&Credentials{Token: func() (auth.Secret, error) { return auth.Secret{}, fail }}).Transport(testUpstream, i)
		if err != nil {
			t.Fatal(err)
		}
		fail = errors.New("the variable KEY is not set")
		time.Sleep(sourceTTL)
		for _, body := range []*closeNoter{{}, nil} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, testUpstream, nil)
			if err != nil {
				t.Fatal(err)
			}
			if body != nil {
				req.Body = body
			}
			if _, err := rt.RoundTrip(req); err == nil || err.Error() != "header Authorization: the variable KEY is not set" {
				t.Errorf("got %v", err)
			}
			if body != nil && !body.closed {
				t.Error("the body is open")
			}
		}
		if len(i.sent) != 0 {
			t.Errorf("got %d requests, want 0", len(i.sent))
		}
	})
}

// A closeNoter is an empty body that notes Close.
type closeNoter struct{ closed bool }

func (*closeNoter) Read([]byte) (int, error) { return 0, io.EOF }

func (c *closeNoter) Close() error {
	c.closed = true
	return nil
}

func TestCredentialErrors(t *testing.T) {
	broken := func() (auth.Secret, error) { return auth.Secret{}, errors.New("the variable KEY is not set") }
	for _, tt := range []struct {
		c    Credentials
		want string
	}{
		{Credentials{Headers: map[string]Source{"X-Key": broken}}, "header X-Key: the variable KEY is not set"},
		{Credentials{Headers: map[string]Source{"X-Key": text("a\r\nb")}}, "header X-Key: it has characters that a header cannot contain"},
		{Credentials{Client: &config.ClientCredentials{Issuer: testIssuer, ID: "a", Secret: config.Reference{Env: "MCPWIRE_TEST_UNSET"}}}, "the environment variable MCPWIRE_TEST_UNSET is not set"},
		{Credentials{Client: &config.ClientCredentials{Issuer: testIssuer}}, "oauth: client credentials need ClientID, and ClientSecret or ClientKey"},
	} {
		if _, err := tt.c.Transport(testUpstream, newIDP()); err == nil || err.Error() != tt.want {
			t.Errorf("got %v, want %s", err, tt.want)
		}
	}
	for _, server := range []string{"https://up.example.com:port/mcp", "/mcp", "mcp:x", ""} {
		if _, err := new(Credentials).Transport(server, newIDP()); err == nil || err.Error() != "the URL of the server is malformed" {
			t.Errorf("server %q: got %v", server, err)
		}
	}
}
