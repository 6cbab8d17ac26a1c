package server

import (
	"runtime/debug"
	"slices"
)

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
