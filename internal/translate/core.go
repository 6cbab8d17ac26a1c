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
	opts   Options
	modern *era.Features
	now    time.Time
	outs   []Out
	later  timers
	mark   uint64 // of the message that the step is about
	kept   int    // bytes of what is kept for open requests
	down   bool   // there is no server to send to
	closed bool
}

// step does one thing and returns what came of it.
func (c *core) step(now time.Time, do func()) []Out {
	if c.closed {
		return nil
	}
	c.now = now
	do()
	outs := c.outs
	c.outs, c.mark = nil, 0
	return outs
}

// Mark implements [Translator].
func (c *core) Mark(event uint64) { c.mark = event }

// Next implements [Translator].
func (c *core) Next() time.Time {
	if c.closed || len(c.later) == 0 {
		return time.Time{}
	}
	return c.later[0].at
}

// Tick implements [Translator].
func (c *core) Tick(now time.Time) []Out {
	return c.step(now, func() { c.later.run(now) })
}

// Modern implements [Translator].
func (c *core) Modern() mcp.Revision { return c.opts.Modern }

// after has something done once d has passed.
func (c *core) after(d time.Duration, do func()) *timer { return c.later.add(c.now.Add(d), do) }

// emit sends.
func (c *core) emit(o Out) {
	if o.Message != nil {
		o.Message = jsonrpc.OneLine(o.Message)
	}
	o.Of = slices.DeleteFunc(o.Of, func(mark uint64) bool { return mark == 0 || mark == c.mark })
	if len(o.Of) == 0 {
		o.Of = nil
	}
	c.outs = append(c.outs, o)
}

// drop says why nothing comes of a message.
func (c *core) drop(rule string) { c.emit(Out{Rule: rule}) }

// sendFar sends the server a request, which is made of messages with these marks.
func (c *core) sendFar(id int64, method string, params []byte, rule string, of ...uint64) {
	c.emit(Out{To: Far, Message: jsonrpc.AppendRequest(nil, jsonrpc.IntID(id), method, params), Call: id, Method: method, Rule: rule, Of: of})
}

// notifyFar sends the server a notification.
func (c *core) notifyFar(method string, params []byte, rule string) {
	c.emit(Out{To: Far, Message: jsonrpc.AppendNotification(nil, method, params), Method: method, Rule: rule})
}

// cancelFar gives up a call.
func (c *core) cancelFar(id int64, method, reason string) {
	name, params := era.Cancellation{}.Notice(jsonrpc.IntID(id), method, reason)
	o := Out{To: Far, Call: id, Cancel: true, Method: name, Rule: "cancelled"}
	if name != "" {
		o.Message = jsonrpc.AppendNotification(nil, name, params)
	}
	c.emit(o)
}

// keep takes note of bytes that are kept, and reports false if that is too much.
func (c *core) keep(n int) bool {
	if c.kept+n > c.opts.Limits.Bytes {
		return false
	}
	c.kept += n
	return true
}

// An answer is what became of a call: a result or an error.
type answer struct {
	result []byte
	err    *jsonrpc.Error
	lost   bool   // the server did not say it: nobody knows what became of the call
	mark   uint64 // of the message, if it came in a step before
}

// answerOf takes the answer out of a response.
func answerOf(m *jsonrpc.Message) answer {
	if m.Kind == jsonrpc.KindError {
		return answer{err: m.Err()}
	}
	if !era.IsObject(m.Result) {
		return answer{err: jsonrpc.Errorf(jsonrpc.CodeInternalError, "the server's result is no object")}
	}
	return answer{result: m.Result}
}

// callID reads an id that this side made.
func callID(id jsonrpc.ID) (int64, bool) { return jsonwire.ParseInt(id) }

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

// without leaves members out of an object, and returns nil instead of an empty one.
func without(obj []byte, names ...string) []byte {
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

// internal makes an error of the translator's own, or of the server's when the server is at fault.
func internal(format string, args ...any) *jsonrpc.Error {
	return jsonrpc.Errorf(jsonrpc.CodeInternalError, format, args...)
}

// clip shortens what a peer said, for a message.
func clip(s string) string {
	if len(s) > 100 {
		return s[:100] + "…"
	}
	return s
}

var errTooMuch = internal("the bridge has too many requests open: try again later")
