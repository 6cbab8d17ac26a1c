package auth

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// withLoginLock calls login, unless what it would get is there already: of several processes that share a store one asks the user, and the others get the same token, or the same
// failure. seen is the token that does not do; it may be nil.
func (s *serverAuth) withLoginLock(ctx context.Context, issuer string, used *token, login func() error) (err error) {
	g, asks := s.client.opts.Grant.(AuthorizationCode)
	locker, ok := s.client.opts.Store.(LoginLocker)
	if s.noPrompt(ctx) {
		return s.useStored(ctx, issuer, used)
	}
	if !asks || g.Prompter == nil || !ok {
		return login()
	}
	endWait := func() {}
	unlock, askedInVain, err := locker.LockLogin(ctx, s.name+" "+s.client.opts.Account, func() {
		s.client.logf("waiting for another process that has the user log in to %s", s.name)
		endWait = g.notifyWait(false)
	})
	endWait()
	if err != nil {
		return authorizationError("store", s.name, issuer, err)
	}
	defer func() { unlock(errors.Is(err, ErrConsentRequired) || errors.Is(err, ErrDenied)) }()
	switch found, err := s.adoptStored(ctx, issuer, used); {
	case found || err != nil:
		return err
	case askedInVain:
		return authorizationError("authorize", s.name, issuer, fmt.Errorf("%w: another process has asked, in vain", ErrConsentRequired))
	}
	return login()
}

// noPrompt reports whether the user is not to be asked for a request, where others would have them asked.
func (s *serverAuth) noPrompt(ctx context.Context) bool {
	_, asks := s.client.opts.Grant.(AuthorizationCode)
	return asks && !loginAllowed(ctx)
}

// useStored is withLoginLock for requests that are not worth a login: they get what is there.
func (s *serverAuth) useStored(ctx context.Context, issuer string, used *token) error {
	if found, err := s.adoptStored(ctx, issuer, used); found || err != nil {
		return err
	}
	return authorizationError("authorize", s.name, issuer, fmt.Errorf("%w, and is not asked because of this request", ErrConsentRequired))
}

// adoptStored takes a token that another process has got meanwhile, and reports whether there was one.
func (s *serverAuth) adoptStored(ctx context.Context, issuer string, used *token) (found bool, err error) {
	bound := s.boundIssuer
	t, err := s.loadStored(ctx)
	s.boundIssuer = bound
	if err != nil {
		return false, authorizationError("store", s.name, issuer, err)
	}
	if t == nil || t.issuer != issuer || sameAccess(t, used) || t.expired(time.Now()) {
		return false, nil
	}
	t.fromOtherProcess = true
	s.install(t)
	return true, nil
}
