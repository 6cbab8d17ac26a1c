package cluster

import (
	"context"
	"errors"
	"fmt"

	"mcpwire/oauth"
)

const (
	tokenPurpose = "cluster token 1" // increment for each format
	refreshLease = "oauth refresh"
)

// A tokenStore is an oauth.StoreLocker and an oauth.LoginLocker.
type tokenStore struct {
	n       *Node
	records *records
}

var _ oauth.LoginLocker = (*tokenStore)(nil)

// TokenStore returns the store of tokens that all nodes share. The tokens are encrypted with
// [NodeOptions].Secrets; without these it returns an error. The store is also an
// [oauth.LoginLocker]: one node at a time refreshes tokens, and one asks the user to log in to a
// server. A node that fails meanwhile blocks the others for about four seconds.
func (n *Node) TokenStore(ctx context.Context) (oauth.StoreLocker, error) {
	if n.secrets == nil {
		return nil, errors.New("cluster: a token store needs NodeOptions.Secrets, to encrypt tokens")
	}
	r, err := n.records(ctx, "tokens", RecordsOptions{MaxBytes: 1 << 30, Durable: true})
	if err != nil {
		return nil, err
	}
	return &tokenStore{n, r}, nil
}

func (s *tokenStore) key(key oauth.RecordKey) string {
	return s.n.key("token", key.Issuer, key.Resource, key.ClientID, key.Account)
}

// Load implements [oauth.Store].
func (s *tokenStore) Load(ctx context.Context, key oauth.RecordKey) (*oauth.Record, error) {
	k := s.key(key)
	rec, err := s.records.Get(ctx, k)
	if errors.Is(err, ErrNotFound) {
		return nil, oauth.ErrNotStored
	}
	if err != nil {
		return nil, err
	}
	plain, err := s.n.unseal(tokenPurpose, k, rec.Value)
	if err != nil {
		return nil, err
	}
	r := new(oauth.Record)
	if err := r.UnmarshalSecrets(plain); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	return r, nil
}

// Save implements [oauth.Store].
func (s *tokenStore) Save(ctx context.Context, key oauth.RecordKey, r *oauth.Record) error {
	k := s.key(key)
	plain, err := r.MarshalSecrets()
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	value, err := s.n.seal(tokenPurpose, k, plain)
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	_, _, err = s.records.update(ctx, k, func([]byte) ([]byte, error) { return value, nil })
	return err
}

// Delete implements [oauth.Store].
func (s *tokenStore) Delete(ctx context.Context, key oauth.RecordKey) error {
	return s.records.remove(ctx, s.key(key))
}

// Lock implements [oauth.StoreLocker].
func (s *tokenStore) Lock(ctx context.Context) (unlock func(), err error) {
	l, err := s.n.Acquire(ctx, refreshLease)
	if err != nil {
		return nil, err
	}
	return func() { s.release(ctx, l) }, nil
}

// release gives a lease back, even if ctx has ended. If that fails, the others wait until the lease
// is lost.
func (s *tokenStore) release(ctx context.Context, l *Lease) {
	if err := l.Release(context.WithoutCancel(ctx)); err != nil {
		s.n.opts.Logger.Warn("other nodes wait for a lease that is not held", "error", err)
	}
}

// failedMark is the record of a resource whose last login failed.
var failedMark = []byte{format}

// LockLogin implements [oauth.LoginLocker].
func (s *tokenStore) LockLogin(ctx context.Context, resource string, waiting func()) (unlock func(failed bool), failed bool, err error) {
	waited := false
	l, err := s.n.acquire(ctx, "oauth login "+resource, func() {
		waited = true
		waiting()
	})
	if err != nil {
		return nil, false, err
	}
	key := s.n.key("login", resource)
	if waited {
		_, err = s.records.Get(ctx, key)
		failed = err == nil
	}
	if err == nil || errors.Is(err, ErrNotFound) {
		err = s.records.remove(ctx, key)
	}
	if err != nil {
		s.release(ctx, l)
		return nil, false, err
	}
	return func(failed bool) {
		if failed {
			ctx := context.WithoutCancel(ctx)
			// Without the mark the next node asks the user, too.
			_, _, err := s.records.update(ctx, key, func([]byte) ([]byte, error) { return failedMark, nil })
			if err != nil {
				s.n.opts.Logger.Warn("other nodes do not learn that a login failed", "error", err)
			}
		}
		s.release(ctx, l)
	}, failed, nil
}
