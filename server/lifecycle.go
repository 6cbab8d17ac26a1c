package server

import (
	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// capabilities is what the server can do, in all revisions. Tools may be added at any time, so they are declared even if there are none yet.
const capabilities = `{"logging":{},"tools":{"listChanged":true}}`

// initialize answers the handshake of a legacy client
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#initialization).
func (s *session) initialize(r *jsonrpc.Request, dst []byte) ([]byte, error) {
	f, err := s.era.Initialize(r)
	if err != nil {
		return dst, err
	}
	s.setPolicy()
	dst = jsonwire.AppendQuote(append(dst, `{"protocolVersion":`...), f.Revision.String())
	dst = append(append(dst, `,"capabilities":`...), capabilities...)
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
	dst = append(append(dst, `,"capabilities":`...), capabilities...)
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
