package server

import (
	"context"
	"fmt"
)

// A Principal is the authenticated identity that a request comes from: the transport has verified a
// token or the credentials of a socket's peer. It never contains a client's claims about itself.
// The zero Principal is anonymous, as on standard input and output.
type Principal struct {
	// ID is unique among all principals, for example an issuer and a subject.
	ID string
	// Scopes lists the granted scopes.
	Scopes []string
	// Claims holds other verified data.
	Claims any
}

type identityKey struct{}

// An identity is the principal and the address of a request.
type identity struct {
	principal *Principal
	// address is the peer's network address, which identifies anonymous callers. If it is empty,
	// each connection is one caller.
	address string
}

// WithPrincipal returns a context for [Server.Serve] whose requests come from p.
func WithPrincipal(ctx context.Context, p *Principal) context.Context {
	return context.WithValue(ctx, identityKey{}, &identity{principal: p})
}

// PrincipalOf returns the principal that the handler or the middleware with this context acts for.
// It is never nil. It is shared and must not be modified.
func PrincipalOf(ctx context.Context) *Principal {
	if c := CallOf(ctx); c != nil {
		return c.Principal()
	}
	return identityOf(ctx).principal
}

var (
	anonymous         = &Principal{}
	anonymousIdentity = &identity{principal: anonymous}
)

// identityOf returns the identity in ctx, or the anonymous one.
func identityOf(ctx context.Context) *identity {
	if b, _ := ctx.Value(identityKey{}).(*identity); b != nil && b.principal != nil {
		return b
	}
	return anonymousIdentity
}

// callerID returns a text that identifies the caller of a request on the session; see
// [CallerLimits].
func (id *identity) callerID(s *session) string {
	switch {
	case id.principal.ID != "":
		return id.principal.ID
	case id.address != "":
		return "\x00" + id.address
	}
	return fmt.Sprintf("\x00%p", s)
}

// A View is the part of a server that some callers see. Hidden items are in no list, and requests
// for them fail as if they did not exist. Lists are encoded once for each View, so create a View
// for each group of callers, not for each request. A View is immutable.
type View struct {
	sees func(kind Kind, name string) bool
}

// NewView returns the View of the items for which sees returns true. name is the name of a tool or
// a prompt, the URI of a resource, or the URI template of a resource template. A resource of a
// template is visible if its template is. sees must be quick, must always return the same result
// for the same item, and may be called by multiple goroutines at once.
func NewView(sees func(kind Kind, name string) bool) *View { return &View{sees: sees} }

// shows reports whether the caller sees an item. A nil View shows everything.
func (v *View) shows(kind Kind, name string) bool { return v == nil || v.sees(kind, name) }
