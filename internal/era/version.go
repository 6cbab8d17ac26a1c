package era

import (
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// UnsupportedProtocolVersion returns the error for a request of an unsupported revision. Its data
// is an [mcp.UnsupportedProtocolVersionData].
func UnsupportedProtocolVersion(supported []mcp.Revision, requested string) *jsonrpc.Error {
	data := append([]byte(`{"supported":`), AppendRevisions(nil, supported)...)
	return &jsonrpc.Error{
		Code:    mcp.CodeUnsupportedProtocolVersion,
		Message: "unsupported protocol version",
		Data:    append(jsonwire.AppendQuote(append(data, `,"requested":`...), requested), '}'),
	}
}

// AppendRevisions appends the JSON array of the revisions' dates.
func AppendRevisions(dst []byte, revisions []mcp.Revision) []byte {
	dst = append(dst, '[')
	for i, r := range revisions {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsonwire.AppendQuote(dst, r.String())
	}
	return append(dst, ']')
}
