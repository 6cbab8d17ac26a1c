package oauth_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/internal/base/userwait"
	"mcpwire/internal/test/issuer"
	"mcpwire/oauth"
)

// refreshing returns a world with refresh tokens.
func refreshing(t *testing.T) *world {
	w := newWorld(t)
	w.as[worldAS].Refresh = true
	return w
}

// lastForm returns the last form that the token endpoint got.
func lastForm(i *issuer.Issuer) url.Values {
	i.Mu.Lock()
	defer i.Mu.Unlock()
	return i.Asked[len(i.Asked)-1]
}

// Spec: C131 C159 C160
func TestRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := refreshing(t)
		rt := w.transport(nil)
		mustPost(t, rt)
		<-time.After(time.Hour - 31*time.Second)
		mustPost(t, rt)
		if got := w.count("/token"); got != 1 {
			t.Errorf("refreshed too early: %d token requests", got)
		}
		<-time.After(time.Second)
		// The refresh token is sent to its own issuer, whatever the metadata says now.
		w.as[worldAS].Document()["token_endpoint"] = "https://evil.example.com/token"
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { mustPost(t, rt) })
		}
		wg.Wait()
		form := lastForm(w.as[worldAS])
		if w.count("/token") != 2 || form.Get("grant_type") != "refresh_token" || form.Get("resource") != worldServer {
			t.Errorf("got %d token requests, the last %v", w.count("/token"), form)
		}
		if w.count("/authorize") != 1 || w.count("evil.example.com/token") != 0 {
			t.Errorf("got %v", w.requests())
		}
	})
}

// TestRefreshAtUnauthorized checks that a rejected token is refreshed before the user must log in.
func TestRefreshAtUnauthorized(t *testing.T) {
	w := refreshing(t)
	rt := w.transport(nil)
	mustPost(t, rt)
	w.revoke()
	mustPost(t, rt)
	if w.count("/authorize") != 1 || w.count("/token") != 2 {
		t.Errorf("got %v", w.requests())
	}
}

func TestRefreshFails(t *testing.T) {
	for _, tt := range []struct {
		name string
		// code is the error, or "down" for no response.
		code string
		// wait is the time between the first token and the second request.
		wait time.Duration
		want error
		// authorized is the number of authorizations; more, that of requests after the failure is
		// over.
		authorized, asked int
	}{
		{"down, token still valid", "down", time.Hour - 20*time.Second, nil, 1, 1},
		{"down, token expired", "down", 2 * time.Hour, oauth.ErrUnreachable, 1, 1},
		{"grant is invalid", "invalid_grant", time.Hour - 20*time.Second, nil, 1, 2},
		{"rejected temporarily", "invalid_request", time.Hour - 20*time.Second, nil, 1, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := refreshing(t)
				as := w.as[worldAS]
				rt := w.transport(nil)
				mustPost(t, rt)
				<-time.After(tt.wait)
				as.TokenError = func(url.Values) string { return tt.code }
				if tt.code == "down" {
					w.odd[worldAS+"/token"] = func(out http.ResponseWriter, _ *http.Request) { out.WriteHeader(503) }
				}
				for range 3 {
					if _, err := post(t.Context(), rt); !errors.Is(err, tt.want) || (err != nil) != (tt.want != nil) {
						t.Errorf("got %v, want %v", err, tt.want)
					}
				}
				if len(as.Authorized) != tt.authorized || len(as.Asked) != tt.asked {
					t.Errorf("got %d authorizations and %d token requests", len(as.Authorized), len(as.Asked))
				}
				// After that the old refresh token still works, unless it is invalid.
				as.TokenError = nil
				delete(w.odd, worldAS+"/token")
				<-time.After(time.Minute)
				w.revoke()
				mustPost(t, rt)
				if want := tt.code != "invalid_grant"; (lastForm(as).Get("grant_type") == "refresh_token") != want {
					t.Errorf("got %v in the end", lastForm(as))
				}
			})
		})
	}
}

// hookStore calls a function before each Save.
type hookStore struct {
	oauth.Store
	save func(oauth.RecordKey, *oauth.Record) error
}

func (s *hookStore) Save(ctx context.Context, k oauth.RecordKey, r *oauth.Record) error {
	if err := s.save(k, r); err != nil {
		return err
	}
	return s.Store.Save(ctx, k, r)
}

