package auth

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"
)

const (
	// renewBefore is how long before its end a token is refreshed, but at most a quarter of its life.
	renewBefore = 30 * time.Second
	// How long a failure is the answer to all that need a token: nobody is asked again because of each request.
	denialBackoff  = 10 * time.Minute
	refusalBackoff = 30 * time.Second
	// outageBackoff is how long a token is used on that could not be refreshed.
	outageBackoff = 5 * time.Second
)

// A session is what a client knows of one server.
type serverAuth struct {
	client       *Client
	server       *url.URL
	name, origin string

	// renewal is held by whoever gets or renews tokens: one at a time. It has room for one.
	renewal chan struct{}

	mu     sync.Mutex
	loaded bool   // whether the store was asked
	tok    *token // never changed, only replaced; nil if there is none
	// failureCount counts attempts that failed, the last with failed, which holds until failedUntil.
	failureCount uint64
	lastFailure  error
	failedUntil  time.Time
	stepUps      map[string]*stepUpState

	// boundIssuer is the issuer that [TrustFirstIssuer] came to mean. It is for who holds turn.
	boundIssuer string
}

// A token is what requests are sent with.
type token struct {
	*Tokens
	issuer, clientID string
	proof            *proofKey
	// renewAt is when it should be refreshed; zero if never.
	renewAt time.Time
	// unsaved is set if the store failed to keep it.
	unsaved bool
	// fromOtherProcess is set if another process got it, of which nothing is known but that it was kept.
	fromOtherProcess bool
}

func newToken(t *Tokens, issuer, clientID string, proof *proofKey) *token {
	k := &token{Tokens: t, issuer: issuer, clientID: clientID, proof: proof}
	if !t.Expiry.IsZero() && !t.Refresh.IsZero() {
		left := time.Until(t.Expiry)
		k.renewAt = t.Expiry.Add(-min(renewBefore, left/4))
	}
	return k
}

// needsRenewal reports whether something is to be done before the token is used.
func (t *token) needsRenewal(now time.Time) bool {
	return t.unsaved || !t.renewAt.IsZero() && !now.Before(t.renewAt)
}

func (t *token) expired(now time.Time) bool { return !t.Expiry.IsZero() && !now.Before(t.Expiry) }

// sameAccess reports whether requests with a and b are the same; both may be nil.
func sameAccess(a, b *token) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Access.Reveal() == b.Access.Reveal()
}

