package auth_test

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/auth"
)

// Spec: C154 C155 C156 C157
func TestCallback(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(u *url.URL, q url.Values)
		want error
	}{
		{"as it should be", func(*url.URL, url.Values) {}, nil},
		{"more than it should have", func(_ *url.URL, q url.Values) { q.Set("session_state", "x") }, nil},
		{"no state", func(_ *url.URL, q url.Values) { q.Del("state") }, auth.ErrUntrusted},
		{"another state", func(_ *url.URL, q url.Values) { q.Set("state", "x") }, auth.ErrUntrusted},
		{"two states", func(_ *url.URL, q url.Values) { q.Add("state", "x") }, auth.ErrUntrusted},
		{"two codes", func(_ *url.URL, q url.Values) { q.Add("code", "x") }, auth.ErrUntrusted},
		{"two issuers", func(_ *url.URL, q url.Values) { q.Add("iss", worldAS) }, auth.ErrUntrusted},
		{"empty iss", func(_ *url.URL, q url.Values) { q.Set("iss", "") }, auth.ErrUntrusted},
		{"no code", func(_ *url.URL, q url.Values) { q.Del("code") }, auth.ErrUntrusted},
		{"code and error", func(_ *url.URL, q url.Values) { q.Set("error", "access_denied") }, auth.ErrDenied},
		{"another path", func(u *url.URL, _ url.Values) { u.Path += "x" }, auth.ErrUntrusted},
		{"another port", func(u *url.URL, _ url.Values) { u.Host = "127.0.0.1:80" }, auth.ErrUntrusted},
		{"another host", func(u *url.URL, _ url.Values) { u.Host = "evil.example.com" }, auth.ErrUntrusted},
		{"https", func(u *url.URL, _ url.Values) { u.Scheme = "https" }, auth.ErrUntrusted},
	} {
		w := newWorld(t)
		_, err := post(t.Context(), w.transport(func(o *auth.ClientOptions) {
			o.Grant = auth.AuthorizationCode{Prompter: w.user(func(u *url.URL) {
				q := u.Query()
				tt.edit(u, q)
				u.RawQuery = q.Encode()
			})}
		}))
		if !errors.Is(err, tt.want) || (err != nil) != (tt.want != nil) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
		if asked := w.count("/token"); (asked == 0) != (tt.want != nil) {
			t.Errorf("%s: %d token requests", tt.name, asked)
		}
	}
}

func TestCallbackIsNoURL(t *testing.T) {
	for _, text := range []string{"", "::", "http://127.0.0.1:3118/callback?%zz"} {
		w := newWorld(t)
		_, err := post(t.Context(), w.transport(func(o *auth.ClientOptions) {
			o.Grant = auth.AuthorizationCode{Prompter: auth.ManualPrompter{RedirectURI: worldCallback, Visit: func(context.Context, string) (string, error) { return text, nil }}}
		}))
		if !errors.Is(err, auth.ErrUntrusted) {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

// Nobody waits for a user for ever.
func TestNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		begin := time.Now()
		_, err := post(t.Context(), w.transport(func(o *auth.ClientOptions) {
			o.Grant = auth.AuthorizationCode{Prompter: auth.ManualPrompter{RedirectURI: worldCallback, Visit: func(ctx context.Context, _ string) (string, error) {
				<-ctx.Done()
				return "", ctx.Err()
			}}}
		}))
		if got := time.Since(begin); !errors.Is(err, auth.ErrConsentRequired) || got != 10*time.Minute {
			t.Errorf("got %v after %v", err, got)
		}
	})
}

// Spec: C147 C148
func TestRedirectURIs(t *testing.T) {
	for _, uri := range []string{"http://example.com/cb", "com.example.app:/cb", "javascript:alert(1)", "", "http://localhost.example.com/"} {
		w := newWorld(t)
		_, err := post(t.Context(), w.transport(func(o *auth.ClientOptions) {
			u := w.user(nil)
			u.RedirectURI = uri
			o.Grant = auth.AuthorizationCode{Prompter: u}
		}))
		if err == nil || w.count("/register")+w.count("/authorize") != 0 {
			t.Errorf("%q: got %v after %v", uri, err, w.requests())
		}
	}
	w := newWorld(t)
	_, err := post(t.Context(), w.transport(func(o *auth.ClientOptions) {
		o.ClientID, o.ClientIssuer = "x", worldAS
		o.Registration.RedirectURIs = []string{"http://127.0.0.1/other"}
	}))
	if err == nil || w.count("/authorize") != 0 {
		t.Errorf("a redirect URI that is not registered: %v", err)
	}
}
