package mcptest

import (
	"bytes"
	"cmp"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// Initialized is the notification that ends a handshake.
const Initialized = `{"jsonrpc":"2.0","method":"` + mcp.NotificationInitialized + `"}`

// Initialize returns the request, with the id 0, that begins a handshake for a revision. The client
// has no capabilities. Expect a result, then send [Initialized].
func Initialize(r mcp.Revision) string {
	params := append([]byte(`{"protocolVersion":`), revisionText(r)...)
	params = append(params, `,"capabilities":{},"clientInfo":{"name":"mcptest","version":"1"}}`...)
	return string(jsonrpc.AppendRequest(nil, jsonrpc.IntID(0), mcp.MethodInitialize, params))
}

// Request returns a request of a revision. params is the text of an object, which may be a pattern
// (see [Peer]), or "" for none. In a modern revision Request adds the required members of
// params._meta that are missing: the revision, and no capabilities of the client.
func Request[ID int | string](r mcp.Revision, id ID, method, params string) string {
	if r.Modern() {
		params = withMeta(r, params)
	}
	return string(jsonrpc.AppendRequest(nil, idOf(id), method, paramsOrNil(params)))
}

// Notification returns a notification. params is as for [Request], but nothing is added.
func Notification(method, params string) string {
	return string(jsonrpc.AppendNotification(nil, method, paramsOrNil(params)))
}

// Result returns the response to a request. id may be a variable, and result a pattern (see
// [Peer]). Nothing is added: modern results need resultType, and most need _meta.
func Result[ID int | string](id ID, result string) string {
	return string(jsonrpc.AppendResult(nil, idOf(id), []byte(result)))
}

// Error returns the error response to a request. id may be a variable, see [Peer].
func Error[ID int | string](id ID, code jsonrpc.Code, message string) string {
	return string(jsonrpc.AppendError(nil, idOf(id), &jsonrpc.Error{Code: code, Message: message}, false))
}

func idOf[ID int | string](id ID) jsonrpc.ID {
	switch id := any(id).(type) {
	case int:
		return jsonrpc.IntID(int64(id))
	case string:
		return jsonrpc.StringID(id)
	}
	panic("unreachable")
}

func paramsOrNil(params string) []byte {
	if params == "" {
		return nil
	}
	return []byte(params)
}

func revisionText(r mcp.Revision) []byte { return jsonwire.AppendQuote(nil, r.String()) }

// withMeta adds the required metadata of a modern request to params. It returns params that are not
// an object unchanged, since a test may want to send them.
func withMeta(r mcp.Revision, params string) string {
	text := bytes.TrimSpace([]byte(cmp.Or(params, "{}")))
	meta := jsonwire.Lookup(text, "_meta")
	if jsonwire.Valid(text, maxDepth) != nil || text[0] != '{' || meta != nil && meta[0] != '{' {
		return params
	}
	var missing []change
	for _, c := range []change{{mcp.MetaProtocolVersion, revisionText(r)}, {mcp.MetaClientCapabilities, []byte("{}")}} {
		if jsonwire.Lookup(meta, c.key) == nil {
			missing = append(missing, c)
		}
	}
	return string(setMembers(text, change{"_meta", setMembers(meta, missing...)}))
}
