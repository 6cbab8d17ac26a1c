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
	if f.Completions && s.completing.Load() {
		dst = append(dst, `,"completions":{}`...)
	}
	if s.declares(promptsChanged) {
		dst = append(dst, `,"prompts":{"listChanged":true}`...)
	}
	if s.declares(resourcesChanged) {
		dst = append(dst, `,"resources":{"subscribe":true,"listChanged":true}`...)
	}
	if f.CoreTasks && s.tasks != nil {
		dst = append(dst, `,"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`...)
	}
	if s.declares(toolsChanged) {
		dst = append(dst, `,"tools":{"listChanged":true}`...)
	}
	return append(s.appendDeclarations(dst, f), '}')
}

// initialize answers the handshake of a legacy client
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#initialization).
func (s *session) initialize(r *jsonrpc.Request, dst []byte) ([]byte, error) {
	f, err := s.era.Initialize(r)
	if err != nil {
		return dst, err
	}
	s.setPolicy()
	dst = jsonwire.AppendQuote(append(dst, `{"protocolVersion":`...), f.Revision.String())
	dst = s.srv.appendCapabilities(append(dst, `,"capabilities":`...), f)
	dst = s.srv.identity.AppendInfo(append(dst, `,"serverInfo":`...), f)
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
	return s.identity.End(dst, f)
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
