package auth

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"
)

func (s *serverAuth) tokenKey(issuer, clientID string) RecordKey {
	return RecordKey{Issuer: issuer, Resource: s.name, ClientID: clientID, Account: s.client.opts.Account}
}

// indexKey is of the record that says which tokens are the server's.
func (s *serverAuth) indexKey() RecordKey {
	return RecordKey{Resource: s.name, Account: s.client.opts.Account}
}

// load asks the store for the server's token, once. It is for who holds the turn.
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
		return newToken(t, "", "", nil), nil
	}
	index, err := s.client.opts.Store.Load(ctx, s.indexKey())
	if errors.Is(err, ErrNotStored) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if only := s.client.opts.ClientIssuer; only != "" && only != TrustFirstIssuer && only != index.Issuer {
		return nil, nil
	}
	s.boundIssuer = index.Issuer
	r, err := s.client.opts.Store.Load(ctx, s.tokenKey(index.Issuer, index.ClientID))
	if errors.Is(err, ErrNotStored) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return openRecord(r, index.Issuer, index.ClientID)
}

// openRecord makes a token of a record; nil if it has none that can be used.
func openRecord(r *Record, issuer, clientID string) (*token, error) {
	if r.Tokens == nil || !isVisible(r.Tokens.Access.Reveal()) {
		return nil, nil
	}
	var proof *proofKey
	switch r.Tokens.Type {
	case "Bearer":
	case "DPoP":
		var err error
		if proof, err = parseProofKey(r.ProofKey); err != nil {
			return nil, err
		}
	default:
		return nil, nil
	}
	return newToken(r.Tokens, issuer, clientID, proof), nil
}

// adopt takes the token of a record if it is another than old, as it is if another process refreshed it.
func (s *serverAuth) adopt(r *Record, old *token) bool {
	t, err := openRecord(r, old.issuer, old.clientID)
	if err != nil || t == nil || t.Access.Reveal() == old.Access.Reveal() || t.expired(time.Now()) {
		return false
	}
	t.fromOtherProcess = true
	s.install(t)
	return true
}

// save keeps a token and then installs it: a refresh token that was rotated must not be lost, since the one before is of no use any more. If the store fails
// so does the request, and the next one tries to keep it again.
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
	// A caller that gives up now would cost the user a login.
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

// forget removes the server's tokens.
func (s *serverAuth) forget(ctx context.Context) error {
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

// refresh gets new tokens for the refresh token, which is sent to the token endpoint that it is from and to no other, whatever the server's metadata says by
// now. It is for who holds the turn.
func (s *serverAuth) refresh(ctx context.Context, t *token) error {
	if locker, ok := s.client.opts.Store.(StoreLocker); ok {
		unlock, err := locker.Lock(ctx)
		if err != nil {
			return authorizationError("store", s.name, t.issuer, err)
		}
		defer unlock()
		if r, err := locker.Load(ctx, s.tokenKey(t.issuer, t.clientID)); err == nil && s.adopt(r, t) {
			return nil
		}
	}
	fresh, err := s.requestRefresh(ctx, t)
	if err != nil {
		return authorizationError("refresh", s.name, t.issuer, err)
	}
	return s.save(ctx, newToken(fresh, t.issuer, t.clientID, t.proof))
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
	// Once sent, the refresh token may be used up: the answer is waited for even if the caller goes. The request has a timeout of its own.
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

// credentialsOf returns what the client authenticates with where a token is from.
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
		return nil, fmt.Errorf("%w: the token is of another client id", ErrUnregistered)
	}
	return cred, nil
}
