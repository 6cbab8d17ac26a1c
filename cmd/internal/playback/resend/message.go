package resend

import (
	"bytes"

	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// codeRejected is the error code of a client whose user rejects sampling
// (https://modelcontextprotocol.io/specification/2025-11-25/client/sampling#error-handling).
const codeRejected jsonrpc.Code = -1

// Decline returns the response of a client without a user to a request of the server: an empty
// result for pings, decline for elicitations, an error that says "rejected" for sampling, and
// -32601 for all others. The caller owns the response.
func Decline(m *jsonrpc.Message) []byte {
	switch string(m.Method) {
	case mcp.MethodPing:
		return jsonrpc.AppendResult(nil, m.ID, []byte(`{}`))
	case mcp.MethodElicit:
		return jsonrpc.AppendResult(nil, m.ID, []byte(`{"action":"decline"}`))
	case mcp.MethodCreateMessage:
		return jsonrpc.AppendError(nil, m.ID, jsonrpc.Errorf(codeRejected, "rejected: this is a resent message, and no user can approve"), false)
	}
	return jsonrpc.AppendError(nil, m.ID, jsonrpc.MethodNotFound(string(m.Method)), false)
}

// isSingle reports whether a message, which is no batch, has a method.
func isSingle(message []byte, method string) bool {
	list := wireclient.Messages(message)
	return len(list) == 1 && string(list[0].Method) == method
}

// RevisionOf returns the revision in a modern message or batch, or "".
func RevisionOf(message []byte) string {
	if !bytes.Contains(message, []byte(mcp.MetaProtocolVersion)) && !bytes.Contains(message, []byte(`\u`)) {
		return ""
	}
	for _, m := range wireclient.Messages(message) {
		meta, _ := m.Param("_meta")
		if v := jsonwire.Text(jsonwire.Lookup(meta, mcp.MetaProtocolVersion)); v != "" {
			return v
		}
	}
	return ""
}

// freshID returns the message with a new id if it uses the given one.
func freshID(message []byte, used jsonrpc.ID) []byte {
	list := wireclient.Messages(message)
	taken := map[string]bool{used.Key(): true}
	for _, m := range list {
		taken[m.ID.Key()] = true
	}
	for _, m := range list {
		if m.Kind != jsonrpc.KindRequest || !m.ID.Equal(used) {
			continue
		}
		fresh := jsonrpc.IntID(1)
		for n := int64(1); taken[fresh.Key()]; n++ {
			fresh = jsonrpc.IntID(n)
		}
		at := cap(message) - cap(m.ID) // the index of m.ID, which aliases message
		out := bytes.Clone(message[:at])
		return append(append(out, fresh...), message[at+len(m.ID):]...)
	}
	return message
}
