package auth

import (
	"context"
	"encoding/json"
	"errors"
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