// lockRenewal waits for the turn.
func (s *serverAuth) lockRenewal(ctx context.Context) (release func(), err error) {
	select {
	case s.renewal <- struct{}{}:
		return func() { <-s.renewal }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *serverAuth) snapshot() (t *token, loaded bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tok, s.loaded
}

// install makes t the token. t may be nil.
func (s *serverAuth) install(t *token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tok = t
}

// current returns the token for the next request, nil if there is none.
func (s *serverAuth) current(ctx context.Context) (*token, error) {
	t, loaded := s.snapshot()
	if loaded && (t == nil || !t.needsRenewal(time.Now())) {
		return t, nil
	}
	release, err := s.lockRenewal(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	t, _ = s.snapshot()
	if t == nil || !t.needsRenewal(time.Now()) {
		return t, nil
	}
	if t.unsaved {
		if err := s.save(ctx, t); err != nil {
			return nil, err
		}
		t, _ = s.snapshot()
		return t, nil
	}
	return s.renew(ctx, t)
}

// renew refreshes a token that is about to expire. If that fails for the moment the token is used as long as it is good, and if it fails for good, the
// server will say what it wants instead.
func (s *serverAuth) renew(ctx context.Context, t *token) (*token, error) {
	err := s.refresh(ctx, t)
	if err == nil {
		fresh, _ := s.snapshot()
		return fresh, nil
	}
	later := *t
	switch {
	case isOAuthError(err, "invalid_grant"):
		later.Tokens = withoutRefreshToken(t.Tokens)
		later.renewAt = time.Time{}
		if err := s.save(ctx, &later); err != nil {
			return nil, err
		}
	case errors.Is(err, ErrRefused) || errors.Is(err, ErrDenied):
		later.renewAt = time.Now().Add(refusalBackoff)
	case t.expired(time.Now()) || ctx.Err() != nil:
		return nil, err
	default:
		later.renewAt = time.Now().Add(outageBackoff)
	}
	s.client.logf("refreshing a token for %s: %v", s.name, err)
	s.install(&later)
	return &later, nil
}

func withoutRefreshToken(t *Tokens) *Tokens {
	c := *t
	c.Refresh = Secret{}
	return &c
}

// failuresSoFar tells how many attempts to get a token have failed.
func (s *serverAuth) failuresSoFar() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failureCount
}

// authorize gets a token after a response that demanded one, or a better one than seen, which the request was sent with. If another caller got one
// meanwhile that is it, and if another caller failed since failures was the count, it has failed. For more scopes step names the operation.
func (s *serverAuth) authorize(ctx context.Context, used *token, d authRequirement, step *string, failures uint64) error {
	release, err := s.lockRenewal(ctx)
	if err != nil {
		return err
	}
	defer release()
	s.mu.Lock()
	switch {
	case !sameAccess(s.tok, used):
		s.mu.Unlock()
		return nil
	case s.failureCount != failures, step == nil && time.Now().Before(s.failedUntil):
		defer s.mu.Unlock()
		return s.lastFailure
	}
	var entry *stepUpState
	noPrompt := s.noPrompt(ctx)
	if step != nil && !noPrompt { // which would come to nothing
		if entry = s.stepUpLocked(*step, time.Now()); entry == nil {
			s.mu.Unlock()
			return errNothingToRequest
		}
		entry.count++
	}
	s.mu.Unlock()
	err = s.obtain(ctx, d, step != nil)
	if !noPrompt {
		s.recordFailure(ctx, err, entry)
	}
	return err
}

// errNothingToRequest says that asking for more makes no sense: the server's response is what the caller gets.
var errNothingToRequest = errors.New("nothing more to ask for")

// recordFailure keeps a failure, unless it is only about one caller's patience.
func (s *serverAuth) recordFailure(ctx context.Context, err error, entry *stepUpState) {
	if err == nil || ctx.Err() != nil || errors.Is(err, errNothingToRequest) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failureCount++
	s.lastFailure = err
	if entry != nil {
		if errors.Is(err, ErrDenied) {
			entry.denied = err
		}
		return
	}
	switch {
	case errors.Is(err, ErrDenied):
		s.failedUntil = time.Now().Add(denialBackoff)
	case errors.Is(err, ErrRefused), errors.Is(err, ErrUntrusted), errors.Is(err, ErrConsentRequired):
		s.failedUntil = time.Now().Add(refusalBackoff)
	}
}

// obtain gets a token, from the other processes, by refreshing or by the grant. It is for who holds the turn.
func (s *serverAuth) obtain(ctx context.Context, d authRequirement, step bool) error {
	if g, ok := s.client.opts.Grant.(Preissued); ok {
		return s.reissue(ctx, g, step)
	}
	disc, err := s.discover(ctx, d)
	if err != nil {
		return err
	}
	used, _ := s.snapshot()
	old := used
	if old != nil && old.issuer != disc.issuer {
		s.client.logf("%s is now authorized by %q", s.name, printable(disc.issuer, 200))
		old = nil
	}
	if old != nil && !step {
		if done, err := s.reuse(ctx, old); done || err != nil {
			return err
		}
	}
	scopes := s.requestScopes(disc, d, old)
	if step && old != nil && len(unionScopes(old.Granted, scopes)) == len(old.Granted) {
		return errNothingToRequest
	}
	proof, err := s.proofKeyFor(disc, d, old)
	if err != nil {
		return authorizationError("token", s.name, disc.issuer, err)
	}
	f := &flow{client: s.client, discovery: disc, scopes: scopes, proof: proof}
	return s.withLoginLock(ctx, disc.issuer, used, func() error { return s.runGrant(ctx, f) })
}

// runGrant gets a token as the caller wants it got.
func (s *serverAuth) runGrant(ctx context.Context, f *flow) error {
	disc, proof := f.discovery, f.proof
	tokens, clientID, err := s.client.opts.Grant.tokens(ctx, f)
	if err != nil {
		return authorizationError("authorize", s.name, disc.issuer, err)
	}
	if tokens.Type != "DPoP" {
		proof = nil
	}
	s.client.logf("got a token for %s from %q", s.name, printable(disc.issuer, 200))
	return s.save(ctx, newToken(tokens, disc.issuer, clientID, proof))
}

// discover finds out who authorizes, and holds the client to the first issuer if it shall have only one.
func (s *serverAuth) discover(ctx context.Context, d authRequirement) (*discovery, error) {
	o := &s.client.opts
	disc, err := (&discoverer{
		fetch: s.client.fetch, server: s.server, origins: o.MetadataOrigins, requireMetadata: o.RequireMetadata, issuer: o.ClientIssuer,
	}).discover(ctx, d.metadata)
	if err != nil {
		return nil, authorizationError("discover", s.name, "", err)
	}
	if o.ClientIssuer == TrustFirstIssuer {
		if s.boundIssuer != "" && s.boundIssuer != disc.issuer {
			err := fmt.Errorf("%w: the credentials are of %q, and the server wants those of another issuer", ErrUntrusted, printable(s.boundIssuer, 200))
			return nil, authorizationError("discover", s.name, disc.issuer, err)
		}
		s.boundIssuer = disc.issuer
	}
	return disc, nil
}

// reuse tries what spares the grant: another process's token, and the refresh token. An error is one that the grant would not help against.
func (s *serverAuth) reuse(ctx context.Context, old *token) (done bool, err error) {
	if r, err := s.client.opts.Store.Load(ctx, s.tokenKey(old.issuer, old.clientID)); err == nil && s.adopt(r, old) {
		return true, nil
	}
	if old.Refresh.IsZero() {
		return false, nil
	}
	err = s.refresh(ctx, old)
	if err == nil {
		return true, nil
	}
	for _, final := range []error{ErrRefused, ErrDenied, ErrConsentRequired, ErrUnregistered} {
		if errors.Is(err, final) {
			s.client.logf("refreshing a token for %s: %v", s.name, err)
			return false, nil
		}
	}
	return false, err
}

// requestScopes returns what to ask for: what the server demands, which counts, or else what the caller or the metadata has; and whatever was asked for before, so
// that more scopes for one operation do not cost another its own.
func (s *serverAuth) requestScopes(disc *discovery, d authRequirement, old *token) []string {
	scopes := unionScopes(d.scopes, s.client.opts.Scopes)
	if len(scopes) == 0 {
		scopes = disc.scopes
	}
	if old != nil {
		scopes = unionScopes(old.Requested, scopes)
	}
	if _, code := s.client.opts.Grant.(AuthorizationCode); !code {
		scopes = withoutScope(scopes, offlineAccess)
	}
	return scopes
}

// proofKeyFor returns the key to bind a token to, nil if it shall not be bound.
func (s *serverAuth) proofKeyFor(disc *discovery, d authRequirement, old *token) (*proofKey, error) {
	algorithms := disc.as.DPoPAlgorithms
	able := slices.Contains(algorithms, dpopAlgorithm)
	switch s.client.opts.DPoP {
	case DPoPOff:
		return nil, nil
	case DPoPOn:
		if algorithms != nil && !able {
			return nil, fmt.Errorf("%w: it does not take proofs of possession by %s", ErrRefused, dpopAlgorithm)
		}
	default:
		if !able || !d.dpop && !disc.dpopRequired && (old == nil || old.proof == nil) {
			return nil, nil
		}
	}
	if old != nil && old.proof != nil {
		return old.proof, nil
	}
	return newProofKey()
}

// reissue asks the source of a token that is not this client's.
func (s *serverAuth) reissue(ctx context.Context, g Preissued, step bool) error {
	old, _ := s.snapshot()
	t, _, err := g.tokens(ctx, nil)
	if err != nil {
		return authorizationError("token", s.name, "", err)
	}
	if step || old != nil && old.Access.Reveal() == t.Access.Reveal() {
		return errNothingToRequest
	}
	s.install(newToken(t, "", "", nil))
	return nil
}
