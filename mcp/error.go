package mcp

import (
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
)

// Error codes that MCP adds to those of JSON-RPC
// (https://modelcontextprotocol.io/specification/2026-07-28/basic#error-codes).
const (
	CodeHeaderMismatch                  jsonrpc.Code = -32020 // since 2026-07-28
	CodeMissingRequiredClientCapability jsonrpc.Code = -32021 // since 2026-07-28
	CodeUnsupportedProtocolVersion      jsonrpc.Code = -32022 // since 2026-07-28
	CodeResourceNotFound                jsonrpc.Code = -32002 // until 2025-11-25; -32602 since
	CodeURLElicitationRequired          jsonrpc.Code = -32042 // 2025-11-25 only
)

// UnsupportedProtocolVersion returns the error for a request of an unsupported revision. Its data
// is an [UnsupportedProtocolVersionData].
func UnsupportedProtocolVersion(supported []Revision, requested string) *jsonrpc.Error {
	data := append([]byte(`{"supported":`), AppendRevisions(nil, supported)...)
	return &jsonrpc.Error{
		Code:    CodeUnsupportedProtocolVersion,
		Message: "unsupported protocol version",
		Data:    append(putString(data, `"requested":`, requested), '}'),
	}
}

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

// ResourceNotFound returns the error for an unknown resource, for a request of revision r.
func ResourceNotFound(uri string, r Revision) *jsonrpc.Error {
	e := &jsonrpc.Error{
		Code:    CodeResourceNotFound,
		Message: "resource not found",
		Data:    append(putString([]byte{'{'}, `"uri":`, uri), '}'),
	}
	if r.Modern() {
		e.Code = jsonrpc.CodeInvalidParams
	}
	return e
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
