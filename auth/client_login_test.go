package auth_test

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"mcpwire/auth"
)

// A asker is a user of several processes, who is asked in one of them.
type promptedUser struct {
	auth.ManualPrompter
	asked  chan struct{} // gets an element for each question
	answer chan error    // what is answered: nil is a login
}

func newPromptedUser(w *world) *promptedUser {
	a := &promptedUser{asked: make(chan struct{}, 10), answer: make(chan error, 10)}
	user := w.user(nil)
	a.ManualPrompter = auth.ManualPrompter{RedirectURI: user.RedirectURI, Visit: func(ctx context.Context, address string) (string, error) {
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

// process returns a transport of another process with the same store. waits gets an element when it waits for another to ask.
func (u *promptedUser) process(t *testing.T, w *world, path string) (rt http.RoundTripper, waits chan struct{}) {
	t.Helper()
	waits = make(chan struct{}, 10)
	store, err := auth.NewFileStore(path)
	if err != nil {
		t.Fatal(err)
	}
	var open atomic.Int32
	t.Cleanup(func() {
		if n := open.Load(); n != 0 {
			t.Errorf("%d waits are not over", n)
		}
	})
	return w.transport(func(o *auth.ClientOptions) {
		o.Store = store
		o.Grant = auth.AuthorizationCode{Prompter: u, OnWait: func(own bool) func() {
			open.Add(1)
			if !own {
				waits <- struct{}{}
			}
			return func() { open.Add(-1) }
		}}
	}), waits
}

// TestLoginInTurn has two processes that need the user at once: one asks. What comes of it goes for both, unless the one that asked is gone.
func TestLoginInTurn(t *testing.T) {
	errLeft := errors.New("left")
	for _, tt := range []struct {
		name         string
		answer       error // nil is a login
		first        bool  // ends well
		second       bool
		asked, codes int
	}{
		{"logs in", nil, true, true, 1, 1},
		{"does not answer", auth.ErrConsentRequired, false, false, 1, 0},
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
			if !tt.second && !errors.Is(errs[1], auth.ErrConsentRequired) {
				t.Errorf("the second failed with %v", errs[1])
			}
		})
	}
}

// TestLoginMeanwhile has processes whose token is no good any more, while the store has one that another process got: it is taken, and if it is no good either, the user is
// asked.
func TestLoginMeanwhile(t *testing.T) {
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
		{false, second, 2}, // and takes the second
		{false, third, 2},
		{true, first, 3},
		{true, second, 4}, // takes the third token, which is no good either, and asks
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

// forget makes all tokens that were issued no good.
func (w *world) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.tokens)
}