// TestPersistFirst checks that nothing is sent with a token that is not stored.
func TestPersistFirst(t *testing.T) {
	w := refreshing(t)
	broken := errors.New("disk full")
	var fail error
	store := &hookStore{Store: oauth.NewMemoryStore()}
	var sentWithNew bool
	store.save = func(_ oauth.RecordKey, r *oauth.Record) error {
		if r.Tokens != nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, h := range w.sent {
				sentWithNew = sentWithNew || h.Get("Authorization") == "Bearer "+r.Tokens.Access.Reveal()
			}
			return fail
		}
		return nil
	}
	rt := w.transport(func(o *oauth.ClientOptions) { o.Store = store })
	mustPost(t, rt)
	w.revoke()
	fail = broken
	for range 2 {
		if _, err := post(t.Context(), rt); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	}
	fail = nil
	mustPost(t, rt)
	if sentWithNew || w.count("/authorize") != 1 {
		t.Errorf("sent before it was stored: %v; requests %v", sentWithNew, w.requests())
	}
}

// TestStoreIsShared checks that a second process uses the first one's tokens, including refreshed
// ones.
func TestStoreIsShared(t *testing.T) {
	w := refreshing(t)
	path := filepath.Join(t.TempDir(), "tokens.json")
	process := func() http.RoundTripper {
		store, err := oauth.NewFileStore(path)
		if err != nil {
			t.Fatal(err)
		}
		return w.transport(func(o *oauth.ClientOptions) { o.Store = store })
	}
	first := process()
	mustPost(t, first)
	second := process()
	mustPost(t, second)
	w.revoke()
	mustPost(t, first)
	mustPost(t, second)
	if w.count("/authorize") != 1 || w.count("/token") != 2 {
		t.Errorf("got %v", w.requests())
	}
	otherAccount := w.transport(func(o *oauth.ClientOptions) {
		store, err := oauth.NewFileStore(path)
		if err != nil {
			t.Fatal(err)
		}
		o.Store, o.Account = store, "somebody else"
	})
	mustPost(t, otherAccount)
	if w.count("/authorize") != 2 {
		t.Error("another account used the token")
	}
}

func TestNoPrompter(t *testing.T) {
	w := refreshing(t)
	store := oauth.NewMemoryStore()
	quiet := w.transport(func(o *oauth.ClientOptions) { o.Store, o.Grant = store, nil })
	_, err := post(t.Context(), quiet)
	if !errors.Is(err, oauth.ErrConsentRequired) || w.count("/register")+w.count("/authorize") != 0 {
		t.Errorf("got %v after %v", err, w.requests())
	}
	mustPost(t, w.transport(func(o *oauth.ClientOptions) { o.Store = store }))
	mustPost(t, w.transport(func(o *oauth.ClientOptions) { o.Store, o.Grant = store, nil }))
}

// A promptedUser is a user of several processes who is prompted in one of them.
type promptedUser struct {
	oauth.ManualPrompter
	asked  chan struct{} // gets an element for each prompt
	answer chan error    // result of the prompt: nil for a login
}

