package auth

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// inTurn calls login, unless what it would get is there already: of several processes that share a store one asks the user, and the others get the same token, or the same
// failure. seen is the token that does not do; it may be nil.
func (s *session) inTurn(ctx context.Context, issuer string, seen *token, login func() error) (err error) {
	g, asks := s.c.opts.Grant.(AuthorizationCode)
	locker, ok := s.c.opts.Store.(LoginLocker)
	if !asks || g.Redirector == nil || !ok {
		return login()
	}
	over := func() {}
	unlock, vain, err := locker.LockLogin(ctx, s.name+" "+s.c.opts.Account, func() {
		s.c.logf("waiting for another process that has the user log in to %s", s.name)
		over = g.wait(false)
	})
	over()
	if err != nil {
		return wrap("store", s.name, issuer, err)
	}
	defer func() { unlock(errors.Is(err, ErrConsentRequired) || errors.Is(err, ErrDenied)) }()
	bound := s.bound
	t, err := s.stored(ctx)
	s.bound = bound
	switch {
	case err != nil:
		return wrap("store", s.name, issuer, err)
	case t != nil && t.issuer == issuer && !sameAccess(t, seen) && !t.expired(time.Now()):
		t.adopted = true
		s.install(t)
		return nil
	case vain:
		return wrap("authorize", s.name, issuer, fmt.Errorf("%w: another process has asked, in vain", ErrConsentRequired))
	}
	return login()
}
