package rpc

import (
	"bytes"
	"context"
	"strings"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/traceparent"
)

// A Trace is a W3C trace context (https://www.w3.org/TR/trace-context/) in the _meta of MCP's
// params. Messages that a handler sends carry the trace of its request, so that one trace id
// follows the work across any number of hops.
type Trace struct {
	// Parent is the traceparent.
	Parent string
	// State is the tracestate. It may be empty.
	State string
}

const (
	keyParent    = "traceparent"
	keyState     = "tracestate"
	maxTraceText = 8 << 10
)

type traceKey struct{}

// WithTrace returns a context for calls and notifications that carry the trace.
func WithTrace(ctx context.Context, t Trace) context.Context {
	return context.WithValue(ctx, traceKey{}, t)
}

// TraceFrom returns the trace that was set with WithTrace, or the trace of the incoming request
// that ctx derives from.
func TraceFrom(ctx context.Context) Trace {
	if t, ok := ctx.Value(traceKey{}).(Trace); ok {
		return t
	}
	if c := RequestContext(ctx); c != nil && c.trace != nil {
		return *c.trace
	}
	return Trace{}
}

// ID returns the trace id, 32 hexadecimal digits, or "" if Parent is invalid.
func (t Trace) ID() string {
	trace, _, _, _ := traceparent.Parse(t.Parent)
	return trace
}

// TraceOf reads the trace from a message's params. It ignores an invalid traceparent or tracestate.
func TraceOf(params []byte) Trace {
	if !bytes.Contains(params, []byte(keyParent)) || params[0] != '{' {
		return Trace{}
	}
	return TraceOfMeta(jsonwire.Lookup(params, "_meta"))
}

// TraceOfMeta reads the trace from the text of a _meta object. Other texts have none.
func TraceOfMeta(meta []byte) Trace {
	var t Trace
	members := jsonwire.ObjectMembers(meta)
	for members.Next() {
		v := members.Value()
		if v[0] != '"' || len(v) > maxTraceText {
			continue
		}
		switch {
		case members.KeyIs(keyParent):
			t.Parent = jsonwire.UnquoteString(v[1 : len(v)-1])
		case members.KeyIs(keyState):
			t.State = jsonwire.UnquoteString(v[1 : len(v)-1])
		}
	}
	return t.wellFormed()
}

// wellFormed returns the valid part of the trace.
func (t Trace) wellFormed() Trace {
	if t.ID() == "" {
		return Trace{}
	}
	if !validTracestate(t.State) {
		t.State = ""
	}
	return t
}

// validTracestate checks for keys and values of valid characters. It does not limit their number or
// length.
func validTracestate(s string) bool {
	for member := range strings.SplitSeq(s, ",") {
		key, value, ok := strings.Cut(strings.Trim(member, " \t"), "=")
		if key == "" && !ok {
			continue // an empty member
		}
		if !ok || key == "" || value == "" || strings.Contains(value, "=") {
			return false
		}
		for _, c := range []byte(key) {
			if (c < '0' || c > '9') && (c < 'a' || c > 'z') && strings.IndexByte("_-*/@", c) < 0 {
				return false
			}
		}
		for _, c := range []byte(value) {
			if c < ' ' || c > '~' {
				return false
			}
		}
	}
	return true
}

// appendTo adds the trace to the _meta of params, unless the trace is invalid, params have one
// already, or params is an array.
func (t Trace) appendTo(params []byte) []byte {
	if t = t.wellFormed(); t.Parent == "" || len(params) > 0 && params[0] != '{' {
		return params
	}
	var own []byte
	own = jsonwire.AppendQuote(append(own, `"traceparent":`...), t.Parent)
	if t.State != "" {
		own = jsonwire.AppendQuote(append(own, `,"tracestate":`...), t.State)
	}
	meta := jsonwire.Lookup(params, "_meta")
	switch {
	case meta != nil && (meta[0] != '{' || bytes.Contains(meta, []byte(`"traceparent"`))):
		return params
	case meta != nil:
		at := cap(params) - cap(meta)
		out := append(append([]byte{}, params[:at]...), insertMember(meta, own)...)
		return append(out, params[at+len(meta):]...)
	case params == nil:
		params = []byte("{}")
	}
	return insertMember(params, append(append([]byte(`"_meta":{`), own...), '}'))
}

// insertMember returns the object with one more member in front.
func insertMember(object, m []byte) []byte {
	i := bytes.IndexByte(object, '{') + 1
	out := append(append([]byte{}, object[:i]...), m...)
	rest := bytes.TrimLeft(object[i:], " \t\r\n")
	if rest[0] != '}' {
		out = append(out, ',')
	}
	return append(out, rest...)
}
