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

// TestAuthorizationCode tests the whole grant, from a URL to a call: challenge, metadata of site
// and issuer, registration, consent, token, and the site's check of the token. An issuer with a
// path has its metadata only at the location of OpenID Connect.
func TestAuthorizationCode(t *testing.T) {
	for _, path := range []string{"", "/realm"} {
		for _, format := range []string{formatJWT, formatOpaque} {
			for _, era := range eras {
				t.Run(strings.Join([]string{"issuer" + path, format, era.name}, " "), func(t *testing.T) {
					t.Parallel()
					s := newSite(t, issuers.at(t, path), format, siteOptions{})
					v := newSiteUser(t, s, "alice", nil)
					checkAuthorized(t, v, era.revision)
				})
			}
		}
	}
}

func checkAuthorized(t *testing.T, v *siteUser, revision mcp.Revision) {
	t.Helper()
	c := v.mustDial(revision)
	got := v.whoami(c)
	if got.Subject != "alice" || got.Issuer != v.site.issuer.url || got.ClientID == "" || got.Bound {
		t.Errorf("identity = %+v, want alice with an unbound token of %s", got, v.site.issuer.url)
	}
	if !slices.Contains(got.Scopes, scopeRead) || slices.Contains(got.Scopes, scopeWrite) {
		t.Errorf("scopes of the token = %q, want only %s", got.Scopes, scopeRead)
	}
	if n := v.registrations(); n != 1 {
		t.Errorf("registrations = %d, want 1", n)
	}
	if n := v.grants("authorization_code"); n != 1 {
		t.Errorf("tokens for authorization codes = %d, want 1", n)
	}
	logins := v.logins()
	if len(logins) != 1 {
		t.Fatalf("logins = %d, want 1", len(logins))
	}
	q := logins[0]
	if q.Get("client_id") != got.ClientID || q.Get("resource") != v.site.url || q.Get("code_challenge_method") != "S256" {
		t.Errorf("query of the authorization request = %v", q)
	}
	unauthorized := v.toSite.matching(func(r recordedRequest) bool { return r.status == http.StatusUnauthorized })
	if len(unauthorized) != 1 {
		t.Errorf("requests with status 401 = %d, want 1", len(unauthorized))
	}
}

// TestLoopback logs in twice with a loopback redirect. The issuer accepts another port the second
// time.
func TestLoopback(t *testing.T) {
	t.Parallel()
	s := newSite(t, issuers.at(t, ""), formatJWT, siteOptions{})
	v := newSiteUser(t, s, "alice", func(v *siteUser, o *oauth.ClientOptions) {
		o.Grant = oauth.AuthorizationCode{Prompter: v.loopback()}
	})
	for range 2 {
		v.whoami(v.mustDial(mcp.LatestRevision))
		if err := v.auth.Forget(t.Context(), s.url); err != nil {
			t.Fatal(err)
		}
	}
	logins := v.logins()
	if len(logins) != 2 || v.registrations() != 1 {
		t.Fatalf("logins = %d, registrations = %d, want 2 and 1", len(logins), v.registrations())
	}
	if first := logins[0].Get("redirect_uri"); first == logins[1].Get("redirect_uri") {
		t.Errorf("both logins have the redirect URI %s", first)
	}
}

// TestClientIDMetadata uses a client metadata document instead of a registration.
func TestClientIDMetadata(t *testing.T) {
	t.Parallel()
	s := newSite(t, issuers.at(t, ""), formatJWT, siteOptions{})
	v := newSiteUser(t, s, "alice", func(_ *siteUser, o *oauth.ClientOptions) { o.ClientIDMetadataURL = documentID })
	got := v.whoami(v.mustDial(mcp.LatestRevision))
	if got.ClientID != documentID || got.Subject != "alice" || v.registrations() != 0 {
		t.Errorf("identity = %+v after %d registrations, want alice with the client id %s and none", got, v.registrations(), documentID)
	}
}

