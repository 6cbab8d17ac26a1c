package web

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"mcpwire/auth"
	"mcpwire/client"
	"mcpwire/internal/test/wait"
	"mcpwire/mcp"
	"mcpwire/oauth"
)

// withoutCache makes the site query the issuer about the token of each request.
var withoutCache = siteOptions{introspection: func(o *auth.IntrospectionOptions) { o.CacheTTL = -1 }}

// TestRefresh deletes the client's access token twice. The client gets a new one with its refresh
// token, which the issuer replaces each time, without a login.
func TestRefresh(t *testing.T) {
	for _, era := range eras {
		t.Run(era.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, issuers.at(t, ""), formatOpaque, withoutCache)
			v := newSiteUser(t, s, "alice", nil)
			c := v.mustDial(era.revision)
			before := v.whoami(c)
			for n := 1; n <= 2; n++ {
				old := v.token()
				s.issuer.remove(t, "token", old)
				if got := v.whoami(c); got.Subject != before.Subject || got.ClientID != before.ClientID {
					t.Errorf("identity = %+v, want %+v", got, before)
				}
				if v.token() == old || v.grants("refresh_token") != n || len(v.logins()) != 1 {
					t.Fatalf("refreshes = %d, logins = %d, want %d and 1", v.grants("refresh_token"), len(v.logins()), n)
				}
			}
			used := map[string]bool{}
			for _, r := range v.toIssuer.matching(func(r recordedRequest) bool { return r.form.Get("grant_type") == "refresh_token" }) {
				used[r.form.Get("refresh_token")] = true
				if r.form.Get("resource") != s.url {
					t.Errorf("resource of a refresh = %q, want %q", r.form.Get("resource"), s.url)
				}
			}
			if len(used) != 2 {
				t.Errorf("used refresh tokens = %d, want 2", len(used))
			}
		})
	}
}

// TestRefreshBeforeEnd uses tokens that are valid for one second. Each call has a valid token, or
// the client renews it and the call succeeds.
func TestRefreshBeforeEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t, issuers.at(t, ""), formatShort, siteOptions{})
	v := newSiteUser(t, s, "alice", nil)
	c := v.mustDial(mcp.LatestRevision)
	wait.Until(t, "two refreshes", func() bool {
		v.whoami(c)
		return v.grants("refresh_token") >= 2
	})
	if n := len(v.logins()); n != 1 {
		t.Errorf("logins = %d, want 1", n)
	}
}

// TestRefreshRejected uses a refresh token twice. The issuer then rejects all tokens of the grant,
// and the user must log in again. The same applies to a revoked token.
func TestRefreshRejected(t *testing.T) {
	t.Parallel()
	s := newSite(t, issuers.at(t, ""), formatOpaque, withoutCache)
	v := newSiteUser(t, s, "alice", nil)
	c := v.mustDial(mcp.LatestRevision)
	id := v.whoami(c).ClientID
	s.issuer.remove(t, "token", v.token())
	v.whoami(c)
	refreshes := v.toIssuer.matching(func(r recordedRequest) bool { return r.form.Get("grant_type") == "refresh_token" })
	if len(refreshes) != 1 || len(v.logins()) != 1 {
		t.Fatalf("refreshes = %d, logins = %d, want 1 and 1", len(refreshes), len(v.logins()))
	}
	if status := s.issuer.replay(t, refreshes[0]); status != http.StatusBadRequest {
		t.Fatalf("used refresh token: status = %d, want %d", status, http.StatusBadRequest)
	}
	v.whoami(c)
	if n := len(v.logins()); n != 2 {
		t.Errorf("logins after the second use of a refresh token = %d, want 2", n)
	}
	s.issuer.revoke(t, v.token(), id, "")
	v.whoami(c)
	if n := len(v.logins()); n != 3 || v.registrations() != 1 {
		t.Errorf("after a revocation: logins = %d, registrations = %d, want 3 and 1", n, v.registrations())
	}
}

// TestRevoked revokes tokens before they expire. A site that caches introspection results accepts
// them until the cache entry expires.
func TestRevoked(t *testing.T) {
	t.Parallel()
	is := issuers.at(t, "")
	fresh := newSite(t, is, formatOpaque, withoutCache)
	cached := newSite(t, is, formatOpaque, siteOptions{})
	for name, s := range map[string]*site{"without cache": fresh, "with cache": cached} {
		token := is.token(t, s.url, scopeRead)
		if r := s.call(t, "Bearer "+token); r.status != http.StatusOK {
			t.Fatalf("%s: status = %d, want %d: %s", name, r.status, http.StatusOK, r.body)
		}
		is.revoke(t, token, machineID, machineSecret)
		before := s.calls.Load()
		r := s.call(t, "Bearer "+token)
		if s == cached {
			if r.status != http.StatusOK {
				t.Errorf("%s: status after the revocation = %d, want %d: %s", name, r.status, http.StatusOK, r.body)
			}
			continue
		}
		s.checkRejected(t, name, r, http.StatusUnauthorized, "invalid_token", before)
	}
}

// TestRevokedAfterCache revokes a token while the introspection result is in the cache. The site
// rejects the token after the entry has expired.
func TestRevokedAfterCache(t *testing.T) {
	t.Parallel()
	is := issuers.at(t, "")
	s := newSite(t, is, formatOpaque, siteOptions{introspection: func(o *auth.IntrospectionOptions) { o.CacheTTL = 500 * time.Millisecond }})
	token := is.token(t, s.url, scopeRead)
	if r := s.call(t, "Bearer "+token); r.status != http.StatusOK {
		t.Fatalf("status = %d, want %d: %s", r.status, http.StatusOK, r.body)
	}
	is.revoke(t, token, machineID, machineSecret)
	wait.Until(t, "the site rejects the token", func() bool {
		before := s.calls.Load()
		r := s.call(t, "Bearer "+token)
		if r.status == http.StatusOK {
			return false
		}
		s.checkRejected(t, "revoked", r, http.StatusUnauthorized, "invalid_token", before)
		return true
	})
}

// TestStepUp calls tools that need further scopes. The client requests these scopes together with
// those that it has.
func TestStepUp(t *testing.T) {
	for _, era := range eras {
		t.Run(era.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, issuers.at(t, ""), formatJWT, siteOptions{})
			v := newSiteUser(t, s, "alice", func(v *siteUser, o *oauth.ClientOptions) {
				o.Grant = oauth.AuthorizationCode{Prompter: v.loopback()}
			})
			c := v.mustDial(era.revision)
			v.whoami(c)
			for i, tool := range []string{"change", "rule"} {
				if _, err := client.CallTool[string](t.Context(), c, tool, nil); err != nil {
					t.Fatalf("%s: %v", tool, err)
				}
				if n := len(v.logins()); n != i+2 {
					t.Fatalf("%s: logins = %d, want %d", tool, n, i+2)
				}
			}
			scopes := strings.Fields(v.logins()[2].Get("scope"))
			got := v.whoami(c)
			for _, want := range []string{scopeRead, scopeWrite, scopeAdmin} {
				if !slices.Contains(scopes, want) || !slices.Contains(got.Scopes, want) {
					t.Errorf("requested scopes = %q, granted scopes = %q, want %s in both", scopes, got.Scopes, want)
				}
			}
			if _, err := client.CallTool[string](t.Context(), c, "change", nil); err != nil {
				t.Errorf("call with an earlier scope: %v", err)
			}
			if n := len(v.logins()); n != 3 || v.registrations() != 1 {
				t.Errorf("logins = %d, registrations = %d, want 3 and 1", n, v.registrations())
			}
		})
	}
}
