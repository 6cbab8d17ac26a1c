package auth

import (
	"errors"
	"fmt"
	"strings"
)

// What an [AuthorizationError] wraps tells what can be done about it.
var (
	// ErrConsentRequired: the user has to log in, and there is nobody to ask, or they did not answer in time.
	ErrConsentRequired = errors.New("the user has to log in")
	// ErrDenied: the user, or the authorization server in their name, said no.
	ErrDenied = errors.New("access was denied")
	// ErrRefused: the authorization server refuses this client, its credentials, its scopes or its request.
	ErrRefused = errors.New("the authorization server refuses")
	// ErrUntrusted: what a server said contradicts what it should have said, and might be an attack. Nothing of it was used.
	ErrUntrusted = errors.New("not to be trusted")
	// ErrUnregistered: there is no client id for this authorization server and no way to get one.
	ErrUnregistered = errors.New("no client id for this authorization server")
	// ErrUnreachable: a server did not answer, or said that it cannot at the moment. It may later.
	ErrUnreachable = errors.New("not available")
	// ErrNotReplayable: the client is authorized now, but the request whose response asked for it cannot be sent again because it has no GetBody.
	ErrNotReplayable = errors.New("authorized, but the request cannot be sent again")
)

// An AuthorizationError says why a client has no token. It wraps one of the errors above, or a context's error, or what a [Store], a [Prompter] or a
// source of assertions failed with. Its text has no tokens, codes, secrets or URLs with parameters.
type AuthorizationError struct {
	// Op is what failed: "discover", "register", "authorize", "token", "refresh" or "store".
	Op string
	// Server is the MCP endpoint.
	Server string
	// Issuer is the authorization server, or "" if none is known yet.
	Issuer string
	// Code and Description are what the authorization server said, as "invalid_grant"; "" if it said nothing. Description is its own words, without control
	// characters and cut off at 200 bytes.
	Code, Description string
	// Err is never nil.
	Err error
}

// Error implements error.
func (e *AuthorizationError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "authorization for %s: %s: %v", e.Server, e.Op, e.Err)
	if e.Code != "" {
		fmt.Fprintf(&b, " (%s)", e.Code)
	}
	if e.Description != "" {
		fmt.Fprintf(&b, ": %q", e.Description)
	}
	return b.String()
}

// Unwrap returns Err.
func (e *AuthorizationError) Unwrap() error { return e.Err }

// oauthError is an error that an authorization server answered with. See https://www.rfc-editor.org/rfc/rfc6749#section-5.2.
type oauthError struct {
	code, description string
	kind              error
}

func (e *oauthError) Error() string { return fmt.Sprintf("%v: %s", e.kind, e.code) }
func (e *oauthError) Unwrap() error { return e.kind }

// newOAuthError makes an error of what a server said, in which everything is a peer's text.
func newOAuthError(code, description string) *oauthError {
	e := &oauthError{code: printable(code, 64), description: printable(description, 200), kind: ErrRefused}
	switch code {
	case "access_denied":
		e.kind = ErrDenied
	case "login_required", "consent_required", "interaction_required", "account_selection_required":
		e.kind = ErrConsentRequired
	case "server_error", "temporarily_unavailable", "slow_down":
		e.kind = ErrUnreachable
	}
	return e
}

// printable returns the printable ASCII of a peer's text, at most limit bytes.
func printable(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r > 0x7e {
			return -1
		}
		return r
	}, s)
}

// authorizationError makes an AuthorizationError of an error, unless it is one.
func authorizationError(op, server, issuer string, err error) error {
	if _, ok := errors.AsType[*AuthorizationError](err); ok {
		return err
	}
	e := &AuthorizationError{Op: op, Server: server, Issuer: printable(issuer, 256), Err: err}
	if w, ok := errors.AsType[*oauthError](err); ok {
		e.Code, e.Description, e.Err = w.code, w.description, w.kind
	}
	return e
}

// isOAuthError reports whether err is an authorization server's error with one of these codes.
func isOAuthError(err error, codes ...string) bool {
	var code string
	if w, ok := errors.AsType[*oauthError](err); ok {
		code = w.code
	} else if a, ok := errors.AsType[*AuthorizationError](err); ok {
		code = a.Code
	}
	for _, c := range codes {
		if code == c {
			return true
		}
	}
	return false
}
