package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

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
