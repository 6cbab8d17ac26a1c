package mcp

import (
	"mcpwire/internal/json/jsonwire"
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

// UnsupportedProtocolVersion is the error for a request of a revision that is not spoken here. Its data is an [UnsupportedProtocolVersionData].
func UnsupportedProtocolVersion(supported []Revision, requested string) *jsonrpc.Error {
	data := append([]byte(`{"supported":`), AppendRevisions(nil, supported)...)
	return &jsonrpc.Error{
		Code:    CodeUnsupportedProtocolVersion,
		Message: "unsupported protocol version",
		Data:    append(putString(data, `"requested":`, requested), '}'),
	}
}

// MissingRequiredClientCapability is the error for a request that cannot be served to a client without these capabilities, since 2026-07-28. Its data
// is a [MissingRequiredClientCapabilityData].
func MissingRequiredClientCapability(required ClientCapabilities) *jsonrpc.Error {
	data := MissingRequiredClientCapabilityData{RequiredCapabilities: required}
	return &jsonrpc.Error{
		Code:    CodeMissingRequiredClientCapability,
		Message: "the client lacks a required capability",
		Data:    data.appendRevision(nil, RevisionNone),
	}
}

// URLElicitationRequired is the error for a request that cannot be served before the user has opened these URLs, in 2025-11-25 only. The params are
// made ones of url mode; each needs an ElicitationID. Its data is a [URLElicitationRequiredData].
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

// ResourceNotFound is the error for a resource that does not exist, for a request of the revision.
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
