package oauth

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"mcpwire/auth"
	"mcpwire/internal/base/userwait"
)

const (
	// renewBefore is how long before its expiry a token is refreshed, but at most a quarter of its
	// life.
	renewBefore = 30 * time.Second
	// denialBackoff and refusalBackoff are how long a failure applies to all requests that need a
	// token, so that the user is not asked again for each request.
	denialBackoff  = 10 * time.Minute
	refusalBackoff = 30 * time.Second
	// outageBackoff is how long a token that could not be refreshed stays in use.
	outageBackoff = 5 * time.Second
)

// A serverAuth is the client's state for one server.
type serverAuth struct {
	client       *Client
	server       *url.URL
	name, origin string

	// renewal is a lock for getting or renewing tokens. It has room for one.
	renewal chan struct{}

	mu sync.Mutex
	// loaded says that the store was read.
	loaded bool
	// tok is replaced, never changed. It may be nil.
	tok *token
	// failureCount counts failed attempts. lastFailure is the error of the last one, which applies
	// until failedUntil.
	failureCount uint64
	lastFailure  error
	failedUntil  time.Time
	stepUps      map[string]*stepUpState

	// subjects is set if the grant is [TokenExchange]: then the client has a serverAuth for each
	// caller's token, which is its subject. The one without a subject has no token.
	subjects *subjects
	subject  auth.Secret

	// boundIssuer is the issuer that [TrustFirstIssuer] stands for. The holder of renewal may use
	// it.
	boundIssuer string
}

// A token is the token that requests are sent with.
type token struct {
	*Tokens
	issuer, clientID string
	proof            *proofKey
	// renewAt is when to refresh the token. Zero means never.
	renewAt time.Time
	// unsaved says that the store failed to save the token.
	unsaved bool
	// fromOtherProcess says that another process got the token, so only its record is known.
	fromOtherProcess bool
}

// newToken returns a token. It is renewed before it expires, if it can be refreshed or exchanged.
func (s *serverAuth) newToken(t *Tokens, issuer, clientID string, proof *proofKey) *token {
	k := &token{Tokens: t, issuer: issuer, clientID: clientID, proof: proof}
	if !t.Expiry.IsZero() && (!t.Refresh.IsZero() || s.subjects != nil) {
		k.renewAt = t.Expiry.Add(-min(renewBefore, time.Until(t.Expiry)/4))
	}
	return k
}

// needsRenewal reports whether the token must be saved or refreshed before it is used.
func (t *token) needsRenewal(now time.Time) bool {
	return t.unsaved || !t.renewAt.IsZero() && !now.Before(t.renewAt)
}

func (t *token) expired(now time.Time) bool { return !t.Expiry.IsZero() && !now.Before(t.Expiry) }

// sameAccess reports whether a and b have the same access token. Both may be nil.
func sameAccess(a, b *token) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Access.Reveal() == b.Access.Reveal()
}

