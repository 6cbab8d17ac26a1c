package auth

import (
	"context"
	"errors"
	"fmt"
)

// maxToken is the length of the longest token that is looked at, in bytes.
const maxToken = 16 << 10

var (
	// ErrInvalidToken says that a token is not good here: malformed, forged, expired, revoked, of another issuer or for another resource. It is
	// answered with the status 401, which does not tell which of these it was.
	ErrInvalidToken = errors.New("invalid token")
	// ErrUnavailable says that it could not be found out whether a token is good, because the issuer does not answer or a cache is full. It is
	// answered with the status 503, so that clients try again with the same token.
	ErrUnavailable = errors.New("token cannot be verified at the moment")
)

// A Verifier finds out whether a token is good for this server, and whose it is.
//
// Verify returns a Principal that the caller must not change, or an error that wraps [ErrInvalidToken] or [ErrUnavailable]; any other error counts as
// ErrUnavailable. Errors must not contain the token, in full or in part. It may be called by many goroutines at once. The token is at most 16 KiB of the
// characters that https://www.rfc-editor.org/rfc/rfc6750#section-2.1 allows.
type Verifier interface {
	Verify(ctx context.Context, token string) (*Principal, error)
}

// AnyOf returns a Verifier that asks the given ones in order, until one knows the token. A [JWT] whose issuer made the token has the last word on it, so
// that one issuer's tokens are not sent to another's introspection. All others that answer with [ErrInvalidToken] may just not know the token, and the
// next is asked. If no one accepts it and one was unavailable, the answer is [ErrUnavailable].
//
// Put what decides by itself in front of what has to ask: NewStatic, NewJWT, NewIntrospection.
func AnyOf(verifiers ...Verifier) Verifier { return anyOf(verifiers) }

type anyOf []Verifier

func (a anyOf) Verify(ctx context.Context, token string) (*Principal, error) {
	result := invalid("nobody knows it")
	for _, v := range a {
		p, err := v.Verify(ctx, token)
		if err == nil && p != nil {
			return p, nil
		}
		if err == nil {
			err = errNoPrincipal
		}
		var final *authoritativeError
		if errors.As(err, &final) {
			return nil, err
		}
		if !errors.Is(err, ErrInvalidToken) {
			result = fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	return nil, result
}

// errNoPrincipal is a verifier's that returned neither a principal nor an error.
var errNoPrincipal = fmt.Errorf("%w: the verifier returned no principal", ErrUnavailable)

// invalid returns an ErrInvalidToken with a reason, which must not come from the token.
func invalid(reason string) error { return fmt.Errorf("%w: %s", ErrInvalidToken, reason) }

// unavailable returns an ErrUnavailable because of err.
func unavailable(what string, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, what, err)
}

// A authoritativeError is a verifier's that is in charge of the token: no other need be asked.
type authoritativeError struct{ err error }

func (e *authoritativeError) Error() string { return e.err.Error() }
func (e *authoritativeError) Unwrap() error { return e.err }
