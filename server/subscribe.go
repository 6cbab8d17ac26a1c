package server

import (
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// subscribe answers resources/subscribe of legacy clients, which does nothing the second time; modern ones list the resources in subscriptions/listen.
// (https://modelcontextprotocol.io/specification/2025-11-25/server/resources#subscriptions)
func (s *session) subscribe(c *Call, r *jsonrpc.Request, dst []byte) ([]byte, error) {
	_, uri, err := s.resourceParam(r)
	if err != nil {
		return dst, err
	}
	if !s.srv.hasResource(c.view, uri) {
		return dst, mcp.ResourceNotFound(uri, c.ex.Revision)
	}
	subs := &s.legacySubs
	subs.mu.Lock()
	defer subs.mu.Unlock()
	if _, ok := subs.uris[uri]; !ok {
		if err := s.subscribeURIs([]string{uri}); err != nil {
			return dst, err
		}
		if subs.uris == nil {
			subs.uris = make(map[string]*View)
		}
		subs.uris[uri] = c.view
	}
	return s.srv.results.Empty(dst, c.ex.Features, nil), nil
}

// unsubscribe answers resources/unsubscribe. What is not watched, maybe because it does not exist any more, is passed over.
func (s *session) unsubscribe(c *Call, r *jsonrpc.Request, dst []byte) ([]byte, error) {
	uri, err := stringParam(r, "uri")
	if err != nil {
		return dst, err
	}
	subs := &s.legacySubs
	subs.mu.Lock()
	defer subs.mu.Unlock()
	if _, ok := subs.uris[uri]; ok {
		delete(subs.uris, uri)
		s.unsubscribeURIs([]string{uri})
	}
	return s.srv.results.Empty(dst, c.ex.Features, nil), nil
}
