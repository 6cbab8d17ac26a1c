package oauth_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/oauth"
)

// Spec: C154 C155 C156 C157
func TestCallback(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(u *url.URL, q url.Values)
		want error
	}{
		{"valid", func(*url.URL, url.Values) {}, nil},
		{"additional parameters", func(_ *url.URL, q url.Values) { q.Set("session_state", "x") }, nil},
		{"no state", func(_ *url.URL, q url.Values) { q.Del("state") }, oauth.ErrUntrusted},
		{"another state", func(_ *url.URL, q url.Values) { q.Set("state", "x") }, oauth.ErrUntrusted},
		{"two states", func(_ *url.URL, q url.Values) { q.Add("state", "x") }, oauth.ErrUntrusted},
		{"two codes", func(_ *url.URL, q url.Values) { q.Add("code", "x") }, oauth.ErrUntrusted},
		{"two issuers", func(_ *url.URL, q url.Values) { q.Add("iss", worldAS) }, oauth.ErrUntrusted},
		{"empty iss", func(_ *url.URL, q url.Values) { q.Set("iss", "") }, oauth.ErrUntrusted},
		{"no code", func(_ *url.URL, q url.Values) { q.Del("code") }, oauth.ErrUntrusted},
		{"code and error", func(_ *url.URL, q url.Values) { q.Set("error", "access_denied") }, oauth.ErrDenied},
		{"another path", func(u *url.URL, _ url.Values) { u.Path += "x" }, oauth.ErrUntrusted},
		{"another port", func(u *url.URL, _ url.Values) { u.Host = "127.0.0.1:80" }, oauth.ErrUntrusted},
		{"another host", func(u *url.URL, _ url.Values) { u.Host = "evil.example.com" }, oauth.ErrUntrusted},
		{"https", func(u *url.URL, _ url.Values) { u.Scheme = "https" }, oauth.ErrUntrusted},
	} {
		w := newWorld(t)
		_, err := post(t.Context(), w.transport(func(o *oauth.ClientOptions) {
			o.Grant = oauth.AuthorizationCode{Prompter: w.user(func(u *url.URL) {
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
		_, err := post(t.Context(), w.transport(func(o *oauth.ClientOptions) {
			o.Grant = oauth.AuthorizationCode{Prompter: oauth.ManualPrompter{RedirectURI: worldCallback, Visit: func(context.Context, string) (string, error) { return text, nil }}}
		}))
		if !errors.Is(err, oauth.ErrUntrusted) {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

// TestNoAnswer shows that the wait for a user is limited.
func TestNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		begin := time.Now()
		_, err := post(t.Context(), w.transport(func(o *oauth.ClientOptions) {
			o.Grant = oauth.AuthorizationCode{Prompter: oauth.ManualPrompter{RedirectURI: worldCallback, Visit: func(ctx context.Context, _ string) (string, error) {
				<-ctx.Done()
				return "", ctx.Err()
			}}}
		}))
		if got := time.Since(begin); !errors.Is(err, oauth.ErrConsentRequired) || got != 10*time.Minute {
			t.Errorf("got %v after %v", err, got)
		}
	})
}

// Spec: C147 C148
func TestRedirectURIs(t *testing.T) {
	for _, uri := range []string{"http://example.com/cb", "com.example.app:/cb", "javascript:alert(1)", "", "http://localhost.example.com/"} {
		w := newWorld(t)
		_, err := post(t.Context(), w.transport(func(o *oauth.ClientOptions) {
			u := w.user(nil)
			u.RedirectURI = uri
			o.Grant = oauth.AuthorizationCode{Prompter: u}
		}))
		if err == nil || w.count("/register")+w.count("/authorize") != 0 {
			t.Errorf("%q: got %v after %v", uri, err, w.requests())
		}
	}
	w := newWorld(t)
	_, err := post(t.Context(), w.transport(func(o *oauth.ClientOptions) {
		o.ClientID, o.ClientIssuer = "x", worldAS
		o.Registration.RedirectURIs = []string{"http://127.0.0.1/other"}
	}))
	if err == nil || w.count("/authorize") != 0 {
		t.Errorf("a redirect URI that is not registered: %v", err)
	}
}

// browse sends a request to a listener and returns status and body.
func browse(t *testing.T, method, address, host string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	tr := &http.Transport{DisableKeepAlives: true}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Errorf("%s: %v", address, err)
		return 0, ""
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

const authorizeURL = "https://as.example.com/authorize?state=right"

// A clumsyPrompter returns prompts whose Close fails.
type clumsyPrompter struct{ oauth.Prompter }

type clumsyPrompt struct{ oauth.Prompt }

var errClumsy = errors.New("the listener was gone")

func (p clumsyPrompter) Prepare(ctx context.Context, known []string) (oauth.Prompt, error) {
	prompt, err := p.Prompter.Prepare(ctx, known)
	return clumsyPrompt{prompt}, err
}

func (p clumsyPrompt) Close() error { return errors.Join(p.Prompt.Close(), errClumsy) }

// TestPromptNotClosed shows that a prompt that fails to close does not lose the tokens, and is
// logged.
func TestPromptNotClosed(t *testing.T) {
	for _, denied := range []bool{false, true} {
		w := newWorld(t)
		var log strings.Builder
		rt := w.transport(func(o *oauth.ClientOptions) {
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
			o.Grant = oauth.AuthorizationCode{Prompter: clumsyPrompter{w.user(func(u *url.URL) {
				if denied {
					u.RawQuery = strings.Replace(u.RawQuery, "code=", "error=access_denied&x=", 1)
				}
			})}}
		})
		resp, err := post(t.Context(), rt)
		switch {
		case denied:
			if err == nil || !strings.Contains(err.Error(), "access_denied") {
				t.Errorf("denied: got error %v", err)
			}
		case err != nil || resp.StatusCode != http.StatusOK:
			t.Errorf("got %v, error %v", resp, err)
		}
		if !strings.Contains(log.String(), errClumsy.Error()) {
			t.Errorf("the log has no entry about it: %s", log.String())
		}
	}
}

// Spec: C161 C162
func TestLoopback(t *testing.T) {
	var shown string
	l := oauth.LoopbackPrompter{Show: func(u string) { shown = u }}
	var uri string
	l.Browse = func(_ context.Context, u string) error {
		if u != authorizeURL {
			t.Errorf("browser opens %s", u)
		}
		good := uri + "?state=right&code=x%26y&iss=z"
		r, err := url.Parse(uri)
		if err != nil {
			return err
		}
		for _, tt := range []struct{ what, method, address, host string }{
			{"no state", "GET", uri + "?code=x", r.Host},
			{"another state", "GET", uri + "?code=x&state=wrong", r.Host},
			{"another host", "GET", good, "evil.example.com"},
			{"another port", "GET", good, "127.0.0.1:1"},
			{"no port", "GET", good, "127.0.0.1"},
			{"localhost", "GET", good, "localhost:" + r.Port()},
			{"POST", "POST", good, r.Host},
			{"HEAD", "HEAD", good, r.Host},
			{"another path", "GET", strings.Replace(good, "?", "/?", 1), r.Host},
			{"the root", "GET", "http://" + r.Host + "/?state=right&code=x", r.Host},
		} {
			if status, _ := browse(t, tt.method, tt.address, tt.host); status != http.StatusNotFound {
				t.Errorf("%s: got status %d", tt.what, status)
			}
		}
		status, page := browse(t, "GET", good, r.Host)
		if status != http.StatusOK || !strings.Contains(page, "close this window") || strings.Contains(page, "right") {
			t.Errorf("got %d %s", status, page)
		}
		if status, _ := browse(t, "GET", good, r.Host); status != http.StatusNotFound {
			t.Errorf("the second time: status %d", status)
		}
		return nil
	}
	r, err := l.Prepare(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	uri = r.URI()
	if u, err := url.Parse(uri); err != nil || u.Hostname() != "127.0.0.1" || len(u.Path) < len("/callback/")+20 {
		t.Errorf("redirect URI %s", uri)
	}
	got, err := r.Authorize(t.Context(), authorizeURL)
	if want := uri + "?state=right&code=x%26y&iss=z"; got != want || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if shown != authorizeURL {
		t.Errorf("shown %q", shown)
	}
	u, err := url.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := net.Dial("tcp", u.Host); err == nil {
		c.Close()
		t.Error("still listening")
	}
}

func TestLoopbackKnown(t *testing.T) {
	l := oauth.LoopbackPrompter{Show: func(string) {}}
	for _, tt := range []struct {
		known []string
		want  string
	}{
		{[]string{"http://127.0.0.1/callback"}, "http://127.0.0.1:%s/callback"},
		{[]string{"https://example.com/", "http://localhost:3000/a%2Fb"}, "http://localhost:%s/a%%2Fb"},
	} {
		r, err := l.Prepare(t.Context(), tt.known)
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(r.URI())
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf(tt.want, u.Port()); r.URI() != want {
			t.Errorf("got %s, want %s", r.URI(), want)
		}
		r.Close()
	}
	if _, err := l.Prepare(t.Context(), []string{"https://example.com/"}); err == nil {
		t.Error("no error for a redirect URI elsewhere")
	}
	if _, err := (oauth.LoopbackPrompter{}).Prepare(t.Context(), nil); err == nil {
		t.Error("no error without Show and Browse")
	}
}

// TestLoopbackAsks has a user open the URL before the browser is redirected.
func TestLoopbackAsks(t *testing.T) {
	shown := make(chan string, 1)
	var asked error
	r, err := oauth.LoopbackPrompter{Show: func(u string) { shown <- u }, Browse: func(ctx context.Context, _ string) error {
		<-ctx.Done()
		asked = ctx.Err()
		return asked
	}}.Prepare(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var visited sync.WaitGroup
	defer visited.Wait()
	visited.Go(func() {
		<-shown
		u, err := url.Parse(r.URI())
		if err != nil {
			t.Error(err)
			return
		}
		browse(t, "GET", r.URI()+"?state=right&code=x", u.Host)
	})
	got, err := r.Authorize(t.Context(), authorizeURL)
	if want := r.URI() + "?state=right&code=x"; got != want || err != nil {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	if asked == nil {
		t.Error("Authorize returned before Browse")
	}
}

func TestLoopbackEnds(t *testing.T) {
	browser := errors.New("no browser")
	for _, tt := range []struct {
		name string
		l    oauth.LoopbackPrompter
		url  string
		want error
	}{
		{"timeout", oauth.LoopbackPrompter{Show: func(string) {}, Timeout: 1}, authorizeURL, oauth.ErrConsentRequired},
		{"browser", oauth.LoopbackPrompter{Browse: func(context.Context, string) error { return browser }}, authorizeURL, browser},
		{"script", oauth.LoopbackPrompter{Show: func(string) { t.Error("shown") }}, "javascript:alert(1)", oauth.ErrUntrusted},
		{"http", oauth.LoopbackPrompter{Show: func(string) { t.Error("shown") }}, "http://example.com/", oauth.ErrUntrusted},
		{"option", oauth.LoopbackPrompter{Show: func(string) { t.Error("shown") }}, "-x", oauth.ErrUntrusted},
	} {
		r, err := tt.l.Prepare(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Authorize(t.Context(), tt.url); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
		if err := r.Close(); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, err := oauth.LoopbackPrompter{Show: func(string) { cancel() }}.Prepare(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Authorize(ctx, authorizeURL); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestLoopbackLogin performs a login with a listener. The registration is reused with another port.
func TestLoopbackLogin(t *testing.T) {
	w := newWorld(t)
	w.as[worldAS].Iss = worldAS
	c := w.client(func(o *oauth.ClientOptions) {
		o.Grant = oauth.AuthorizationCode{Prompter: oauth.LoopbackPrompter{Browse: func(ctx context.Context, u string) error {
			back, err := w.user(nil).Visit(ctx, u)
			if err != nil {
				return err
			}
			r, err := url.Parse(back)
			if err != nil {
				return err
			}
			if status, _ := browse(t, "GET", back, r.Host); status != http.StatusOK {
				return fmt.Errorf("status %d", status)
			}
			return nil
		}}}
	})
	rt, err := c.Transport(worldServer, w)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		mustPost(t, rt)
		if err := c.Forget(t.Context(), worldServer); err != nil {
			t.Fatal(err)
		}
	}
	if w.count("/register") != 1 || w.count("/authorize") != 2 {
		t.Errorf("got %v", w.requests())
	}
}
