package server

import (
	"context"
	"fmt"
)

// A Principal is on whose behalf a request comes, as far as the transport has made sure of it: by a verified token, by the credentials of a socket's peer.
// What a client says of itself is never part of it. The zero Principal is nobody in particular, as on standard input and output.
type Principal struct {
	ID     string   // unique among all principals, an issuer and a subject say
	Scopes []string // what it was granted
	Claims any      // what else is known of it
}

type identityKey struct{}

// A behalf is whose requests a context is for.
type identity struct {
	principal *Principal
	address   string // of the peer, which tells apart who is nobody in particular; "" if each connection is one caller
}

// WithPrincipal returns a context for [Server.Serve] whose requests come on behalf of p.
func WithPrincipal(ctx context.Context, p *Principal) context.Context {
	return context.WithValue(ctx, identityKey{}, &identity{principal: p})
}

// WithIdentity is for transports that do not import this package, and know of each request whose it is: it returns a context for one that comes on behalf of the
// [Principal] with these fields. If id is empty, that is nobody in particular, and the limits tell callers apart by their network address;
// a server that limits no callers returns ctx itself then, which transports may rely on.
func (s *Server) WithIdentity(ctx context.Context, id, address string, scopes []string, claims any) context.Context {
	p := anonymous
	switch {
	case id != "":
		p = &Principal{ID: id, Scopes: scopes, Claims: claims}
	case s.limits == nil && !s.opts.SingleUseState:
		return ctx // nobody asks
	}
	return context.WithValue(ctx, identityKey{}, &identity{p, address})
}

var (
	anonymous         = &Principal{}
	anonymousIdentity = &identity{principal: anonymous}
)

// identityOf returns on whose behalf the requests of ctx come.
func identityOf(ctx context.Context) *identity {
	if b, _ := ctx.Value(identityKey{}).(*identity); b != nil && b.principal != nil {
		return b
	}
	return anonymousIdentity
}

// callerID tells who makes the call from other callers, as limits do; see [RateLimit].
func (c *Call) callerID() string {
	id := c.identity()
	switch {
	case id.principal.ID != "":
		return id.principal.ID
	case id.address != "":
		return "\x00" + id.address
	}
	return fmt.Sprintf("\x00%p", c.session)
}