func newPromptedUser(w *world) *promptedUser {
	a := &promptedUser{asked: make(chan struct{}, 10), answer: make(chan error, 10)}
	user := w.user(nil)
	a.ManualPrompter = oauth.ManualPrompter{RedirectURI: user.RedirectURI, Visit: func(ctx context.Context, address string) (string, error) {
		a.asked <- struct{}{}
		select {
		case err := <-a.answer:
			if err != nil {
				return "", err
			}
			return user.Visit(ctx, address)
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}}
	return a
}

// process returns a transport of another process with the same store. waits gets an element when it
// waits for another process's prompt.
func (u *promptedUser) process(t *testing.T, w *world, path string) (rt http.RoundTripper, waits chan struct{}) {
	t.Helper()
	waits = make(chan struct{}, 10)
	store, err := oauth.NewFileStore(path)
	if err != nil {
		t.Fatal(err)
	}
	var open atomic.Int32
	t.Cleanup(func() {
		if n := open.Load(); n != 0 {
			t.Errorf("%d waits are not over", n)
		}
	})
	return w.transport(func(o *oauth.ClientOptions) {
		o.Store = store
		o.Grant = oauth.AuthorizationCode{Prompter: u, OnWait: func(own bool) func() {
			open.Add(1)
			if !own {
				waits <- struct{}{}
			}
			return func() { open.Add(-1) }
		}}
	}), waits
}

// TestLoginInTurn has two processes that need a login at the same time: one prompts the user. Both
// use its result, unless that process ends.
func TestLoginInTurn(t *testing.T) {
	errLeft := errors.New("left")
	for _, tt := range []struct {
		name         string
		answer       error // nil for a login
		first        bool  // whether the first process succeeds
		second       bool
		asked, codes int
	}{
		{"logs in", nil, true, true, 1, 1},
		{"does not answer", oauth.ErrConsentRequired, false, false, 1, 0},
		{"the process is gone", errLeft, false, true, 2, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			a := newPromptedUser(w)
			path := filepath.Join(t.TempDir(), "tokens.json")
			first, _ := a.process(t, w, path)
			second, waits := a.process(t, w, path)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			var wg sync.WaitGroup
			var errs [2]error
			wg.Go(func() { _, errs[0] = post(ctx, first) })
			<-a.asked
			wg.Go(func() { _, errs[1] = post(t.Context(), second) })
			<-waits
			if tt.answer == errLeft {
				leave()
			} else {
				a.answer <- tt.answer
			}
			asked := 1
			if tt.asked > 1 {
				<-a.asked
				asked++
				a.answer <- nil
			}
			wg.Wait()
			asked += len(a.asked)
			if (errs[0] == nil) != tt.first || (errs[1] == nil) != tt.second || asked != tt.asked || w.count("/token") != tt.codes {
				t.Errorf("got %v and %v; the user was asked %d times, %d tokens", errs[0], errs[1], asked, w.count("/token"))
			}
			if !tt.second && !errors.Is(errs[1], oauth.ErrConsentRequired) {
				t.Errorf("the second failed with %v", errs[1])
			}
		})
	}
}

// TestLoginStopsTimeouts shows that each request that waits for the user says so to its client: the
// one that prompts the user, another one of its process, and one of another process.
func TestLoginStopsTimeouts(t *testing.T) {
	w := newWorld(t)
	a := newPromptedUser(w)
	path := filepath.Join(t.TempDir(), "tokens.json")
	first, _ := a.process(t, w, path)
	second, _ := a.process(t, w, path)
	var open atomic.Int32
	began := make(chan struct{}, 10)
	ctx := userwait.With(t.Context(), func() func() {
		open.Add(1)
		began <- struct{}{}
		return func() { open.Add(-1) }
	})
	var wg sync.WaitGroup
	for _, process := range []http.RoundTripper{first, first, second} {
		wg.Go(func() {
			if _, err := post(ctx, process); err != nil {
				t.Error(err)
			}
		})
		<-began
	}
	<-a.asked
	if n := open.Load(); n != 3 {
		t.Errorf("%d requests wait, want 3", n)
	}
	a.answer <- nil
	wg.Wait()
	if n := open.Load(); n != 0 || len(a.asked) > 0 {
		t.Errorf("%d requests wait after the login; the user was asked %d more times", n, len(a.asked))
	}
}

// TestLoginOfAnotherProcess runs a process whose token has become invalid, while the store has one
// that another process got. The process uses that one; if it is invalid too, the user must log in.
func TestLoginOfAnotherProcess(t *testing.T) {
	w := newWorld(t)
	a := newPromptedUser(w)
	path := filepath.Join(t.TempDir(), "tokens.json")
	first, _ := a.process(t, w, path)
	second, _ := a.process(t, w, path)
	third, _ := a.process(t, w, path)
	for n, step := range []struct {
		lose  bool
		rt    http.RoundTripper
		asked int
	}{
		{false, first, 1},
		{false, second, 1},
		{true, first, 2},   // the second still has the first token
		{false, second, 2}, // and uses the second
		{false, third, 2},
		{true, first, 3},
		{true, second, 4}, // uses the third token, which is invalid too, and starts a login
	} {
		if step.lose {
			w.forget()
		}
		a.answer <- nil
		mustPost(t, step.rt)
		for len(a.answer) > 0 {
			<-a.answer
		}
		if len(a.asked) != step.asked {
			t.Fatalf("step %d: the user was asked %d times, want %d", n, len(a.asked), step.asked)
		}
	}
}

// forget invalidates all issued tokens.
func (w *world) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.revoke()
}
