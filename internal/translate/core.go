package translate

import (
	"slices"
	"strconv"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A core is what both translators are made of: the step that is under way, what comes of it, and what is due later.
type core struct {
	opts         Options
	modern       *era.Features
	now          time.Time
	outs         []Out
	timers       timers
	cause        uint64 // of the message that the step is about
	reserved     int    // bytes of what is kept for open requests
	upstreamDown bool   // there is no server to send to
	closed       bool
}

// step does one thing and returns what came of it.
func (c *core) step(now time.Time, do func()) []Out {
	if c.closed {
		return nil
	}
	c.now = now
	do()
	outs := c.outs
	c.outs, c.cause = nil, 0
	return outs
}

// SetCause implements [Translator].
func (c *core) SetCause(event uint64) { c.cause = event }

// Next implements [Translator].
func (c *core) Next() time.Time {
	if c.closed || len(c.timers) == 0 {
		return time.Time{}
	}
	return c.timers[0].at
}

// Tick implements [Translator].
func (c *core) Tick(now time.Time) []Out {
	return c.step(now, func() { c.timers.run(now) })
}

// Modern implements [Translator].
func (c *core) Modern() mcp.Revision { return c.opts.Modern }

// after has something done once d has passed.
func (c *core) after(d time.Duration, do func()) *timer { return c.timers.add(c.now.Add(d), do) }

// emit sends.
func (c *core) emit(o Out) {
	if o.Message != nil {
		o.Message = jsonrpc.OneLine(o.Message)
	}
	o.Causes = slices.DeleteFunc(o.Causes, func(cause uint64) bool { return cause == 0 || cause == c.cause })
	if len(o.Causes) == 0 {
		o.Causes = nil
	}
	c.outs = append(c.outs, o)
}

// drop says why nothing comes of a message.
func (c *core) drop(rule string) { c.emit(Out{Rule: rule}) }

// sendUpstream sends the server a request, which is made of messages with these marks.
func (c *core) sendUpstream(id int64, method string, params []byte, rule string, causes ...uint64) {
	c.emit(Out{To: Upstream, Message: jsonrpc.AppendRequest(nil, jsonrpc.IntID(id), method, params), Call: id, Method: method, Rule: rule, Causes: causes})
}

// notifyUpstream sends the server a notification.
func (c *core) notifyUpstream(method string, params []byte, rule string) {
	c.emit(Out{To: Upstream, Message: jsonrpc.AppendNotification(nil, method, params), Method: method, Rule: rule})
}

// cancelUpstream gives up a call.
func (c *core) cancelUpstream(id int64, method, reason string) {
	name, params := era.Cancellation{}.Notice(jsonrpc.IntID(id), method, reason)
	o := Out{To: Upstream, Call: id, Cancel: true, Method: name, Rule: "cancelled"}
	if name != "" {
		o.Message = jsonrpc.AppendNotification(nil, name, params)
	}
	c.emit(o)
}

// reserve takes note of bytes that are kept, and reports false if that is too much.
func (c *core) reserve(n int) bool {
	if c.reserved+n > c.opts.Limits.Bytes {
		return false
	}
	c.reserved += n
	return true
}

// An answer is what became of a call: a result or an error.
type outcome struct {
	result []byte
	err    *jsonrpc.Error
	lost   bool   // the server did not say it: nobody knows what became of the call
	cause  uint64 // of the message, if it came in a step before
}

// outcomeOf takes the answer out of a response.
func outcomeOf(m *jsonrpc.Message) outcome {
	if m.Kind == jsonrpc.KindError {
		return outcome{err: m.Err()}
	}
	if !era.IsObject(m.Result) {
		return outcome{err: jsonrpc.Errorf(jsonrpc.CodeInternalError, "the server's result is no object")}
	}
	return outcome{result: m.Result}
}

// parseCallID reads an id that this side made.
func parseCallID(id jsonrpc.ID) (int64, bool) { return jsonwire.ParseInt(id) }

// idKey returns what is the same for ids that are the same.
func idKey(id jsonrpc.ID) string {
	if s, ok := id.Text(); ok {
		return "s" + s
	}
	return string(id)
}

// appendInt appends a member's name and a number.
func appendInt(dst []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(append(append(dst, '"'), name...), `":`...), n, 10)
}

// rewriteParam returns a notification or a request with the params that change makes of its own, all else as it is.
func rewriteParams(frame []byte, change func(params []byte) []byte) []byte {
	return era.Rewrite(nil, frame, func(m *jsonwire.Members) []byte {
		if m.KeyIs("params") {
			return change(m.Value())
		}
		return m.Value()
	}, nil)
}

// withoutMembers leaves members out of an object, and returns nil instead of an empty one.
func withoutMembers(obj []byte, names ...string) []byte {
	obj = era.Rewrite(nil, obj, func(m *jsonwire.Members) []byte {
		for _, name := range names {
			if m.KeyIs(name) {
				return nil
			}
		}
		return m.Value()
	}, nil)
	if string(obj) == "{}" {
		return nil
	}
	return obj
}

// internalError makes an error of the translator's own, or of the server's when the server is at fault.
func internalError(format string, args ...any) *jsonrpc.Error {
	return jsonrpc.Errorf(jsonrpc.CodeInternalError, format, args...)
}

// clip shortens what a peer said, for a message.
func clip(s string) string {
	if len(s) > 100 {
		return s[:100] + "…"
	}
	return s
}

var errOverloaded = internalError("the bridge has too many requests open: try again later")
