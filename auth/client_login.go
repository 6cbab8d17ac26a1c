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
	if s.quiet(ctx) {
		return s.withoutLogin(ctx, issuer, seen)
	}
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
	switch there, err := s.elsewhere(ctx, issuer, seen); {
	case there || err != nil:
		return err
	case vain:
		return wrap("authorize", s.name, issuer, fmt.Errorf("%w: another process has asked, in vain", ErrConsentRequired))
	}
	return login()
}

// quiet reports whether the user is not to be asked for a request, where others would have them asked.
func (s *session) quiet(ctx context.Context) bool {
	_, asks := s.c.opts.Grant.(AuthorizationCode)
	return asks && !mayLogIn(ctx)
}

// withoutLogin is inTurn for requests that are not worth a login: they get what is there.
func (s *session) withoutLogin(ctx context.Context, issuer string, seen *token) error {
	if there, err := s.elsewhere(ctx, issuer, seen); there || err != nil {
		return err
	}
	return wrap("authorize", s.name, issuer, fmt.Errorf("%w, and is not asked because of this request", ErrConsentRequired))
}

// elsewhere takes a token that another process has got meanwhile, and reports whether there was one.
func (s *session) elsewhere(ctx context.Context, issuer string, seen *token) (there bool, err error) {
	bound := s.bound
	t, err := s.stored(ctx)
	s.bound = bound
	if err != nil {
		return false, wrap("store", s.name, issuer, err)
	}
	if t == nil || t.issuer != issuer || sameAccess(t, seen) || t.expired(time.Now()) {
		return false, nil
	}
	t.adopted = true
	s.install(t)
	return true, nil
}
