package web

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"mcpwire/auth"
	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/oauth"
)

// withoutCache has each token looked at each time.
var withoutCache = siteOptions{introspection: func(o *auth.IntrospectionOptions) { o.CacheTTL = -1 }}

// TestRefresh invalidates the client's access token twice. The client gets another with its refresh
// token, which the issuer replaces each time, without a login.
func TestRefresh(t *testing.T) {
	for _, era := range eras {
		t.Run(era.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, issuers.at(t, ""), formatOpaque, withoutCache)
			v := newVisitor(t, s, "alice", nil)
			c := v.mustDial(era.revision)
			before := v.whoami(c)
			for n := 1; n <= 2; n++ {
				old := v.token()
				s.issuer.lose(t, "token", old)
				if got := v.whoami(c); got.Subject != before.Subject || got.ClientID != before.ClientID {
					t.Errorf("the site takes the caller for %+v, and before for %+v", got, before)
				}
				if v.token() == old || v.grants("refresh_token") != n || len(v.asked()) != 1 {
					t.Fatalf("%d refreshes after %d losses; the user was asked %d times", v.grants("refresh_token"), n, len(v.asked()))
				}
			}
			used := map[string]bool{}
			for _, r := range v.toIssuer.matching(func(r recorded) bool { return r.form.Get("grant_type") == "refresh_token" }) {
				used[r.form.Get("refresh_token")] = true
				if r.form.Get("resource") != s.url {
					t.Errorf("the resource of a refresh is %q", r.form.Get("resource"))
				}
			}
			if len(used) != 2 {
				t.Errorf("%d refresh tokens were used, want 2", len(used))
			}
		})
	}
}

// TestRefreshBeforeEnd has tokens that are valid for a second. The token of each call is valid, or
// is renewed without the caller noticing.
func TestRefreshBeforeEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t, issuers.at(t, ""), formatShort, siteOptions{})
	v := newVisitor(t, s, "alice", nil)
	c := v.mustDial(mcp.LatestRevision)
	eventually(t, "two refreshes", func() bool {
		v.whoami(c)
		return v.grants("refresh_token") >= 2
	})
	if n := len(v.asked()); n != 1 {
		t.Errorf("the user was asked %d times, want once", n)
	}
}

// TestRefreshRefused uses a refresh token twice. The issuer then rejects all tokens of that grant,
// and the user must log in again. The same applies to a revoked token.
func TestRefreshRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, issuers.at(t, ""), formatOpaque, withoutCache)
	v := newVisitor(t, s, "alice", nil)
	c := v.mustDial(mcp.LatestRevision)
	id := v.whoami(c).ClientID
	s.issuer.lose(t, "token", v.token())
	v.whoami(c)
	spent := v.toIssuer.matching(func(r recorded) bool { return r.form.Get("grant_type") == "refresh_token" })
	if len(spent) != 1 || len(v.asked()) != 1 {
		t.Fatalf("%d refreshes; the user was asked %d times", len(spent), len(v.asked()))
	}
	if status := s.issuer.replay(t, spent[0]); status != http.StatusBadRequest {
		t.Fatalf("a refresh token that was used: status %d", status)
	}
	v.whoami(c)
	if n := len(v.asked()); n != 2 {
		t.Errorf("after a theft the user was asked %d times, want twice", n)
	}
	s.issuer.revoke(t, v.token(), id, "")
	v.whoami(c)
	if n := len(v.asked()); n != 3 || v.registrations() != 1 {
		t.Errorf("after a revocation the user was asked %d times, and the client registered %d times, want 3 and 1", n, v.registrations())
	}
}

// TestRevoked has tokens that are revoked although they have not expired. A site that caches the
// issuer's answer accepts them as long as its options say.
func TestRevoked(t *testing.T) {
	t.Parallel()
	is := issuers.at(t, "")
	fresh := newSite(t, is, formatOpaque, withoutCache)
	cached := newSite(t, is, formatOpaque, siteOptions{})
	for name, s := range map[string]*site{"asking each time": fresh, "caching": cached} {
		token := is.token(t, s.url, scopeRead)
		if r := s.call(t, "Bearer "+token); r.status != http.StatusOK {
			t.Fatalf("%s: status %d, %s", name, r.status, r.body)
		}
		is.revoke(t, token, machineID, machineSecret)
		before := s.calls.Load()
		r := s.call(t, "Bearer "+token)
		if s == cached {
			if r.status != http.StatusOK {
				t.Errorf("%s: status %d, %s", name, r.status, r.body)
			}
			continue
		}
		s.refused(t, name, r, http.StatusUnauthorized, "invalid_token", before)
	}
}

// TestRevokedAfterCache has a token that is revoked while the issuer's answer is
// in the cache.
func TestRevokedAfterCache(t *testing.T) {
	t.Parallel()
	is := issuers.at(t, "")
	s := newSite(t, is, formatOpaque, siteOptions{introspection: func(o *auth.IntrospectionOptions) { o.CacheTTL = 500 * time.Millisecond }})
	token := is.token(t, s.url, scopeRead)
	if r := s.call(t, "Bearer "+token); r.status != http.StatusOK {
		t.Fatalf("status %d, %s", r.status, r.body)
	}
	is.revoke(t, token, machineID, machineSecret)
	eventually(t, "the site refuses the token", func() bool {
		before := s.calls.Load()
		r := s.call(t, "Bearer "+token)
		if r.status == http.StatusOK {
			return false
		}
		s.refused(t, "revoked", r, http.StatusUnauthorized, "invalid_token", before)
		return true
	})
}

// TestStepUp makes a call that needs a scope without consent. The client requests that scope
// together with the scopes that it had.
func TestStepUp(t *testing.T) {
	for _, era := range eras {
		t.Run(era.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, issuers.at(t, ""), formatJWT, siteOptions{})
			v := newVisitor(t, s, "alice", func(v *visitor, o *oauth.ClientOptions) {
				o.Grant = oauth.AuthorizationCode{Prompter: v.loopback()}
			})
			c := v.mustDial(era.revision)
			v.whoami(c)
			for i, tool := range []string{"change", "rule"} {
				if _, err := client.CallTool[string](t.Context(), c, tool, nil); err != nil {
					t.Fatalf("%s: %v", tool, err)
				}
				if n := len(v.asked()); n != i+2 {
					t.Fatalf("%s: the user was asked %d times in all, want %d", tool, n, i+2)
				}
			}
			scopes := strings.Fields(v.asked()[2].Get("scope"))
			got := v.whoami(c)
			for _, want := range []string{scopeRead, scopeWrite, scopeAdmin} {
				if !slices.Contains(scopes, want) || !slices.Contains(got.Scopes, want) {
					t.Errorf("asked for %q and got %q, without %s", scopes, got.Scopes, want)
				}
			}
			if _, err := client.CallTool[string](t.Context(), c, "change", nil); err != nil {
				t.Errorf("what was agreed to before: %v", err)
			}
			if n := len(v.asked()); n != 3 || v.registrations() != 1 {
				t.Errorf("the user was asked %d times and the client registered %d times, want 3 and 1", n, v.registrations())
			}
		})
	}
}
