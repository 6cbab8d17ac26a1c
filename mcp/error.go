package mcp

import (
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
)

// Error codes that MCP adds to JSON-RPC's (https://modelcontextprotocol.io/specification/2026-07-28/basic#error-codes).
const (
	CodeHeaderMismatch                  jsonrpc.Code = -32020 // since 2026-07-28
	CodeMissingRequiredClientCapability jsonrpc.Code = -32021 // since 2026-07-28
	CodeUnsupportedProtocolVersion      jsonrpc.Code = -32022 // since 2026-07-28
	CodeResourceNotFound                jsonrpc.Code = -32002 // until 2025-11-25; -32602 since
	CodeURLElicitationRequired          jsonrpc.Code = -32042 // 2025-11-25 only
)

// UnsupportedProtocolVersion is the error for a request of a revision that is not spoken here.
func UnsupportedProtocolVersion(supported []Revision, requested string) *jsonrpc.Error {
	data := append([]byte(`{"supported":`), AppendRevisions(nil, supported)...)
	data = jsonwire.AppendQuote(append(data, `,"requested":`...), requested)
	return &jsonrpc.Error{
		Code:    CodeUnsupportedProtocolVersion,
		Message: "unsupported protocol version",
		Data:    append(data, '}'),
	}
}

// AppendRevisions appends the JSON array of the revisions' dates.
func AppendRevisions(dst []byte, revisions []Revision) []byte {
	dst = append(dst, '[')
	for i, r := range revisions {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsonwire.AppendQuote(dst, r.String())
	}
	return append(dst, ']')
}
