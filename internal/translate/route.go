package translate

import (
	"crypto/sha256"
	"encoding/hex"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// Route returns the id of the call that a message from a modern server belongs to, by what it says itself: of the answer, of the request whose progress
// it is, or of the subscription. ok is false if it says nothing: a log message, for example. It is for connections that translators share.
func Route(message []byte) (call int64, ok bool) {
	var m jsonrpc.Message
	if jsonrpc.IsBatch(message) || jsonrpc.Parse(message, &m, 0) != nil {
		return 0, false
	}
	switch m.Kind {
	case jsonrpc.KindResponse, jsonrpc.KindError:
		return parseCallID(m.ID)
	case jsonrpc.KindNotification:
		if id, _, cancels := (era.Cancellation{}).Target(&m); cancels {
			return parseCallID(id)
		}
		if string(m.Method) == mcp.NotificationProgress {
			token, _ := m.Param("progressToken")
			return jsonwire.ParseInt(token)
		}
		return jsonwire.ParseInt(era.Lookup(m.Params, "_meta", mcp.MetaSubscriptionID))
	}
	return 0, false
}

// ClientKey returns what tells apart modern clients that cannot share one legacy session, because a session declares once what each modern request
// declares anew: a digest of the capabilities and the name in the request's metadata. "" is for what has none.
func ClientKey(message []byte) string {
	var m jsonrpc.Message
	if jsonrpc.IsBatch(message) || jsonrpc.Parse(message, &m, 0) != nil {
		return ""
	}
	caps := era.Lookup(m.Params, "_meta", mcp.MetaClientCapabilities)
	if caps == nil {
		return ""
	}
	text := jsonwire.AppendCompact(nil, caps)
	if info := era.Lookup(m.Params, "_meta", mcp.MetaClientInfo); info != nil {
		text = jsonwire.AppendCompact(append(text, ' '), info)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}
