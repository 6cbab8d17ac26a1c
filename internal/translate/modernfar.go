package translate

import (
	"bytes"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

func (t *ModernToLegacy) fromUpstream(frame []byte, call int64) {
	if jsonrpc.IsBatch(frame) {
		entries, err := jsonrpc.ParseBatch(frame, t.opts.Limits.Depth)
		if err != nil {
			t.drop("malformed")
			return
		}
		for i := range entries {
			if m := &entries[i]; m.Invalid == nil {
				t.handleUpstream(&m.Message, frameOf(&m.Message), call)
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
	t.handleUpstream(&m, frame, call)
}

// handleUpstream takes one message of the server.
func (t *ModernToLegacy) handleUpstream(m *jsonrpc.Message, frame []byte, call int64) {
	switch m.Kind {
	case jsonrpc.KindRequest:
		t.upstreamRequest(m, call)
	case jsonrpc.KindNotification:
		t.upstreamNotification(m, frame, call)
	default:
		id, _ := parseCallID(m.ID)
		c := t.calls[id]
		if c == nil {
			t.drop("answers nothing that is open")
			return
		}
		delete(t.calls, id)
		c.done(outcomeOf(m))
	}
}

func (t *ModernToLegacy) upstreamNotification(m *jsonrpc.Message, frame []byte, call int64) {
	switch string(m.Method) {
	case mcp.NotificationProgress:
		t.upstreamProgress(m, frame)
	case mcp.NotificationMessage:
		t.upstreamLog(m, frame, call)
	case mcp.NotificationCancelled:
		t.upstreamCanceled(m)
	case mcp.NotificationToolsChanged:
		t.tools.complete = false
		t.upstreamChanged(m)
	case mcp.NotificationPromptsChanged, mcp.NotificationResourcesChanged, mcp.NotificationResourceUpdated:
		t.upstreamChanged(m)
	case mcp.NotificationElicitationComplete:
		t.drop("modern clients try again by themselves")
	case mcp.NotificationTaskStatus:
		t.drop("modern clients ask for tasks")
	default:
		if isProtocolNotification(string(m.Method)) {
			t.drop("that is nothing for a legacy server to say")
			return
		}
		o := Out{To: Downstream, Message: bytes.Clone(frame)}
		if c := t.calls[call]; c != nil {
			if c.req == nil {
				t.drop("the client is away")
				return
			}
			o.Stream = c.req.key.stream
		}
		t.emit(o)
	}
}

// upstreamProgress tells a client of progress by the token that it chose for the request that is open now.
func (t *ModernToLegacy) upstreamProgress(m *jsonrpc.Message, frame []byte) {
	v, _ := m.Param("progressToken")
	id, _ := jsonwire.ParseInt(v)
	c := t.byToken[id]
	if c == nil || c.req == nil || c.req.progressToken == nil {
		t.drop("progress of nothing that is open")
		return
	}
	r := c.req
	msg := rewriteParams(frame, func(params []byte) []byte {
		return era.Rewrite(nil, params, func(m *jsonwire.Members) []byte {
			if m.KeyIs("progressToken") {
				return r.progressToken
			}
			if m.KeyIs("_meta") && era.IsObject(m.Value()) {
				return withoutMembers(m.Value(), mcp.MetaRelatedTask)
			}
			return m.Value()
		}, nil)
	})
	t.emit(Out{To: Downstream, Stream: r.key.stream, Message: msg, Rule: "progressToken"})
}

// upstreamLog gives a log message to the one request that it may belong to: the one on whose stream it came, or else the last that wants such messages, unless
// others have a request open too who are not to see it.
func (t *ModernToLegacy) upstreamLog(m *jsonrpc.Message, frame []byte, call int64) {
	v, _ := m.Param("level")
	name, _ := jsonrpc.ID(v).Text()
	level, ok := mcp.ParseLoggingLevel(name)
	wants := func(c *upstreamCall) bool {
		return c != nil && c.req != nil && c.req.logLevel != mcp.LevelNone && level >= c.req.logLevel
	}
	c := t.calls[call]
	open := 0
	if call == 0 {
		for _, one := range t.calls {
			if one.req != nil || one.number != 0 {
				open++
			}
			if wants(one) && (c == nil || one.id > c.id) {
				c = one
			}
		}
	}
	if open > 1 && t.opts.IsolateClients {
		t.drop("nothing says to which request that log message belongs")
		return
	}
	if !ok || !wants(c) {
		t.drop("no request wants that log message")
		return
	}
	t.emit(Out{To: Downstream, Stream: c.req.key.stream, Message: bytes.Clone(frame)})
}
