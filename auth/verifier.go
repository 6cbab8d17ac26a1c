package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// maxToken limits the length of a token that is checked, in bytes.
const maxToken = 16 << 10

var (
	// ErrInvalidToken means that a token is invalid here: malformed, forged, expired, revoked, of
	// another issuer or for another resource. It is answered with status 401, which does not say
	// which.
	ErrInvalidToken = errors.New("invalid token")
	// ErrUnavailable means that a token could not be verified, because the issuer does not answer
	// or a cache is full. It is answered with status 503, so that clients try again with the same
	// token.
	ErrUnavailable = errors.New("token cannot be verified now")
)

// A Verifier checks whether a token is valid for this server, and returns its principal.
//
// Verify returns a Principal that the caller must not change, or an error that wraps
// [ErrInvalidToken] or [ErrUnavailable]. Any other error counts as ErrUnavailable. Errors must not
// contain any part of the token. Many goroutines may call Verify at once. The token has at most 16
// KiB, of the characters that https://www.rfc-editor.org/rfc/rfc6750#section-2.1 allows.
type Verifier interface {
	Verify(ctx context.Context, token string) (*Principal, error)
}

// AnyOf returns a Verifier that asks the given ones in order, until one accepts the token. If a
// verifier of [NewJWT] rejects a token of its issuer, AnyOf stops, so that one issuer's tokens are
// not sent to another's introspection. After any other [ErrInvalidToken], AnyOf asks the next
// verifier. If all reject the token and one was unavailable, the error is [ErrUnavailable].
//
// Put verifiers that decide locally first: NewStatic, NewJWT, NewIntrospection.
func AnyOf(verifiers ...Verifier) Verifier { return anyOf(verifiers) }

type anyOf []Verifier

func (a anyOf) Verify(ctx context.Context, token string) (*Principal, error) {
	result := invalid("unknown token")
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

// errNoPrincipal is the error for a verifier that returned neither a principal nor an error.
var errNoPrincipal = fmt.Errorf("%w: the verifier returned no principal", ErrUnavailable)

// invalid returns an ErrInvalidToken with a reason, which must not come from the token.
func invalid(reason string) error { return fmt.Errorf("%w: %s", ErrInvalidToken, reason) }

// unavailable returns an ErrUnavailable because of err.
func unavailable(what string, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, what, err)
}

// An authoritativeError is the error of the verifier of the token's issuer. No other verifier is
// asked.
type authoritativeError struct{ err error }

func (e *authoritativeError) Error() string { return e.err.Error() }
func (e *authoritativeError) Unwrap() error { return e.err }

// staticIssuer is the issuer of principals of fixed tokens. No authorization server can have this
// name.
const staticIssuer = "static"

// minStaticToken is the minimum length of a fixed token, in bytes. 16 random characters cannot be
// guessed.
const minStaticToken = 16

// A StaticToken is a fixed token and its owner. Either Token or SHA256 is required.
type StaticToken struct {
	// Token is the token: at least 16 characters that are hard to guess, of those that
	// https://www.rfc-editor.org/rfc/rfc6750#section-2.1 allows. Only its hash is stored.
	Token string
	// SHA256 is the hash of the token in hexadecimal digits, so that a configuration need not
	// contain the token. The token must be random: hashes of words can be reversed.
	SHA256 string
	// Subject names the owner and is required. ClientID may be empty.
	Subject, ClientID string
	// Scopes are the granted scopes.
	Scopes []string
	// Expires is when the token expires. Zero means never.
	Expires time.Time
}

// A staticVerifier verifies fixed tokens.
type staticVerifier struct{ entries []staticEntry }

type staticEntry struct {
	digest    [sha256.Size]byte
	principal *Principal
}

// NewStatic returns a [Verifier] of fixed tokens, which takes the same time for every token. The
// issuer of its principals is "static". The error names an invalid token by its index, not by its
// text.
func NewStatic(tokens ...StaticToken) (Verifier, error) {
	s := &staticVerifier{}
	for i, t := range tokens {
		digest, err := t.digest()
		if err == nil {
			err = checkScopes(t.Scopes)
		}
		if err == nil && t.Subject == "" {
			err = errors.New("the subject is missing")
		}
		for _, e := range s.entries {
			if e.digest == digest && err == nil {
				err = errors.New("duplicate token")
			}
		}
		if err != nil {
			return nil, fmt.Errorf("auth: fixed token %d: %w", i, err)
		}
		s.entries = append(s.entries, staticEntry{digest, &Principal{
			Issuer: staticIssuer, Subject: t.Subject, ClientID: t.ClientID, Scopes: unique(t.Scopes), Expires: t.Expires,
		}})
	}
	if len(s.entries) == 0 {
		return nil, errors.New("auth: no fixed tokens")
	}
	return s, nil
}

// String returns the subject, so that no log shows the token by accident.
func (t StaticToken) String() string { return t.Subject }

// LogValue returns the subject, so that no log shows the token by accident.
func (t StaticToken) LogValue() slog.Value { return slog.StringValue(t.Subject) }

func (t StaticToken) digest() (d [sha256.Size]byte, err error) {
	switch {
	case (t.Token == "") == (t.SHA256 == ""):
		return d, errors.New("either the token or its hash is required")
	case t.SHA256 != "":
		b, err := hex.DecodeString(t.SHA256)
		if err != nil || len(b) != len(d) {
			// Do not return hex's error, which quotes the text.
			return d, errors.New("the hash is not a SHA-256 in hexadecimal digits")
		}
		return [sha256.Size]byte(b), nil
	case len(t.Token) < minStaticToken:
		return d, fmt.Errorf("token shorter than %d characters", minStaticToken)
	case len(t.Token) > maxToken || !validToken(t.Token):
		return d, errors.New("token has invalid characters, or is too long")
	}
	return sha256.Sum256([]byte(t.Token)), nil
}

// Verify implements Verifier. It takes the same time for every token.
func (s *staticVerifier) Verify(_ context.Context, token string) (*Principal, error) {
	digest := sha256.Sum256([]byte(token))
	var found *Principal
	for i := range s.entries {
		if subtle.ConstantTimeCompare(digest[:], s.entries[i].digest[:]) == 1 {
			found = s.entries[i].principal
		}
	}
	switch {
	case found == nil:
		return nil, invalid("not one of the fixed tokens")
	case !found.Expires.IsZero() && !time.Now().Before(found.Expires):
		return nil, invalid("token has expired")
	}
	return found, nil
}
