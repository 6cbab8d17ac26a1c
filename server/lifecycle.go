package server

import (
	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// appendCapabilities appends what the server can do.
func (s *Server) appendCapabilities(dst []byte, f *era.Features) []byte {
	dst = append(dst, `{"logging":{}`...)
	if f.Completions && s.hasCompleter.Load() {
		dst = append(dst, `,"completions":{}`...)
	}
	if s.advertises(promptsChanged) {
		dst = append(dst, `,"prompts":{"listChanged":true}`...)
	}
	if s.advertises(resourcesChanged) {
		dst = append(dst, `,"resources":{"subscribe":true,"listChanged":true}`...)
	}
	if f.CoreTasks && s.tasks != nil {
		dst = append(dst, `,"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`...)
	}
	if s.advertises(toolsChanged) {
		dst = append(dst, `,"tools":{"listChanged":true}`...)
	}
	return append(s.appendDeclarations(dst, f), '}')
}

// A greeting is the handshake that was made when initialize arrived, for the middleware to take its
// time over the answer.
type handshakeResult struct {
	features *era.Features
	err      error
}

// startHandshake makes the handshake of an initialize request that has just arrived: the messages behind it
// are judged by it.
func (s *session) startHandshake(r *jsonrpc.Request) {
	if _, err := s.era.OpenAt(r, eraStateOf(r)); err != nil {
		return // which is the answer
	}
	h := new(handshakeResult)
	h.features, h.err = s.negotiate(r, s.era.Initialize)
	r.Route = h
}

// negotiate makes a step of the handshake.
func (s *session) negotiate(r *jsonrpc.Request, step func(*jsonrpc.Request) (*era.Features, error)) (*era.Features, error) {
	f, err := step(r)
	if err == nil {
		s.setPolicy()
	}
	return f, err
}

// negotiated returns what the handshake agreed on, which has been made if there is middleware.
// Middleware may have changed the request since.
func (s *session) negotiated(r *jsonrpc.Request) (*era.Features, error) {
	if h, ok := r.Route.(*handshakeResult); ok {
		return h.features, h.err
	}
	if s.srv.chain != nil {
		return s.negotiate(r, s.era.Reinitialize)
	}
	return s.negotiate(r, s.era.Initialize)
}

// initialize answers the handshake of a legacy client
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#initialization).
func (s *session) initialize(r *jsonrpc.Request, dst []byte) ([]byte, error) {
	f, err := s.negotiated(r)
	if err != nil {
		return dst, err
	}
	dst = jsonwire.AppendQuote(append(dst, `{"protocolVersion":`...), f.Revision.String())
	dst = s.srv.appendCapabilities(append(dst, `,"capabilities":`...), f)
	dst = s.srv.results.AppendInfo(append(dst, `,"serverInfo":`...), f)
	return append(s.srv.appendInstructions(dst), '}'), nil
}

// discover answers server/discover (https://modelcontextprotocol.io/specification/2026-07-28/server/discover).
func (s *Server) discover(f *era.Features, dst []byte) []byte {
	newest := make([]mcp.Revision, 0, len(s.opts.Revisions))
	for i := len(s.opts.Revisions) - 1; i >= 0; i-- {
		newest = append(newest, s.opts.Revisions[i])
	}
	dst = mcp.AppendRevisions(append(dst, `{"supportedVersions":`...), newest)
	dst = s.appendCapabilities(append(dst, `,"capabilities":`...), f)
	dst = s.appendInstructions(dst)
	dst = era.AppendCacheHints(dst, f, s.cacheHints())
	return s.results.End(dst, f)
}

func (s *Server) appendInstructions(dst []byte) []byte {
	if s.opts.Instructions == "" {
		return dst
	}
	return jsonwire.AppendQuote(append(dst, `,"instructions":`...), s.opts.Instructions)
}

func (s *Server) cacheHints() era.CacheHints {
	return era.CacheHints{TTLMillis: max(s.opts.ListTTL.Milliseconds(), 0), Public: s.opts.ListPublic}
}

// readHints are those of what resources hold.
func (s *Server) readHints() era.CacheHints {
	return era.CacheHints{TTLMillis: max(s.opts.ReadTTL.Milliseconds(), 0), Public: s.opts.ReadPublic}
}
