package web

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"mcpwire/mcp"
	"mcpwire/oauth"
)

// TestAuthorizationCode goes all the way from a URL to a call: the challenge, the
// metadata of the site and of the issuer, registration, the user's consent, the
// token, and what the site makes of it. An issuer with a path has its metadata
// where only OpenID Connect has it.
func TestAuthorizationCode(t *testing.T) {
	for _, path := range []string{"", "/realm"} {
		for _, format := range []string{formatJWT, formatOpaque} {
			for _, era := range eras {
				t.Run(strings.Join([]string{"issuer" + path, format, era.name}, " "), func(t *testing.T) {
					t.Parallel()
					s := newSite(t, issuers.at(t, path), format, siteOptions{})
					v := newVisitor(t, s, "alice", nil)
					checkAuthorized(t, v, era.revision)
				})
			}
		}
	}
}

func checkAuthorized(t *testing.T, v *visitor, revision mcp.Revision) {
	t.Helper()
	c := v.mustDial(revision)
	got := v.whoami(c)
	if got.Subject != "alice" || got.Issuer != v.site.issuer.url || got.ClientID == "" || got.Bound {
		t.Errorf("the site takes the caller for %+v", got)
	}
	if !slices.Contains(got.Scopes, scopeRead) || slices.Contains(got.Scopes, scopeWrite) {
		t.Errorf("the token has the scopes %q", got.Scopes)
	}
	if n := v.registrations(); n != 1 {
		t.Errorf("%d registrations, want 1", n)
	}
	if n := v.grants("authorization_code"); n != 1 {
		t.Errorf("%d tokens for codes, want 1", n)
	}
	asked := v.asked()
	if len(asked) != 1 {
		t.Fatalf("the user was asked %d times, want once", len(asked))
	}
	q := asked[0]
	if q.Get("client_id") != got.ClientID || q.Get("resource") != v.site.url || q.Get("code_challenge_method") != "S256" {
		t.Errorf("the user was sent to the issuer with %v", q)
	}
	unauthorized := v.toSite.matching(func(r recorded) bool { return r.status == http.StatusUnauthorized })
	if len(unauthorized) != 1 {
		t.Errorf("%d requests were refused, want the first", len(unauthorized))
	}
}

// TestLoopback lets the user's browser find the way back to the client, twice:
// an issuer takes another port the second time.
func TestLoopback(t *testing.T) {
	t.Parallel()
	s := newSite(t, issuers.at(t, ""), formatJWT, siteOptions{})
	v := newVisitor(t, s, "alice", func(v *visitor, o *oauth.ClientOptions) {
		o.Grant = oauth.AuthorizationCode{Prompter: v.loopback()}
	})
	for range 2 {
		v.whoami(v.mustDial(mcp.LatestRevision))
		if err := v.auth.Forget(t.Context(), s.url); err != nil {
			t.Fatal(err)
		}
	}
	asked := v.asked()
	if len(asked) != 2 || v.registrations() != 1 {
		t.Fatalf("the user was asked %d times, the client registered %d times; want 2 and 1", len(asked), v.registrations())
	}
	if asked[0].Get("redirect_uri") == asked[1].Get("redirect_uri") {
		t.Errorf("both answers came to %s", asked[0].Get("redirect_uri"))
	}
}

// TestClientIDMetadata lets the client's metadata document stand for a
// registration.
func TestClientIDMetadata(t *testing.T) {
	t.Parallel()
	s := newSite(t, issuers.at(t, ""), formatJWT, siteOptions{})
	v := newVisitor(t, s, "alice", func(_ *visitor, o *oauth.ClientOptions) { o.ClientIDMetadataURL = documentID })
	got := v.whoami(v.mustDial(mcp.LatestRevision))
	if got.ClientID != documentID || got.Subject != "alice" || v.registrations() != 0 {
		t.Errorf("the site takes the caller for %+v, after %d registrations", got, v.registrations())
	}
}

