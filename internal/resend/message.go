package resend

import (
	"bytes"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// parse returns the messages in a frame, those of a batch too; none if it is not JSON-RPC. They alias the frame.
func parse(frame []byte) []jsonrpc.Message {
	if jsonrpc.IsBatch(frame) {
		list, err := jsonrpc.ParseBatch(frame, 0)
		if err != nil {
			return nil
		}
		all := make([]jsonrpc.Message, len(list))
		for i := range list {
			all[i] = list[i].Message
		}
		return all
	}
	var m jsonrpc.Message
	if jsonrpc.Parse(frame, &m, 0) != nil {
		return nil
	}
	return []jsonrpc.Message{m}
}

// idKey is equal for equal ids.
func idKey(id jsonrpc.ID) string {
	if s, ok := id.Text(); ok {
		return `"` + s
	}
	return string(id)
}

// A due is the ids of requests that have not been answered.
type pendingIDs map[string]bool

// pendingOf returns what a message asks for. A standing subscription is never answered, so it is not among it.
func pendingOf(message []byte) pendingIDs {
	d := pendingIDs{}
	for _, m := range parse(message) {
		if m.Kind == jsonrpc.KindRequest && string(m.Method) != mcp.MethodSubscriptionsListen {
			d[idKey(m.ID)] = true
		}
	}
	return d
}

// resolve removes what a frame answers, and reports whether there was any. lone takes an error without an id for the answer to whatever is due, as it is if there is only one thing.
func (p pendingIDs) resolve(list []jsonrpc.Message, lone bool) bool {
	took := false
	for _, m := range list {
		if m.Kind != jsonrpc.KindResponse && m.Kind != jsonrpc.KindError {
			continue
		}
		if k := idKey(m.ID); p[k] {
			delete(p, k)
			took = true
		} else if m.Kind == jsonrpc.KindError && (len(m.ID) == 0 || m.ID.IsNull()) && lone {
			clear(p)
			took = true
		}
	}
	return took
}

// isInitialize reports whether a message is the handshake itself, and isInitialized whether it is the end of one.
func isInitialize(message []byte) bool  { return isSingle(message, mcp.MethodInitialize) }
func isInitialized(message []byte) bool { return isSingle(message, mcp.NotificationInitialized) }

func isSingle(message []byte, method string) bool {
	list := parse(message)
	return len(list) == 1 && string(list[0].Method) == method
}

// freshID returns the message with another id in the place of one that was used: everything else stays as it is.
func freshID(message []byte, used jsonrpc.ID) []byte {
	list := parse(message)
	taken := map[string]bool{idKey(used): true}
	for _, m := range list {
		taken[idKey(m.ID)] = true
	}
	for _, m := range list {
		if m.Kind != jsonrpc.KindRequest || !m.ID.Equal(used) {
			continue
		}
		fresh := jsonrpc.IntID(1)
		for n := int64(1); taken[idKey(fresh)]; n++ {
			fresh = jsonrpc.IntID(n)
		}
		at := cap(message) - cap(m.ID) // where it stands: it aliases the message
		out := bytes.Clone(message[:at])
		return append(append(out, fresh...), message[at+len(m.ID):]...)
	}
	return message
}