// TestStore lets a second process of the client use the tokens of the first one.
func TestStore(t *testing.T) {
	t.Parallel()
	s := newSite(t, issuers.at(t, ""), formatOpaque, siteOptions{})
	path := t.TempDir() + "/tokens.json"
	withStore := func(_ *siteUser, o *oauth.ClientOptions) {
		store, err := oauth.NewFileStore(path)
		if err != nil {
			t.Fatal(err)
		}
		o.Store = store
	}
	first := newSiteUser(t, s, "alice", withStore)
	first.whoami(first.mustDial(mcp.LatestRevision))
	second := newSiteUser(t, s, "nobody", withStore)
	if got := second.whoami(second.mustDial(mcp.LatestLegacyRevision)); got.Subject != "alice" {
		t.Errorf("identity = %+v, want alice", got)
	}
	if n := len(second.logins()); n != 0 {
		t.Errorf("logins of the second process = %d, want 0", n)
	}
}

// TestConsentDenied tests a user who denies consent.
func TestConsentDenied(t *testing.T) {
	t.Parallel()
	s := newSite(t, issuers.at(t, ""), formatJWT, siteOptions{})
	v := newSiteUser(t, s, "nobody", nil)
	for range 2 {
		_, err := v.dial(mcp.LatestRevision)
		var failed *oauth.AuthorizationError
		if !errors.Is(err, oauth.ErrDenied) || !errors.As(err, &failed) {
			t.Fatalf("dial: error = %v, want %v", err, oauth.ErrDenied)
		}
		if failed.Code != "access_denied" || failed.Issuer != s.issuer.url || failed.Description != "the user denied consent" {
			t.Errorf("error = %+v, want access_denied of the issuer", failed)
		}
	}
	if n := len(v.logins()); n != 1 {
		t.Errorf("logins = %d, want 1", n)
	}
	if n := s.calls.Load(); n != 0 {
		t.Errorf("calls = %d, want 0", n)
	}
}

// TestPushedRequests tests an issuer that requires pushed authorization requests (RFC 9126), which
// our client does not support. The error names the reason.
func TestPushedRequests(t *testing.T) {
	t.Parallel()
	s := newSite(t, issuers.at(t, ""), formatJWT, siteOptions{})
	v := newSiteUser(t, s, "alice", func(_ *siteUser, o *oauth.ClientOptions) { o.ClientID, o.ClientIssuer = pushingID, s.issuer.url })
	_, err := v.dial(mcp.LatestRevision)
	var failed *oauth.AuthorizationError
	if !errors.Is(err, oauth.ErrRefused) || !errors.As(err, &failed) || failed.Code != "invalid_request" || !strings.Contains(failed.Description, "Pushed") {
		t.Errorf("dial: error = %v, want that the issuer requires pushed requests", err)
	}
}

// TestResourceMetadata reads the metadata of a site at the URL of the challenge, which is the
// well-known URI of the resource, and at the well-known URI of the root. Every origin may read it.
func TestResourceMetadata(t *testing.T) {
	t.Parallel()
	s := newSite(t, issuers.at(t, ""), formatJWT, siteOptions{})
	unauthorized := s.post(t, modernCall)
	const wellKnown = "/.well-known/oauth-protected-resource"
	if challenge, want := unauthorized.header.Get("WWW-Authenticate"), `resource_metadata="`+s.origin+wellKnown+"/"+formatJWT+`/mcp"`; unauthorized.status != http.StatusUnauthorized || !strings.Contains(challenge, want) {
		t.Errorf("without a token: status = %d, challenge = %s; want %d and %s", unauthorized.status, challenge, http.StatusUnauthorized, want)
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
			t.Fatalf("%s: status = %d, body = %q: %v", path, r.status, r.body, err)
		}
		if doc.Resource != s.url || !slices.Equal(doc.Servers, []string{s.issuer.url}) || !slices.Equal(doc.Scopes, []string{scopeRead}) ||
			!slices.Equal(doc.Methods, []string{"header"}) || doc.Name != "a site" {
			t.Errorf("%s: metadata = %+v", path, doc)
		}
		if got := r.header.Get("Access-Control-Allow-Origin"); got != "*" {
			t.Errorf("%s: Access-Control-Allow-Origin = %q, want *", path, got)
		}
	}
}