// TestStore lets a second process of the client use the first one's tokens.
func TestStore(t *testing.T) {
	t.Parallel()
	s := newSite(t, issuers.at(t, ""), formatOpaque, siteOptions{})
	path := t.TempDir() + "/tokens.json"
	withStore := func(_ *visitor, o *oauth.ClientOptions) {
		store, err := oauth.NewFileStore(path)
		if err != nil {
			t.Fatal(err)
		}
		o.Store = store
	}
	first := newVisitor(t, s, "alice", withStore)
	first.whoami(first.mustDial(mcp.LatestRevision))
	second := newVisitor(t, s, "nobody", withStore)
	if got := second.whoami(second.mustDial(mcp.LatestLegacyRevision)); got.Subject != "alice" {
		t.Errorf("the site takes the caller for %+v", got)
	}
	if n := len(second.asked()); n != 0 {
		t.Errorf("the user was asked %d more times", n)
	}
}

// TestUserRefuses has a user who says no.
func TestUserRefuses(t *testing.T) {
	t.Parallel()
	s := newSite(t, issuers.at(t, ""), formatJWT, siteOptions{})
	v := newVisitor(t, s, "nobody", nil)
	for range 2 {
		_, err := v.dial(mcp.LatestRevision)
		var failed *oauth.AuthorizationError
		if !errors.Is(err, oauth.ErrDenied) || !errors.As(err, &failed) {
			t.Fatalf("got %v, want that the user said no", err)
		}
		if failed.Code != "access_denied" || failed.Issuer != s.issuer.url || failed.Description != "the user said no" {
			t.Errorf("got %+v", failed)
		}
	}
	if n := len(v.asked()); n != 1 {
		t.Errorf("the user was asked %d times, want once", n)
	}
	if n := s.calls.Load(); n != 0 {
		t.Errorf("%d tools ran", n)
	}
}

// TestPushedRequests has an issuer that takes authorization requests only if the
// client has pushed them (RFC 9126), which ours does not do. It says so.
func TestPushedRequests(t *testing.T) {
	t.Parallel()
	s := newSite(t, issuers.at(t, ""), formatJWT, siteOptions{})
	v := newVisitor(t, s, "alice", func(_ *visitor, o *oauth.ClientOptions) { o.ClientID, o.ClientIssuer = pushingID, s.issuer.url })
	_, err := v.dial(mcp.LatestRevision)
	var failed *oauth.AuthorizationError
	if !errors.Is(err, oauth.ErrRefused) || !errors.As(err, &failed) || failed.Code != "invalid_request" || !strings.Contains(failed.Description, "Pushed") {
		t.Errorf("got %v, want that the issuer wants requests to be pushed", err)
	}
}

// TestResourceMetadata looks for the metadata of a site where clients do: where
// the challenge says, at the well-known place of the resource and at that of the
// root. Pages of every origin may read it.
func TestResourceMetadata(t *testing.T) {
	t.Parallel()
	s := newSite(t, issuers.at(t, ""), formatJWT, siteOptions{})
	refusal := s.post(t, modernCall)
	const wellKnown = "/.well-known/oauth-protected-resource"
	if challenge, want := refusal.header.Get("WWW-Authenticate"), `resource_metadata="`+s.origin+wellKnown+"/"+formatJWT+`/mcp"`; refusal.status != http.StatusUnauthorized || !strings.Contains(challenge, want) {
		t.Errorf("without a token: status %d, challenge %s; want %s", refusal.status, challenge, want)
	}
	for _, path := range []string{wellKnown + "/" + formatJWT + "/mcp", wellKnown} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.origin+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Origin", "https://app.example")
		r := send(t, req)
		var doc struct {
			Resource string   `json:"resource"`
			Servers  []string `json:"authorization_servers"`
			Scopes   []string `json:"scopes_supported"`
			Methods  []string `json:"bearer_methods_supported"`
			Name     string   `json:"resource_name"`
		}
		if err := json.Unmarshal([]byte(r.body), &doc); err != nil || r.status != http.StatusOK {
			t.Fatalf("%s: status %d, %q: %v", path, r.status, r.body, err)
		}
		if doc.Resource != s.url || !slices.Equal(doc.Servers, []string{s.issuer.url}) || !slices.Equal(doc.Scopes, []string{scopeRead}) ||
			!slices.Equal(doc.Methods, []string{"header"}) || doc.Name != "a site" {
			t.Errorf("%s: %+v", path, doc)
		}
		if got := r.header.Get("Access-Control-Allow-Origin"); got != "*" {
			t.Errorf("%s: Access-Control-Allow-Origin is %q", path, got)
		}
	}
}
