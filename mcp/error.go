package mcp

import "mcpwire/jsonrpc"

// Error codes that MCP adds to those of JSON-RPC
// (https://modelcontextprotocol.io/specification/2026-07-28/basic#error-codes).
const (
	CodeHeaderMismatch                  jsonrpc.Code = -32020 // since 2026-07-28
	CodeMissingRequiredClientCapability jsonrpc.Code = -32021 // since 2026-07-28
	CodeUnsupportedProtocolVersion      jsonrpc.Code = -32022 // since 2026-07-28
	CodeResourceNotFound                jsonrpc.Code = -32002 // until 2025-11-25; -32602 since
	CodeURLElicitationRequired          jsonrpc.Code = -32042 // 2025-11-25 only
)

// MissingRequiredClientCapability returns the error for a request that needs these client
// capabilities, since 2026-07-28. Its data is a [MissingRequiredClientCapabilityData].
func MissingRequiredClientCapability(required ClientCapabilities) *jsonrpc.Error {
	data := MissingRequiredClientCapabilityData{RequiredCapabilities: required}
	return &jsonrpc.Error{
		Code:    CodeMissingRequiredClientCapability,
		Message: "the client lacks a required capability",
		Data:    data.appendRevision(nil, RevisionNone),
	}
}

// URLElicitationRequired returns the error for a request that needs the user to open these URLs
// first, in 2025-11-25 only. It sets the params to url mode; each needs an ElicitationID. Its data
// is a [URLElicitationRequiredData].
func URLElicitationRequired(elicitations ...ElicitRequestParams) *jsonrpc.Error {
	data := URLElicitationRequiredData{Elicitations: make([]ElicitRequestParams, len(elicitations))}
	for i, e := range elicitations {
		e.Mode, e.RequestedSchema = ElicitModeURL, nil
		data.Elicitations[i] = e
	}
	return &jsonrpc.Error{
		Code:    CodeURLElicitationRequired,
		Message: "the user must open a URL first",
		Data:    data.appendRevision(nil, LatestLegacyRevision),
	}
}
