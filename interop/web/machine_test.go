package web

import (
	"errors"
	"net/http"
	"testing"

	"mcpwire/auth"
	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/oauth"
)

// TestClientCredentials has clients that act for themselves. They authenticate
// with a secret that needs escaping, in each of the two ways, or with a key.
func TestClientCredentials(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*oauth.ClientOptions)
		want   string
	}{
		{"secret", func(o *oauth.ClientOptions) { o.ClientID, o.ClientSecret = machineID, auth.NewSecret(machineSecret) }, machineID},
		{"key", func(o *oauth.ClientOptions) {
			o.ClientID, o.ClientKey = keyedID, &oauth.ClientKey{Key: keyed(), KeyID: "keyed-1"}
		}, keyedID},
		{"bound to a key", func(o *oauth.ClientOptions) {
			o.ClientID, o.ClientSecret, o.DPoP = machineID, auth.NewSecret(machineSecret), oauth.DPoPOn
		}, machineID},
	} {
		for _, format := range []string{formatJWT, formatOpaque} {
			for _, era := range eras {
				t.Run(tt.name+" "+format+" "+era.name, func(t *testing.T) {
					t.Parallel()
					o := withDPoP(false, false)
					o.introspection = withoutCache.introspection
					s := newSite(t, issuers.at(t, ""), format, o)
					v := newVisitor(t, s, "nobody", func(_ *visitor, o *oauth.ClientOptions) {
						o.Grant, o.ClientIssuer = oauth.ClientCredentials{}, s.issuer.url
						tt.change(o)
					})
					c := v.mustDial(era.revision)
					checkMachine(t, v, c, tt.want, format)
				})
			}
		}
	}
}

func checkMachine(t *testing.T, v *visitor, c *client.Client, id, format string) {
	t.Helper()
	if got := v.whoami(c); got.ClientID != id || got.Issuer != v.site.issuer.url {
		t.Errorf("the site takes the caller for %+v", got)
	}
	if _, err := client.CallTool[string](t.Context(), c, "change", nil); err != nil {
		t.Errorf("a tool that needs more: %v", err)
	}
	if format == formatOpaque && id == machineID {
		v.site.issuer.revoke(t, v.token(), machineID, machineSecret)
		v.whoami(c)
	}
	if n := len(v.asked()) + v.registrations(); n != 0 {
		t.Errorf("%d users and registrations, want none", n)
	}
}

// TestClientCredentialsRefused has a secret that is wrong, and a key that is
// another client's.
func TestClientCredentialsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, issuers.at(t, ""), formatJWT, siteOptions{})
	for name, change := range map[string]func(*oauth.ClientOptions){
		"secret": func(o *oauth.ClientOptions) { o.ClientID, o.ClientSecret = machineID, auth.NewSecret("a guess") },
		"key": func(o *oauth.ClientOptions) {
			o.ClientID, o.ClientKey = keyedID, &oauth.ClientKey{Key: newProver(t).key}
		},
	} {
		v := newVisitor(t, s, "nobody", func(_ *visitor, o *oauth.ClientOptions) {
			o.Grant, o.ClientIssuer = oauth.ClientCredentials{}, s.issuer.url
			change(o)
		})
		_, err := v.dial(mcp.LatestRevision)
		var failed *oauth.AuthorizationError
		if !errors.Is(err, oauth.ErrRefused) || !errors.As(err, &failed) || failed.Code != "invalid_client" {
			t.Errorf("%s: got %v, want that the issuer refuses the client", name, err)
		}
	}
}

// TestForeignTokens checks that the site rejects tokens of its issuer for another resource, tokens
// that were changed or invented, and tokens of another issuer.
func TestForeignTokens(t *testing.T) {
	t.Parallel()
	is, realm := issuers.at(t, ""), issuers.at(t, "/realm")
	for _, format := range []string{formatJWT, formatOpaque} {
		s := newSite(t, is, format, siteOptions{})
		good := is.token(t, s.url, scopeRead)
		for name, token := range map[string]string{
			"another site's":        is.token(t, newSite(t, is, format, siteOptions{}).url, scopeRead),
			"of a part of the site": is.token(t, s.url+"/more", scopeRead),
			"another issuer's":      realm.token(t, s.url, scopeRead),
			"changed":               good[:len(good)-6] + "AAAAAA",
			"made up":               "nothing-that-anybody-issued",
		} {
			s.refused(t, format+" "+name, s.call(t, "Bearer "+token), http.StatusUnauthorized, "invalid_token", 0)
		}
		s.refused(t, format+" without a scope", s.call(t, "Bearer "+is.token(t, s.url, scopeWrite)), http.StatusForbidden, "insufficient_scope", 0)
		if r := s.call(t, "Bearer "+good); r.status != http.StatusOK {
			t.Errorf("%s: a good token: status %d, %s", format, r.status, r.body)
		}
	}
}

// TestExpired has a token that had expired when it was issued, as from an issuer whose clock is
// late.
func TestExpired(t *testing.T) {
	t.Parallel()
	is := issuers.at(t, "")
	s := newSite(t, is, formatStale, siteOptions{})
	s.refused(t, "expired", s.call(t, "Bearer "+is.token(t, s.url, scopeRead)), http.StatusUnauthorized, "invalid_token", 0)
}
