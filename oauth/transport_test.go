package oauth_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
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

// scopesAsked returns the scopes of each authorization.
func scopesAsked(i *issuer.Issuer) []string {
	i.Mu.Lock()
	defer i.Mu.Unlock()
	var out []string
	for _, q := range i.Authorized {
		out = append(out, q.Get("scope"))
	}
	return out
}

// needHeader makes requests need the scopes in their header.
func needHeader(r *http.Request) []string { return strings.Fields(r.Header.Get("Need")) }

func postNeeding(ctx context.Context, rt http.RoundTripper, scopes string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, worldServer, strings.NewReader("hello"))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Need", scopes)
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	resp.Body.Close()
	return resp.StatusCode, nil
}

// Spec: C138 C139
func TestScopes(t *testing.T) {
	for _, tt := range []struct {
		name                string
		challenge           string
		resource, supported []string
		options             []string
		noOffline           bool
		want                string
	}{
		{"none", "", nil, nil, nil, false, ""},
		{"from the challenge", "a b", []string{"c"}, nil, nil, false, "a b"},
		{"from the metadata", "", []string{"c", "d"}, nil, nil, false, "c d"},
		{"from the options", "", []string{"c"}, nil, []string{"e"}, false, "e"},
		{"from the challenge and the options", "a", []string{"c"}, nil, []string{"e", "a"}, false, "a e"},
		{"offline access", "a", nil, []string{"offline_access"}, nil, false, "a offline_access"},
		{"offline access disabled", "a", nil, []string{"offline_access"}, nil, true, "a"},
		{"offline access alone", "", nil, []string{"offline_access"}, nil, false, ""},
		{"offline access not supported", "", []string{"c", "offline_access"}, []string{"c"}, nil, false, "c"},
		{"nonsense", `a\"b c`, nil, nil, nil, false, "c"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			if tt.challenge != "" {
				w.challenge = `Bearer scope="` + tt.challenge + `"`
			}
			prm := w.resource["/.well-known/oauth-protected-resource/mcp"].(map[string]any)
			prm["scopes_supported"] = tt.resource
			w.as[worldAS].Document()["scopes_supported"] = tt.supported
			mustPost(t, w.transport(func(o *oauth.ClientOptions) {
				o.Scopes = tt.options
				o.Grant = oauth.AuthorizationCode{Prompter: w.user(nil), NoOfflineAccess: tt.noOffline}
			}))
			if got := scopesAsked(w.as[worldAS]); !slices.Equal(got, []string{tt.want}) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			// OpenID providers omit offline_access without consent.
			consent := w.as[worldAS].Authorized[0].Get("prompt") == "consent"
			if want := strings.Contains(tt.want, "offline_access"); consent != want {
				t.Errorf("asks for consent: %v, want %v", consent, want)
			}
		})
	}
}

// Spec: C138 C139
func TestStepUp(t *testing.T) {
	w := newWorld(t)
	w.challenge, w.need = `Bearer scope="basic"`, needHeader
	rt := w.transport(nil)
	for _, scopes := range []string{"", "basic", "write", "basic", "admin", "write"} {
		if status, err := postNeeding(t.Context(), rt, scopes); status != http.StatusOK {
			t.Errorf("%q: got %d, %v", scopes, status, err)
		}
	}
	want := []string{"basic", "basic write", "basic write admin"}
	if diff := cmp.Diff(want, scopesAsked(w.as[worldAS])); diff != "" {
		t.Error(diff)
	}
}

// TestStepUpLimit has a server that always requires more scopes.
func TestStepUpLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		n := 0
		w.need = func(*http.Request) []string { n++; return []string{fmt.Sprint("scope-", n)} }
		rt := w.transport(nil)
		call := func(operation string, want int) {
			t.Helper()
			if got := stepUpState(t, w, rt, `{"method":"tools/call","params":{"name":"`+operation+`"}}`); got != want {
				t.Errorf("%s: got %d authorizations, want %d", operation, got, want)
			}
		}
		call("a", 3) // The first is the login.
		call("a", 0)
		call("b", 2)
		call("b", 0)
		<-time.After(11 * time.Minute)
		call("a", 2)
	})
}

