package server

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
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

// A View is what some callers see of a server: what it hides is in no list for them, and to call, read or get it is answered as if it did not
// exist. Lists are encoded once for each View, so make a View for each group of callers and not for each request. It is immutable.
type View struct {
	sees func(kind Kind, name string) bool
}

// NewView returns the View of what sees reports true for: the name is that of a tool or a prompt, the URI of a resource, the URI template
// of a resource template. A resource that a template stands for is visible with its template. sees must answer the same each time, quickly, and may be called by many
// goroutines at once.
func NewView(sees func(kind Kind, name string) bool) *View { return &View{sees: sees} }

// shows reports whether an item is there for the caller. A nil View shows everything.
func (v *View) shows(kind Kind, name string) bool { return v == nil || v.sees(kind, name) }

// hidesResource reports whether there is a resource with the URI that the view does not show. Of URIs that nobody has registered nothing is hidden. A view
// that panics, on the goroutine of an announcer which is no request's, hides it.
func (s *Server) hidesResource(v *View, uri string) (hidden bool) {
	if v == nil {
		return false
	}
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("a View panicked", "panic", p, "stack", string(debug.Stack()))
			hidden = true
		}
	}()
	kind, key, ok := s.itemAt(uri)
	return ok && !v.shows(kind, key)
}

// ListsChanged tells the clients of the principals with these IDs, of all if there are none, that their lists have changed: [Options.View] gives them
// another View than before. Without it clients learn of that only when they ask again. What was encoded for views that are gone is dropped. Clients go on
// hearing of updates, by the URI alone, of resources that they watch already.
func (s *Server) ListsChanged(principals ...string) {
	s.listsChangedLocal(principals)
	if len(principals) == 0 {
		s.bus.publish(Event{Kind: ViewChanged})
	}
	for _, id := range principals {
		s.bus.publish(Event{Kind: ViewChanged, Name: id})
	}
}

func (s *Server) listsChangedLocal(principals []string) {
	s.tools.reset()
	s.resources.reset()
	s.templates.reset()
	s.prompts.reset()
	var all listChange
	for _, c := range listChanges {
		if s.advertises(c.bit) {
			all |= c.bit
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for sess := range s.sessions {
		if len(principals) == 0 || slices.Contains(principals, sess.identity.principal.ID) {
			sess.pending.changed |= all
			sess.startNotifierLocked()
		}
	}
}

// reset drops what was encoded.
func (r *registry[T]) reset() {
	r.mu.Lock()
	r.current.Store(nil)
	r.mu.Unlock()
}
