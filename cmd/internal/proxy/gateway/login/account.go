package login

import (
	"context"
	"crypto/sha256"
	"net/http"
	"sync"
	"time"

	"mcpwire/cmd/internal/proxy/gateway"
	"mcpwire/oauth"
)

const (
	// loginTTL is how long a login is used before the store is asked again: an operator, or another
	// gateway, may have removed it.
	loginTTL = 5 * time.Second
	// logoutTTL is how long the absence of a login is believed.
	logoutTTL = time.Second
)

// An account is a user at an upstream.
type account struct {
	up   *Upstream
	user string
	// ctx has the principal of one caller of the user.
	ctx   context.Context
	store *store

	mu sync.Mutex
	// client has the tokens in memory. Nil means that they must be read.
	client *oauth.Client
	// in is the result of the last look into the store, which is valid until until.
	in    bool
	known bool
	until time.Time
	// rejected is what the upstream last answered to a token. It is nil after a login.
	rejected *rejection
	// refused says that a request needs another login although the token is valid for others.
	refused bool
}

// hashOf returns the hash of an Authorization header, which identifies a token without having it.
func hashOf(header string) [32]byte { return sha256.Sum256([]byte(header)) }

// loggedIn reports if the user has a token that was not rejected.
func (a *account) loggedIn(ctx context.Context) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if now.Before(a.until) {
		return a.in
	}
	tokens, err := a.store.tokens(ctx)
	if err != nil {
		a.up.l.opts.Logger.Warn("the tokens cannot be read", "upstream", a.up.opts.Name, "user", a.user, "error", err)
	}
	in := tokens != nil && !a.isRejected(tokens) && (!tokens.Refresh.IsZero() || tokens.Expiry.IsZero() || now.Before(tokens.Expiry))
	if a.known && a.in != in {
		a.client = nil // it has the former tokens
		if tokens == nil && err == nil {
			a.up.l.record(a, "logout", now, gateway.OutcomeOK)
		}
		a.up.l.changed(a)
	}
	a.setLocked(in, now)
	return in
}

// setLocked sets the state of the login.
func (a *account) setLocked(in bool, now time.Time) {
	a.in, a.known, a.until = in, true, now.Add(logoutTTL)
	if in {
		a.until = now.Add(loginTTL)
	}
}

// isRejected reports if the upstream has rejected a token for all requests.
func (a *account) isRejected(t *oauth.Tokens) bool {
	return a.rejected != nil && a.rejected.status == http.StatusUnauthorized && a.rejected.token == hashOf(t.Type+" "+t.Access.Reveal())
}

// transport returns a transport for the requests of the user, which never asks the user.
func (a *account) transport(base http.RoundTripper) (http.RoundTripper, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.client == nil {
		c, err := oauth.NewClient(a.up.clientOptions(a.store, a.store.account))
		if err != nil {
			return nil, err
		}
		a.client = c
	}
	return a.client.Transport(a.up.opts.Server, base)
}

// reject notes that a request needs a login.
func (a *account) reject(seen *rejection) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if seen.status != 0 {
		a.rejected = seen
	}
	if seen.status == http.StatusForbidden {
		a.refused = true // other requests may be allowed
		return
	}
	if a.in {
		a.setLocked(false, time.Now())
		a.client = nil
		a.up.l.changed(a)
	}
}

// takeRefused reports if a request needed another login since the last call.
func (a *account) takeRefused() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.refused
	a.refused = false
	return was
}

// rejection returns what the upstream last answered to a token, or nil.
func (a *account) rejection() *rejection {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rejected
}

// hasLoggedInElsewhere reports if the user has a token that another gateway has stored since the
// upstream rejected the last one.
func (a *account) hasLoggedInElsewhere(ctx context.Context) bool {
	if !a.loggedIn(ctx) {
		return false
	}
	last := a.rejection()
	if last == nil {
		return true
	}
	tokens, err := a.store.tokens(ctx)
	return err == nil && tokens != nil && last.token != hashOf(tokens.Type+" "+tokens.Access.Reveal())
}

// finishedElsewhere notes a login at another gateway, which hasLoggedInElsewhere has found.
func (a *account) finishedElsewhere() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rejected != nil && a.rejected.status == http.StatusForbidden { // the user was logged in
		a.client = nil
		a.up.l.changed(a)
	}
	a.rejected, a.refused = nil, false
}

// finished notes a login.
func (a *account) finished() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.client, a.rejected, a.refused = nil, nil, false
	a.setLocked(true, time.Now())
	a.up.l.changed(a)
}