// lockRenewal waits for the lock renewal.
func (s *serverAuth) lockRenewal(ctx context.Context) (release func(), err error) {
	release = func() { <-s.renewal }
	select {
	case s.renewal <- struct{}{}:
		return release, nil
	default: // the holder may be waiting for the user
		defer userwait.Begin(ctx)()
	}
	select {
	case s.renewal <- struct{}{}:
		return release, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *serverAuth) snapshot() (t *token, loaded bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tok, s.loaded
}

// install sets the token. t may be nil.
func (s *serverAuth) install(t *token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tok = t
}

// current returns the token for the next request, or nil.
func (s *serverAuth) current(ctx context.Context) (*token, error) {
	if s.subjects != nil {
		return s.currentExchanged(ctx)
	}
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

// renew refreshes a token that is about to expire. If that fails temporarily, the token is used
// while it is valid. If it fails permanently, the server's next response says what it requires.
func (s *serverAuth) renew(ctx context.Context, t *token) (*token, error) {
	err := s.refresh(ctx, t)
	if err == nil {
		fresh, _ := s.snapshot()
		return fresh, nil
	}
	later := *t
	switch {
	case isOAuthError(err, "invalid_grant"):
		tokens := *t.Tokens
		tokens.Refresh = auth.Secret{}
		later.Tokens, later.renewAt = &tokens, time.Time{}
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
	s.client.opts.Logger.WarnContext(ctx, "token not refreshed", "server", s.name, "error", err)
	s.install(&later)
	return &later, nil
}

// failuresSoFar returns the number of failed attempts to get a token.
func (s *serverAuth) failuresSoFar() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failureCount
}

// authorize gets a token after a response that required one, or a better one than used. If another
// caller has got one meanwhile, it returns nil. If another caller has failed since failures was
// read, it returns that error. For more scopes, step names the operation.
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
	if step != nil && !noPrompt {
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

// errNothingToRequest means that the client cannot ask for more, so the caller gets the server's
// response.
var errNothingToRequest = errors.New("no further scope to request")

// recordFailure records a failure, unless it belongs to one caller's context.
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

// obtain gets a token: from another process, by refreshing, or by the grant. The caller holds
// renewal.
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
		s.client.opts.Logger.InfoContext(ctx, "the server's issuer has changed", "server", s.name, "issuer", printable(disc.issuer, 200))
		old = nil
	}
	if old != nil && !step && s.subjects == nil {
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
	f := &flow{client: s.client, discovery: disc, scopes: scopes, proof: proof, subject: s.subject}
	return s.withLoginLock(ctx, disc.issuer, used, func() error { return s.runGrant(ctx, f) })
}

// runGrant gets a token by the configured grant.
func (s *serverAuth) runGrant(ctx context.Context, f *flow) error {
	disc := f.discovery
	tokens, clientID, err := s.client.opts.Grant.tokens(ctx, f)
	if err != nil {
		return authorizationError("authorize", s.name, disc.issuer, err)
	}
	proof := f.proof // the grant may have changed it
	if tokens.Type != "DPoP" {
		proof = nil
	}
	s.client.opts.Logger.InfoContext(ctx, "token received", "server", s.name, "issuer", printable(disc.issuer, 200))
	t := s.newToken(tokens, disc.issuer, clientID, proof)
	if s.subjects != nil {
		s.install(t)
		return nil
	}
	return s.save(ctx, t)
}

// discover finds the authorization server. It restricts the client to the first issuer if the
// options say so.
func (s *serverAuth) discover(ctx context.Context, d authRequirement) (*discovery, error) {
	if s.subjects != nil {
		return s.exchangeDiscovery(ctx)
	}
	disc, err := s.findIssuer(ctx, d.metadata)
	if err != nil {
		return nil, authorizationError("discover", s.name, "", err)
	}
	if s.client.opts.ClientIssuer == TrustFirstIssuer {
		if s.boundIssuer != "" && s.boundIssuer != disc.issuer {
			err := fmt.Errorf("%w: the credentials belong to %q, but the server requires another issuer", ErrUntrusted, printable(s.boundIssuer, 200))
			return nil, authorizationError("discover", s.name, disc.issuer, err)
		}
		s.boundIssuer = disc.issuer
	}
	return disc, nil
}

// reuse tries to avoid the grant: it uses another process's token or the refresh token. An error
// means that the grant would not help.
func (s *serverAuth) reuse(ctx context.Context, old *token) (done bool, err error) {
	if s.adoptRefreshed(ctx, old) {
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
			s.client.opts.Logger.WarnContext(ctx, "token not refreshed", "server", s.name, "error", err)
			return false, nil
		}
	}
	return false, err
}

// requestScopes returns the scopes to request: those that the server requires, or else those of the
// caller or the metadata, and all that were requested before, so that more scopes for one operation
// do not remove those of another.
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

// proofKeyFor returns the key to bind a token to, or nil if the token is not bound.
func (s *serverAuth) proofKeyFor(disc *discovery, d authRequirement, old *token) (*proofKey, error) {
	algorithms := disc.as.DPoPAlgorithms
	able := slices.Contains(algorithms, dpopAlgorithm)
	switch s.client.opts.DPoP {
	case DPoPOff:
		return nil, nil
	case DPoPOn:
		if algorithms != nil && !able {
			return nil, fmt.Errorf("%w: it does not accept proofs of possession with %s", ErrRefused, dpopAlgorithm)
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

// reissue asks the source of preissued tokens for another token.
func (s *serverAuth) reissue(ctx context.Context, g Preissued, step bool) error {
	old, _ := s.snapshot()
	t, _, err := g.tokens(ctx, nil)
	if err != nil {
		return authorizationError("token", s.name, "", err)
	}
	if step || old != nil && old.Access.Reveal() == t.Access.Reveal() {
		return errNothingToRequest
	}
	s.install(s.newToken(t, "", "", nil))
	return nil
}

func (s *serverAuth) tokenKey(issuer, clientID string) RecordKey {
	return RecordKey{Issuer: issuer, Resource: s.name, ClientID: clientID, Account: s.client.opts.Account}
}

// indexKey returns the key of the record that says which tokens belong to the server.
func (s *serverAuth) indexKey() RecordKey {
	return RecordKey{Resource: s.name, Account: s.client.opts.Account}
}

// load loads the server's token from the store, once. The caller holds renewal.
func (s *serverAuth) load(ctx context.Context) error {
	if _, loaded := s.snapshot(); loaded {
		return nil
	}
	t, err := s.loadStored(ctx)
	if err != nil {
		return authorizationError("store", s.name, "", err)
	}
	if t != nil {
		s.install(t)
	}
	s.mu.Lock()
	s.loaded = true
	s.mu.Unlock()
	return nil
}

func (s *serverAuth) loadStored(ctx context.Context) (*token, error) {
	if g, ok := s.client.opts.Grant.(Preissued); ok {
		t, _, err := g.tokens(ctx, nil)
		if err != nil {
			return nil, err
		}
		return s.newToken(t, "", "", nil), nil
	}
	index, err := s.client.opts.Store.Load(ctx, s.indexKey())
	if errors.Is(err, ErrNotStored) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !s.client.opts.acceptsIssuer(index.Issuer) {
		return nil, nil
	}
	s.boundIssuer = index.Issuer
	return s.readToken(ctx, index.Issuer, index.ClientID)
}

// readToken returns the stored token of a client at an issuer, or nil if there is none that can be
// used.
func (s *serverAuth) readToken(ctx context.Context, issuer, clientID string) (*token, error) {
	r, err := s.client.opts.Store.Load(ctx, s.tokenKey(issuer, clientID))
	if errors.Is(err, ErrNotStored) || err == nil && (r.Tokens == nil || !isVisible(r.Tokens.Access.Reveal())) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var proof *proofKey
	switch r.Tokens.Type {
	case "Bearer":
	case "DPoP":
		if proof, err = parseProofKey(r.ProofKey); err != nil {
			return nil, err
		}
	default:
		return nil, nil
	}
	return s.newToken(r.Tokens, issuer, clientID, proof), nil
}

// adoptRefreshed is adopt for the stored token that belongs to old, which another process may have
// refreshed.
func (s *serverAuth) adoptRefreshed(ctx context.Context, old *token) bool {
	t, err := s.readToken(ctx, old.issuer, old.clientID)
	return err == nil && s.adopt(t, old)
}

// adopt installs a token from the store if it can be used and is another one than old, which means
// that another process got it. It reports whether it did. Both may be nil.
func (s *serverAuth) adopt(t, old *token) bool {
	if t == nil || sameAccess(t, old) || t.expired(time.Now()) {
		return false
	}
	t.fromOtherProcess = true
	s.install(t)
	return true
}

// save stores a token and then installs it: a rotated refresh token must not be lost, since the
// previous one has become invalid. If the store fails, the request fails, and the next one saves
// again.
func (s *serverAuth) save(ctx context.Context, t *token) error {
	kept := *t
	err := s.store(ctx, t)
	kept.unsaved = err != nil
	s.install(&kept)
	if err != nil {
		return authorizationError("store", s.name, t.issuer, err)
	}
	return nil
}

func (s *serverAuth) store(ctx context.Context, t *token) error {
	// Canceling now would cost the user a login.
	ctx = context.WithoutCancel(ctx)
	r := &Record{Tokens: t.Tokens}
	if t.proof != nil {
		var err error
		if r.ProofKey, err = t.proof.seal(); err != nil {
			return err
		}
	}
	if err := s.client.opts.Store.Save(ctx, s.tokenKey(t.issuer, t.clientID), r); err != nil {
		return err
	}
	return s.client.opts.Store.Save(ctx, s.indexKey(), &Record{Issuer: t.issuer, ClientID: t.clientID})
}

// forget deletes the server's tokens.
func (s *serverAuth) forget(ctx context.Context) error {
	if s.subjects != nil {
		s.subjects.clear()
		return nil
	}
	release, err := s.lockRenewal(ctx)
	if err != nil {
		return err
	}
	defer release()
	index, err := s.client.opts.Store.Load(ctx, s.indexKey())
	if err == nil {
		err = errors.Join(
			s.client.opts.Store.Delete(ctx, s.tokenKey(index.Issuer, index.ClientID)),
			s.client.opts.Store.Delete(ctx, s.indexKey()))
	} else if errors.Is(err, ErrNotStored) {
		err = nil
	}
	s.install(nil)
	s.mu.Lock()
	s.lastFailure, s.failedUntil = nil, time.Time{}
	clear(s.stepUps)
	s.mu.Unlock()
	s.boundIssuer = ""
	return err
}

// refresh gets new tokens for the refresh token. It sends the refresh token only to the token
// endpoint that issued it, whatever the server's metadata says now. The caller holds renewal.
func (s *serverAuth) refresh(ctx context.Context, t *token) error {
	if locker, ok := s.client.opts.Store.(StoreLocker); ok {
		unlock, err := locker.Lock(ctx)
		if err != nil {
			return authorizationError("store", s.name, t.issuer, err)
		}
		defer unlock()
		if s.adoptRefreshed(ctx, t) {
			return nil
		}
	}
	fresh, err := s.requestRefresh(ctx, t)
	if err != nil {
		return authorizationError("refresh", s.name, t.issuer, err)
	}
	return s.save(ctx, s.newToken(fresh, t.issuer, t.clientID, t.proof))
}

func (s *serverAuth) requestRefresh(ctx context.Context, t *token) (*Tokens, error) {
	cred, err := s.credentialsOf(ctx, t)
	if err != nil {
		return nil, err
	}
	r := &tokenRequest{
		endpoint: t.Endpoint,
		issuer:   t.issuer,
		form:     url.Values{"grant_type": {"refresh_token"}, "refresh_token": {t.Refresh.Reveal()}, "resource": {t.Resource}},
		cred:     cred,
		proof:    t.proof,
	}
	// Once sent, the refresh token may be used up, so wait for the response even if the caller
	// goes. The request has its own timeout.
	a, err := s.client.requestToken(context.WithoutCancel(ctx), r)
	if err != nil {
		return nil, s.client.forgetClient(ctx, t.issuer, cred, err)
	}
	mode := DPoPOff
	if t.proof != nil {
		mode = DPoPOn
	}
	fresh, err := a.tokens(r, mode)
	if err != nil {
		return nil, err
	}
	if fresh.Refresh.IsZero() {
		fresh.Refresh = t.Refresh
	}
	fresh.Requested = t.Requested
	if a.Scope == "" {
		fresh.Granted = t.Granted
	}
	return fresh, nil
}

// credentialsOf returns the client's credentials at the issuer of a token.
func (s *serverAuth) credentialsOf(ctx context.Context, t *token) (*credentials, error) {
	o := &s.client.opts
	if t.clientID == o.ClientID {
		return &credentials{id: o.ClientID, secret: o.ClientSecret, key: o.ClientKey, method: t.AuthMethod}, nil
	}
	if t.clientID == o.ClientIDMetadataURL {
		return &credentials{id: t.clientID, key: o.ClientKey, method: t.AuthMethod}, nil
	}
	cred, err := s.client.registeredCredentials(ctx, t.issuer)
	if err != nil {
		return nil, err
	}
	if cred == nil || cred.id != t.clientID {
		return nil, fmt.Errorf("%w: the token belongs to another client id", ErrUnregistered)
	}
	return cred, nil
}

// withLoginLock calls login, unless another process has done so: of several processes that share a
// store, one asks the user, and the others get the same token or the same failure. used is the
// insufficient token. It may be nil. A request that must not cause a login gets the stored token.
func (s *serverAuth) withLoginLock(ctx context.Context, issuer string, used *token, login func() error) (err error) {
	g, interactive := s.client.opts.Grant.(AuthorizationCode)
	locker, ok := s.client.opts.Store.(loginLocker)
	if s.noPrompt(ctx) {
		if found, err := s.adoptStored(ctx, issuer, used); found || err != nil {
			return err
		}
		return authorizationError("authorize", s.name, issuer, fmt.Errorf("%w, but this request must not start a login", ErrConsentRequired))
	}
	if !interactive || g.Prompter == nil || !ok {
		return login()
	}
	endWait := func() {}
	unlock, loginFailed, err := locker.LockLogin(ctx, s.name+" "+s.client.opts.Account, func() {
		s.client.opts.Logger.InfoContext(ctx, "waiting for the login in another process", "server", s.name)
		endWait = g.notifyWait(ctx, false)
	})
	endWait()
	if err != nil {
		return authorizationError("store", s.name, issuer, err)
	}
	defer func() { unlock(errors.Is(err, ErrConsentRequired) || errors.Is(err, ErrDenied)) }()
	switch found, err := s.adoptStored(ctx, issuer, used); {
	case found || err != nil:
		return err
	case loginFailed:
		return authorizationError("authorize", s.name, issuer, fmt.Errorf("%w: the login in another process failed", ErrConsentRequired))
	}
	return login()
}

// noPrompt reports whether the user must not be asked because of this request.
func (s *serverAuth) noPrompt(ctx context.Context) bool {
	_, interactive := s.client.opts.Grant.(AuthorizationCode)
	return interactive && !loginAllowed(ctx)
}

// adoptStored installs a token that another process has got meanwhile, and reports whether there
// was one.
func (s *serverAuth) adoptStored(ctx context.Context, issuer string, used *token) (found bool, err error) {
	bound := s.boundIssuer
	t, err := s.loadStored(ctx)
	s.boundIssuer = bound
	if err != nil {
		return false, authorizationError("store", s.name, issuer, err)
	}
	return t != nil && t.issuer == issuer && s.adopt(t, used), nil
}
