package traces

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"mcpwire/cmd/internal/proxy/gateway"
	"mcpwire/internal/json/jsonedit"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc/relay"
	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/traceparent"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// maxAttribute limits the bytes of a text from a peer.
const maxAttribute = 512

// A spanContext identifies a span in messages (https://www.w3.org/TR/trace-context/).
type spanContext struct {
	trace   [16]byte
	span    [8]byte
	sampled bool
}

// parseTraceparent parses a traceparent. It reports false if the text is invalid.
func parseTraceparent(text string) (c spanContext, ok bool) {
	trace, span, flags, ok := traceparent.Parse(text)
	if ok {
		hex.Decode(c.trace[:], []byte(trace))
		hex.Decode(c.span[:], []byte(span))
		c.sampled = strings.IndexByte("13579bdf", flags[1]) >= 0
	}
	return c, ok
}

// traceparent returns the text of a context that is sampled.
func (c *spanContext) traceparent() string { return fmt.Sprintf("00-%x-%x-01", c.trace, c.span) }

// newID fills an id, which must not be zero.
func newID(id []byte) {
	for i := range id {
		id[i] = byte(1 + rand.UintN(255))
	}
}

// A span is a request. It is immutable once it is queued.
type span struct {
	spanContext
	parent     [8]byte // zero: none
	client     bool    // the request to an upstream
	name       string
	start, end time.Time
	attributes []attribute
	// failure is the text of the status, if failed is set.
	failed  bool
	failure string
}

type attribute struct{ key, value string }

func (s *span) set(key, value string) {
	if value != "" {
		s.attributes = append(s.attributes, attribute{key, short(value)})
	}
}

// short returns the beginning of a text, and does not keep the rest in memory.
func short(text string) string {
	if len(text) <= maxAttribute {
		return text
	}
	return strings.Clone(clip.Prefix(text, maxAttribute))
}

type spanKey struct{}

// Observe is the gateway.ObserveFunc that records spans.
func (t *Tracer) Observe(ctx context.Context, op *gateway.Operation, next func(context.Context, json.RawMessage) (json.RawMessage, error)) {
	s := t.begin(ctx, op)
	if s == nil {
		next(ctx, op.Params)
		return
	}
	params := op.Params
	if s.client {
		params = withTraceparent(params, s.traceparent())
	}
	result, err := next(context.WithValue(ctx, spanKey{}, s), params)
	s.finish(op, result, err)
	t.add(s)
}

// begin returns the span of an operation, or nil if it is not sampled. Then the messages keep the
// traceparent of the client.
func (t *Tracer) begin(ctx context.Context, op *gateway.Operation) *span {
	s := &span{client: op.Upstream != "", start: time.Now()}
	if s.client {
		of, ok := ctx.Value(spanKey{}).(*span)
		if !ok {
			return nil
		}
		s.spanContext, s.parent = of.spanContext, of.span
	} else {
		parent, ok := parseTraceparent(jsonwire.Text(jsonwire.Lookup(op.Params, "_meta", "traceparent")))
		if ok {
			s.spanContext, s.parent = parent, parent.span
		} else {
			newID(s.trace[:])
		}
		if s.sampled = t.sampler.samples(s.trace, parent, ok); !s.sampled {
			return nil
		}
	}
	newID(s.span[:])
	s.describe(op, t.options.Transport)
	return s
}

// describe sets the name and the attributes that are known before the response.
func (s *span) describe(op *gateway.Operation, transport string) {
	s.name = short(op.Method)
	s.set("mcp.method.name", op.Method)
	target := ""
	switch op.Method {
	case mcp.MethodToolsCall:
		target = jsonwire.Text(jsonwire.Lookup(op.Params, "name"))
		s.set("gen_ai.operation.name", "execute_tool")
		s.set("gen_ai.tool.name", target)
	case mcp.MethodPromptsGet:
		target = jsonwire.Text(jsonwire.Lookup(op.Params, "name"))
		s.set("gen_ai.prompt.name", target)
	case mcp.MethodResourcesRead, mcp.MethodResourcesSubscribe, mcp.MethodResourcesUnsubscribe:
		s.set("mcp.resource.uri", jsonwire.Text(jsonwire.Lookup(op.Params, "uri")))
	}
	if target != "" {
		s.name += " " + short(target)
	}
	if op.Revision != mcp.RevisionNone {
		s.set("mcp.protocol.version", op.Revision.String())
	}
	if s.client {
		s.set("mcpwire.gateway.upstream", op.Upstream)
		return
	}
	s.set("network.transport", transport)
	if text, ok := op.ID.Text(); ok {
		s.set("jsonrpc.request.id", text)
	} else {
		s.set("jsonrpc.request.id", op.ID.String())
	}
}

// finish sets what the response says.
func (s *span) finish(op *gateway.Operation, result json.RawMessage, err error) {
	s.end = time.Now()
	kind := ""
	e, answered := errors.AsType[*jsonrpc.Error](err)
	rejected, isRejected := errors.AsType[*relay.RejectedError](err)
	switch {
	case err == nil:
		if op.Method == mcp.MethodToolsCall && string(jsonwire.Lookup(result, "isError")) == "true" {
			kind = "tool_error"
		}
	case answered:
		kind, s.failure = strconv.Itoa(int(e.Code)), e.Message
		s.set("rpc.response.status_code", kind)
	case isRejected:
		kind, s.failure = strconv.Itoa(rejected.Status), rejected.Reason
	case errors.Is(err, context.Canceled), errors.Is(err, jsonrpc.ErrRequestEnded):
		kind = "cancelled"
	case errors.Is(err, context.DeadlineExceeded):
		kind = "timeout"
	default:
		kind, s.failure = "_OTHER", err.Error()
	}
	s.failed, s.failure = kind != "", short(s.failure)
	s.set("error.type", kind)
}

// withTraceparent returns the text of a params object with a traceparent in _meta, in place of the
// one that is there. Params that are not an object, and a _meta that is not, stay as they are.
func withTraceparent(params json.RawMessage, traceparent string) json.RawMessage {
	if len(params) == 0 || params[0] != '{' {
		return params
	}
	value := jsonwire.AppendQuote(nil, traceparent)
	if at := jsonedit.Locate(params, "_meta", "traceparent"); at.Found() {
		return jsonedit.Splice(params, at, value)
	}
	member := append([]byte(`"traceparent":`), value...)
	if at := jsonedit.Locate(params, "_meta"); at.Found() {
		meta := at.Of(params)
		if meta[0] != '{' {
			return params
		}
		return jsonedit.Splice(params, at, withMember(meta, member))
	}
	return withMember(params, append(append([]byte(`"_meta":{`), member...), '}'))
}

// withMember returns the text of an object with one more member.
func withMember(object, member []byte) []byte {
	out := append([]byte{'{'}, member...)
	if members := jsonwire.ObjectMembers(object); members.Next() {
		out = append(out, ',')
	}
	return append(out, object[1:]...)
}