// TestStepUpOperations has a server that always requires more scopes for several operations; a
// request's message determines its operation.
func TestStepUpOperations(t *testing.T) {
	w := newWorld(t)
	n := 0
	w.need = func(*http.Request) []string { n++; return []string{fmt.Sprint("scope-", n)} }
	rt := w.transport(nil)
	for _, tt := range []struct {
		body string
		want int
	}{
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}`, 3}, // the first is the login
		{`{"params":{"arguments":{"name":"b"},"name":"a"},"method":"tools/call","id":2,"jsonrpc":"2.0"}`, 0},
		{`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"b"}}`, 2},
		{`{"jsonrpc":"2.0","id":4,"method":"prompts/get","params":{"name":"b"}}`, 2},
		{`{"jsonrpc":"2.0","id":5,"method":"resources/read","params":{"uri":"a:b"}}`, 2},
		{`{"jsonrpc":"2.0","id":6,"method":"tools/list"}`, 2},
		{`{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"cursor":"2"}}`, 0},
		// the limit for all operations together
		{`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"c"}}`, 0},
		{`hello`, 0},
	} {
		if got := stepUpState(t, w, rt, tt.body); got != tt.want {
			t.Errorf("%.80s: got %d authorizations, want %d", tt.body, got, tt.want)
		}
	}
}

// stepUpState returns how many logins a request with this body starts while the server keeps
// rejecting it.
func stepUpState(t *testing.T, w *world, rt http.RoundTripper, body string) int {
	t.Helper()
	before := len(scopesAsked(w.as[worldAS]))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, worldServer, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := rt.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusForbidden {
		t.Fatalf("%.80s: got %+v, %v", body, resp, err)
	}
	resp.Body.Close()
	return len(scopesAsked(w.as[worldAS])) - before
}

// TestStepUpNames checks that requests without a message are one operation, and that the stored
// part of a name is bounded.
func TestStepUpNames(t *testing.T) {
	w := newWorld(t)
	n := 0
	w.need = func(*http.Request) []string { n++; return []string{fmt.Sprint("scope-", n)} }
	rt := w.transport(nil)
	long := strings.Repeat("n", 1000)
	for _, tt := range []struct {
		body string
		want int
	}{
		{`hello`, 3}, // the first is the login
		{``, 0},
		{`[]`, 0},
		{`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"` + long + `1"}}`, 2},
		{`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"` + long + `2"}}`, 0},
	} {
		if got := stepUpState(t, w, rt, tt.body); got != tt.want {
			t.Errorf("%.80s: got %d authorizations, want %d", tt.body, got, tt.want)
		}
	}
}

// TestWithoutLogin sends requests that must not start a login, before and after others that may.
func TestWithoutLogin(t *testing.T) {
	w := newWorld(t)
	w.need = needHeader
	path := filepath.Join(t.TempDir(), "tokens.json")
	rt, other := kept(t, w, path), kept(t, w, path)
	quiet := oauth.WithoutLogin(t.Context())
	refused := func(when string, rt http.RoundTripper, scopes string, asked int) {
		t.Helper()
		for range 3 {
			_, err := postNeeding(quiet, rt, scopes)
			if e := (*oauth.AuthorizationError)(nil); !errors.As(err, &e) || !errors.Is(err, oauth.ErrConsentRequired) {
				t.Errorf("%s: got %v", when, err)
			}
		}
		if got := len(scopesAsked(w.as[worldAS])); got != asked || w.count("/register") != min(asked, 1) {
			t.Errorf("%s: the user was asked %d times, want %d; %v", when, got, asked, w.requests())
		}
	}
	refused("at first", rt, "", 0)
	refused("at first", other, "", 0)
	mustPost(t, rt) // this transport has not used the token yet
	for name, rt := range map[string]http.RoundTripper{"the token that there is": rt, "one of another process": other} {
		if status, err := postNeeding(quiet, rt, ""); status != http.StatusOK {
			t.Errorf("%s: got %d, %v", name, status, err)
		}
	}
	refused("for more scopes", rt, "write", 1)
	if status, err := postNeeding(t.Context(), rt, "write"); status != http.StatusOK {
		t.Errorf("more scopes, when it matters: got %d, %v", status, err)
	}
}

// TestWithoutLoginFails shows that the failure of a request without a login does not affect other
// requests.
func TestWithoutLoginFails(t *testing.T) {
	w := newWorld(t)
	rt := w.transport(nil)
	prm := w.resource["/.well-known/oauth-protected-resource/mcp"].(map[string]any)
	good := prm["authorization_servers"]
	prm["authorization_servers"] = []string{"http://evil.example"}
	if _, err := postNeeding(oauth.WithoutLogin(t.Context()), rt, ""); !errors.Is(err, oauth.ErrUntrusted) {
		t.Errorf("got %v", err)
	}
	prm["authorization_servers"] = good
	mustPost(t, rt)
}

// TestWithoutLoginForItself checks that without a user, such requests are handled and limited like
// others.
func TestWithoutLoginForItself(t *testing.T) {
	w := newWorld(t)
	n := 0
	w.need = func(*http.Request) []string { n++; return []string{fmt.Sprint("scope-", n)} }
	w.as[worldAS].AuthMethods("client_secret_basic")
	w.as[worldAS].Clients["c"] = "s"
	rt := w.transport(func(o *oauth.ClientOptions) {
		o.Grant, o.ClientID, o.ClientSecret, o.ClientIssuer = oauth.ClientCredentials{}, "c", auth.NewSecret("s"), worldAS
	})
	for range 3 {
		if status, err := postNeeding(oauth.WithoutLogin(t.Context()), rt, ""); status != http.StatusForbidden {
			t.Errorf("got %d, %v", status, err)
		}
	}
	if got := w.count("/token"); got != 3 { // the first one, and two with more scopes
		t.Errorf("got %d token requests, want 3", got)
	}
}

// kept is the transport of a process whose tokens are kept in a file.
func kept(t *testing.T, w *world, path string) http.RoundTripper {
	t.Helper()
	store, err := oauth.NewFileStore(path)
	if err != nil {
		t.Fatal(err)
	}
	return w.transport(func(o *oauth.ClientOptions) { o.Store = store })
}

// TestStepUpForNothing shows that a server that requires scopes that are already granted does not
// cause another login.
func TestStepUpForNothing(t *testing.T) {
	w := newWorld(t)
	w.challenge = `Bearer scope="a"`
	w.need = func(*http.Request) []string { return []string{"a", "b"} }
	w.as[worldAS].Grant = func([]string) []string { return []string{"a"} }
	w.as[worldAS].EditToken = func(m map[string]any) { m["scope"] = "a b" }
	rt := w.transport(nil)
	if status, err := postNeeding(t.Context(), rt, ""); status != http.StatusForbidden || len(scopesAsked(w.as[worldAS])) != 1 {
		t.Errorf("got %d, %v after %v", status, err, w.requests())
	}
}

func TestDenialIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		as := w.as[worldAS]
		w.need = needHeader
		as.Deny = "access_denied"
		c := w.client(nil)
		rt, err := c.Transport(worldServer, w)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := post(t.Context(), rt); !errors.Is(err, oauth.ErrDenied) {
				t.Errorf("got %v", err)
			}
		}
		if n := len(scopesAsked(as)); n != 1 {
			t.Errorf("asked %d times", n)
		}
		as.Deny = ""
		<-time.After(10 * time.Minute)
		mustPost(t, rt)
		// A login for more scopes for one operation: other operations continue.
		as.Deny = "access_denied"
		if _, err := postNeeding(t.Context(), rt, "write"); !errors.Is(err, oauth.ErrDenied) {
			t.Errorf("got %v", err)
		}
		if status, err := postNeeding(t.Context(), rt, "write"); status != http.StatusForbidden {
			t.Errorf("got %d, %v", status, err)
		}
		mustPost(t, rt)
		if n := len(scopesAsked(as)); n != 3 {
			t.Errorf("asked %d times", n)
		}
		as.Deny = ""
		if err := c.Forget(t.Context(), worldServer); err != nil {
			t.Fatal(err)
		}
		if status, err := postNeeding(t.Context(), rt, "write"); status != http.StatusOK {
			t.Errorf("got %d, %v", status, err)
		}
	})
}

// TestOneLogin has many concurrent requests, of which the first is canceled.
func TestOneLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		user := w.user(nil)
		visits := 0
		slow := oauth.ManualPrompter{RedirectURI: user.RedirectURI, Visit: func(ctx context.Context, u string) (string, error) {
			visits++
			select {
			case <-time.After(time.Minute):
			case <-ctx.Done():
				return "", ctx.Err()
			}
			return user.Visit(ctx, u)
		}}
		rt := w.transport(func(o *oauth.ClientOptions) { o.Grant = oauth.AuthorizationCode{Prompter: slow} })
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := post(ctx, rt); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		})
		synctest.Wait()
		for range 10 {
			wg.Go(func() { mustPost(t, rt) })
		}
		synctest.Wait()
		cancel()
		wg.Wait()
		if visits != 2 || w.count("/token") != 1 {
			t.Errorf("got %d visits and %d token requests", visits, w.count("/token"))
		}
	})
}

// TestOneFailure checks that a failed login fails all requests that waited for it.
func TestOneFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		rt := w.transport(func(o *oauth.ClientOptions) {
			o.Grant = oauth.AuthorizationCode{Prompter: oauth.ManualPrompter{RedirectURI: worldCallback, Visit: func(ctx context.Context, u string) (string, error) {
				<-time.After(time.Minute)
				return "", errors.New("no browser")
			}}}
		})
		begin := time.Now()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if _, err := post(t.Context(), rt); err == nil || !strings.Contains(err.Error(), "no browser") {
					t.Errorf("got %v", err)
				}
			})
		}
		wg.Wait()
		if got := time.Since(begin); got != time.Minute {
			t.Errorf("took %v", got)
		}
	})
}
