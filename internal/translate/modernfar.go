package translate

import (
	"bytes"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

func (t *ModernClient) fromFar(frame []byte, on int64) {
	if jsonrpc.IsBatch(frame) {
		entries, err := jsonrpc.ParseBatch(frame, t.opts.Limits.Depth)
		if err != nil {
			t.drop("malformed")
			return
		}
		for i := range entries {
			if m := &entries[i]; m.Invalid == nil {
				t.far(&m.Message, frameOf(&m.Message), on)
			} else {
				t.drop("malformed")
			}
		}
		return
	}
	var m jsonrpc.Message
	if err := jsonrpc.Parse(frame, &m, t.opts.Limits.Depth); err != nil {
		t.drop("malformed")
		return
	}
	t.far(&m, frame, on)
}

// far takes one message of the server.
func (t *ModernClient) far(m *jsonrpc.Message, frame []byte, on int64) {
	switch m.Kind {
	case jsonrpc.KindRequest:
		t.farRequest(m, on)
	case jsonrpc.KindNotification:
		t.farNotification(m, frame, on)
	default:
		id, _ := callID(m.ID)
		r := t.errands[id]
		if r == nil {
			t.drop("answers nothing that is open")
			return
		}
		delete(t.errands, id)
		r.done(answerOf(m))
	}
}

func (t *ModernClient) farNotification(m *jsonrpc.Message, frame []byte, on int64) {
	switch string(m.Method) {
	case mcp.NotificationProgress:
		t.farProgress(m, frame)
	case mcp.NotificationMessage:
		t.farLog(m, frame, on)
	case mcp.NotificationCancelled:
		t.farCancelled(m)
	case mcp.NotificationToolsChanged:
		t.tools.whole = false
		t.farChanged(m)
	case mcp.NotificationPromptsChanged, mcp.NotificationResourcesChanged, mcp.NotificationResourceUpdated:
		t.farChanged(m)
	case mcp.NotificationElicitationComplete:
		t.drop("modern clients try again by themselves")
	case mcp.NotificationTaskStatus:
		t.drop("modern clients ask for tasks")
	default:
		if protocols(string(m.Method)) {
			t.drop("that is nothing for a legacy server to say")
			return
		}
		o := Out{To: Near, Message: bytes.Clone(frame)}
		if r := t.errands[on]; r != nil {
			if r.near == nil {
				t.drop("the client is away")
				return
			}
			o.Stream = r.near.key.stream
		}
		t.emit(o)
	}
}

// farProgress tells a client of progress by the token that it chose for the request that is open now.
func (t *ModernClient) farProgress(m *jsonrpc.Message, frame []byte) {
	v, _ := m.Param("progressToken")
	id, _ := jsonwire.ParseInt(v)
	r := t.tokens[id]
	if r == nil || r.near == nil || r.near.token == nil {
		t.drop("progress of nothing that is open")
		return
	}
	x := r.near
	msg := rewriteParams(frame, func(params []byte) []byte {
		return era.Rewrite(nil, params, func(m *jsonwire.Members) []byte {
			if m.KeyIs("progressToken") {
				return x.token
			}
			if m.KeyIs("_meta") && era.IsObject(m.Value()) {
				return without(m.Value(), mcp.MetaRelatedTask)
			}
			return m.Value()
		}, nil)
	})
	t.emit(Out{To: Near, Stream: x.key.stream, Message: msg, Rule: "progressToken"})
}

// farLog gives a log message to the one request that it may belong to: the one on whose stream it came, or else the last that wants such messages, unless
// others have a request open too who are not to see it.
func (t *ModernClient) farLog(m *jsonrpc.Message, frame []byte, on int64) {
	v, _ := m.Param("level")
	name, _ := jsonrpc.ID(v).Text()
	level, ok := mcp.ParseLoggingLevel(name)
	wants := func(r *errand) bool {
		return r != nil && r.near != nil && r.near.level != mcp.LevelNone && level >= r.near.level
	}
	r := t.errands[on]
	open := 0
	if on == 0 {
		for _, one := range t.errands {
			if one.near != nil || one.number != 0 {
				open++
			}
			if wants(one) && (r == nil || one.id > r.id) {
				r = one
			}
		}
	}
	if open > 1 && t.opts.Apart {
		t.drop("nothing says to which request that log message belongs")
		return
	}
	if !ok || !wants(r) {
		t.drop("no request wants that log message")
		return
	}
	t.emit(Out{To: Near, Stream: r.near.key.stream, Message: bytes.Clone(frame)})
}
