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

// TestClientCredentials tests clients without users. They authenticate with a secret that needs
// escaping, or with a key. One of them binds its tokens to a key.
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
					v := newSiteUser(t, s, "nobody", func(_ *siteUser, o *oauth.ClientOptions) {
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

func checkMachine(t *testing.T, v *siteUser, c *client.Client, id, format string) {
	t.Helper()
	if got := v.whoami(c); got.ClientID != id || got.Issuer != v.site.issuer.url {
		t.Errorf("identity = %+v, want the client id %s", got, id)
	}
	if _, err := client.CallTool[string](t.Context(), c, "change", nil); err != nil {
		t.Errorf("call of a tool that needs another scope: %v", err)
	}
	if format == formatOpaque && id == machineID {
		v.site.issuer.revoke(t, v.token(), machineID, machineSecret)
		v.whoami(c)
	}
	if n := len(v.logins()) + v.registrations(); n != 0 {
		t.Errorf("logins and registrations = %d, want 0", n)
	}
}

// TestClientCredentialsRejected tests a wrong secret, and the key of another client.
func TestClientCredentialsRejected(t *testing.T) {
	t.Parallel()
	s := newSite(t, issuers.at(t, ""), formatJWT, siteOptions{})
	for name, change := range map[string]func(*oauth.ClientOptions){
		"secret": func(o *oauth.ClientOptions) { o.ClientID, o.ClientSecret = machineID, auth.NewSecret("a guess") },
		"key": func(o *oauth.ClientOptions) {
			o.ClientID, o.ClientKey = keyedID, &oauth.ClientKey{Key: newProver(t).key}
		},
	} {
		v := newSiteUser(t, s, "nobody", func(_ *siteUser, o *oauth.ClientOptions) {
			o.Grant, o.ClientIssuer = oauth.ClientCredentials{}, s.issuer.url
			change(o)
		})
		_, err := v.dial(mcp.LatestRevision)
		var failed *oauth.AuthorizationError
		if !errors.Is(err, oauth.ErrRefused) || !errors.As(err, &failed) || failed.Code != "invalid_client" {
			t.Errorf("%s: error = %v, want invalid_client", name, err)
		}
	}
}

// TestForeignTokens checks that the site rejects tokens for another resource, changed or invented
// tokens, and tokens of another issuer.
func TestForeignTokens(t *testing.T) {
	t.Parallel()
	is, realm := issuers.at(t, ""), issuers.at(t, "/realm")
	for _, format := range []string{formatJWT, formatOpaque} {
		s := newSite(t, is, format, siteOptions{})
		valid := is.token(t, s.url, scopeRead)
		for name, token := range map[string]string{
			"for another site":       is.token(t, newSite(t, is, format, siteOptions{}).url, scopeRead),
			"for a part of the site": is.token(t, s.url+"/more", scopeRead),
			"of another issuer":      realm.token(t, s.url, scopeRead),
			"changed":                valid[:len(valid)-6] + "AAAAAA",
			"invented":               "nothing-that-anybody-issued",
		} {
			s.checkRejected(t, format+" "+name, s.call(t, "Bearer "+token), http.StatusUnauthorized, "invalid_token", 0)
		}
		s.checkRejected(t, format+" without a scope", s.call(t, "Bearer "+is.token(t, s.url, scopeWrite)), http.StatusForbidden, "insufficient_scope", 0)
		if r := s.call(t, "Bearer "+valid); r.status != http.StatusOK {
			t.Errorf("%s: valid token: status = %d, want %d: %s", format, r.status, http.StatusOK, r.body)
		}
	}
}

// TestExpired checks that the site rejects an expired token.
func TestExpired(t *testing.T) {
	t.Parallel()
	is := issuers.at(t, "")
	s := newSite(t, is, formatStale, siteOptions{})
	s.checkRejected(t, "expired", s.call(t, "Bearer "+is.token(t, s.url, scopeRead)), http.StatusUnauthorized, "invalid_token", 0)
}
