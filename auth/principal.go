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

// A Principal is on whose behalf a request comes, as a verified token says. It holds nothing that would let its holder act as the client: the token is
// not part of it. A Principal that was handed out is shared, and neither it nor its slices and maps may be changed.
type Principal struct {
	// Issuer, Subject and ClientID together are the identity: who vouches, for whom, and which software acts. Subject or ClientID may be empty where an
	// issuer does not tell.
	Issuer, Subject, ClientID string
	// Scopes is what the token was granted, in the token's order, without repetitions. See [Principal.HasScopes] for what follows from it.
	Scopes []string
	// Expires is when the token ends; zero if it does not. What outlives a request, a stream above all, has to end then: see [WithExpiry].
	Expires time.Time
	// KeyThumbprint is the thumbprint (https://www.rfc-editor.org/rfc/rfc7638) of the key that the token is bound to, from its cnf.jkt. A [Guard] accepts
	// such a token only with a proof of that key. Empty for bearer tokens.
	KeyThumbprint string
	// Claims is all that the issuer said, by name. Texts in it are the issuer's and need escaping like any other input.
	Claims map[string]json.RawMessage

	hierarchy scopeHierarchy // what a scope includes, by the guard's configuration
}

// ID returns the identity as one text: issuer, subject and client id, with a blank between them. It is the same for the same three, and different for
// others: in the parts blanks, controls, quotes, angle brackets, & and everything beyond ASCII are percent-encoded, so that the text can also stand in a
// log or a header. It is what sessions, tasks, caches and limits should be bound to. The ID of nil is empty.
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

// LogValue returns the ID, for the same reason.
func (p *Principal) LogValue() slog.Value { return slog.StringValue(p.ID()) }

// HasScopes tells whether the principal was granted all of scopes, each by name or by a scope that includes it ([GuardOptions.ScopeIncludes]). Nil has
// none.
func (p *Principal) HasScopes(scopes ...string) bool { return len(p.missing(scopes)) == 0 }

// missing returns those of scopes that the principal was not granted.
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

// WithPrincipal returns a context whose requests come on behalf of p. [Guard.Protect] does this; it is exported for other ways to authenticate, and for
// tests.
func WithPrincipal(ctx context.Context, p *Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// PrincipalOf returns the principal of ctx, or nil if the request is not authenticated.
func PrincipalOf(ctx context.Context) *Principal {
	p, _ := ctx.Value(principalKey{}).(*Principal)
	return p
}

// ErrExpired is the cause ([context.Cause]) of a context of [WithExpiry] that ended because the token did.
var ErrExpired = errors.New("token has expired")

// WithExpiry returns a context that ends when the token of ctx's principal does, with the cause [ErrExpired]. It is for what lives longer than a request,
// so that a stream does not go on after the authorization has ended. Without a principal, or an expiry, it ends with ctx. The caller must call cancel.
func WithExpiry(ctx context.Context) (_ context.Context, cancel context.CancelFunc) {
	if p := PrincipalOf(ctx); p != nil && !p.Expires.IsZero() {
		return context.WithDeadlineCause(ctx, p.Expires, ErrExpired)
	}
	return context.WithCancel(ctx)
}

// unique returns s without empty and repeated elements, in a slice of its own.
func unique(s []string) []string {
	var out []string
	for _, e := range s {
		if e != "" && !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	return out
}

// ErrUnauthenticated is what [Require] returns if the context has no principal at all.
var ErrUnauthenticated = errors.New("not authenticated")

// A ScopeError says that a principal lacks scopes that an operation needs. [Deny] answers it with the status 403, upon which a client can ask its user
// for more and try again.
// See https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization#scope-challenge-handling.
type ScopeError struct {
	Scopes  []string // all that the operation needs
	Missing []string // those of them that the principal lacks
}

func (e *ScopeError) Error() string {
	return fmt.Sprintf("insufficient scope: %s needed", strings.Join(e.Scopes, " "))
}

// Require returns nil if the principal of ctx has all scopes, or if there are none to have. It takes into account that one scope may include others
// ([GuardOptions.ScopeIncludes]). The error is a [*ScopeError], or [ErrUnauthenticated] if ctx has no principal.
//
// Name all scopes of an operation in one call: the client asks for what the error names, and should not have to ask its user twice.
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

// A scopeHierarchy has, for a scope, all scopes that it includes, directly or not.
type scopeHierarchy map[string][]string

// newScopeHierarchy returns the closure of what is configured. A cycle makes its scopes include each other.
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

// grants tells whether one of granted is scope, or includes it.
func (h scopeHierarchy) grants(granted []string, scope string) bool {
	return slices.ContainsFunc(granted, func(g string) bool { return g == scope || slices.Contains(h[g], scope) })
}

// validScope tells whether s is a scope-token of https://www.rfc-editor.org/rfc/rfc6749#section-3.3, which can stand in a quoted string as it is.
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
			return fmt.Errorf("%q cannot be a scope", s)
		}
	}
	return nil
}
