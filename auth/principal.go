package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
)

// A Principal is the identity that a request acts for, from a verified token. It does not
// contain the token or anything else that would let its holder act as the client. A returned
// Principal is shared: neither it nor its slices and maps may be changed.
type Principal struct {
	// Issuer, Subject and ClientID together are the identity: who vouches, for whom, and which
	// software acts. Subject or ClientID may be empty if the issuer does not supply it.
	Issuer, Subject, ClientID string
	// Scopes are the granted scopes, in the token's order, without duplicates. See
	// [Principal.HasScopes] for included scopes.
	Scopes []string
	// Expires is the token's expiry. Zero means never. Streams and other work that outlives a
	// request must end then: see [WithExpiry].
	Expires time.Time
	// KeyThumbprint is the thumbprint (https://www.rfc-editor.org/rfc/rfc7638) of the key that the
	// token is bound to, from its cnf.jkt. A [Guard] accepts such a token only with a proof of that
	// key. It is empty for bearer tokens.
	KeyThumbprint string
	// Claims are the issuer's claims, by name. Their texts are untrusted input.
	Claims map[string]json.RawMessage

	// hierarchy holds the included scopes of the guard's configuration.
	hierarchy scopeHierarchy
}

// ID returns the identity as one text: issuer, subject and client id, separated by a space. It is
// unique for the three parts: blanks, controls, quotes, angle brackets, & and non-ASCII bytes in
// them are percent-encoded, so that the text is also safe in a log or a header. Bind sessions,
// tasks, caches and limits to it. The ID of nil is empty.
func (p *Principal) ID() string {
	if p == nil {
		return ""
	}
	b := make([]byte, 0, len(p.Issuer)+len(p.Subject)+len(p.ClientID)+2)
	b = appendEscaped(b, p.Issuer)
	b = append(b, ' ')
	b = appendEscaped(b, p.Subject)
	b = append(b, ' ')
	return string(appendEscaped(b, p.ClientID))
}

// String returns the ID, so that no log shows the claims by accident.
func (p *Principal) String() string { return p.ID() }

// LogValue returns the ID, so that no log shows the claims by accident.
func (p *Principal) LogValue() slog.Value { return slog.StringValue(p.ID()) }

// HasScopes reports whether the principal has all scopes, by name or by a scope that includes them
// ([GuardOptions.ScopeIncludes]). A nil Principal has no scopes.
func (p *Principal) HasScopes(scopes ...string) bool { return len(p.missing(scopes)) == 0 }

// missing returns the scopes that the principal lacks.
func (p *Principal) missing(scopes []string) []string {
	var missing []string
	for _, s := range scopes {
		if p == nil || !p.hierarchy.grants(p.Scopes, s) {
			missing = append(missing, s)
		}
	}
	return missing
}

func appendEscaped(dst []byte, s string) []byte {
	const hex = "0123456789ABCDEF"
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`%"\<>&'`, c) >= 0 {
			dst = append(dst, '%', hex[c>>4], hex[c&15])
		} else {
			dst = append(dst, c)
		}
	}
	return dst
}

type principalKey struct{}

// WithPrincipal returns a context for requests of p. [Guard.Protect] calls it; it is
// exported for other ways to authenticate, and for tests.
func WithPrincipal(ctx context.Context, p *Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// PrincipalOf returns the principal of ctx, or nil if the request is not authenticated.
func PrincipalOf(ctx context.Context) *Principal {
	p, _ := ctx.Value(principalKey{}).(*Principal)
	return p
}

type tokenKey struct{}

// TokenOf returns the token that the request of ctx came with, if its guard has
// [GuardOptions.KeepToken], and otherwise an empty Secret. The token is for this server alone: a
// server must not send it to another server, only to the authorization server that issued it, for
// example with oauth.TokenExchange. See
// https://modelcontextprotocol.io/docs/tutorials/security/security_best_practices (section "Token
// Passthrough").
func TokenOf(ctx context.Context) Secret {
	token, _ := ctx.Value(tokenKey{}).(Secret)
	return token
}

// ErrExpired is the cause ([context.Cause]) of the end of a request's context if the token of its
// principal has expired meanwhile.
var ErrExpired = errors.New("token has expired")

// unique returns a new slice with the elements of s, without empty and repeated ones.
func unique(s []string) []string {
	var out []string
	for _, e := range s {
		if e != "" && !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	return out
}

// ErrUnauthenticated is the error of [Require] if the context has no principal.
var ErrUnauthenticated = errors.New("not authenticated")

// A ScopeError says that a principal lacks scopes for an operation. [Deny] answers it with status
// 403, so that a client can ask its user for more and try again.
// See https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization
// (section "Scope Challenge Handling").
type ScopeError struct {
	// Scopes are all scopes of the operation.
	Scopes []string
	// Missing are the scopes that the principal lacks.
	Missing []string
}

func (e *ScopeError) Error() string {
	return fmt.Sprintf("insufficient scope: %s needed", strings.Join(e.Scopes, " "))
}

// Require returns nil if the principal of ctx has all scopes, or if scopes is empty. It respects
// [GuardOptions.ScopeIncludes]. The error is a [*ScopeError], or [ErrUnauthenticated] if ctx has no
// principal.
//
// A streamable.Handler answers a request whose handler returns this error with [Deny], unless the
// response has begun or the request is part of a batch; then the error is like any other.
//
// Pass all scopes of an operation in one call: the client requests the scopes of the error, and
// should not have to ask its user twice.
func Require(ctx context.Context, scopes ...string) error {
	if len(scopes) == 0 {
		return nil
	}
	p := PrincipalOf(ctx)
	if p == nil {
		return ErrUnauthenticated
	}
	if missing := p.missing(scopes); len(missing) > 0 {
		return &ScopeError{Scopes: slices.Clone(scopes), Missing: missing}
	}
	return nil
}

// A scopeHierarchy maps a scope to all scopes that it includes, directly or indirectly.
type scopeHierarchy map[string][]string

// newScopeHierarchy returns the closure of the configured scopes. The scopes of a cycle include
// each other.
func newScopeHierarchy(includes map[string][]string) (scopeHierarchy, error) {
	tree := scopeHierarchy{}
	for scope, direct := range includes {
		if err := checkScopes(append([]string{scope}, direct...)); err != nil {
			return nil, err
		}
		all := slices.Clone(direct)
		for i := 0; i < len(all); i++ { // grows
			for _, s := range includes[all[i]] {
				if !slices.Contains(all, s) {
					all = append(all, s)
				}
			}
		}
		tree[scope] = all
	}
	return tree, nil
}

// grants reports whether one of granted is scope or includes it.
func (h scopeHierarchy) grants(granted []string, scope string) bool {
	return slices.ContainsFunc(granted, func(g string) bool { return g == scope || slices.Contains(h[g], scope) })
}

// validScope reports whether s is a scope-token of
// https://www.rfc-editor.org/rfc/rfc6749#section-3.3. It is safe in a quoted string.
func validScope(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return false
		}
	}
	return s != ""
}

func checkScopes(scopes []string) error {
	for _, s := range scopes {
		if !validScope(s) {
			return fmt.Errorf("%q is not a valid scope", s)
		}
	}
	return nil
}
