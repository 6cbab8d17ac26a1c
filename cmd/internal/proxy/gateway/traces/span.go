package traces

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"mcpwire/cmd/internal/proxy/gateway"
	"mcpwire/cmd/internal/trace/otlp"
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

// newID returns a random id of a span, which is not zero, or half of that of a trace.
func newID() string { return fmt.Sprintf("%016x", 1+rand.Uint64N(math.MaxUint64)) }

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
	if s.Kind == otlp.Client {
		params = withTraceparent(params, "00-"+s.Trace+"-"+s.ID+"-01")
	}
	result, err := next(context.WithValue(ctx, spanKey{}, s), params)
	finish(s, op, result, err)
	t.add(s)
}

// begin returns the span of an operation, or nil if it is not sampled. Then the messages keep the
// traceparent of the client.
func (t *Tracer) begin(ctx context.Context, op *gateway.Operation) *otlp.Span {
	s := &otlp.Span{Kind: otlp.Server, Start: time.Now(), ID: newID()}
	if op.Upstream != "" {
		of, ok := ctx.Value(spanKey{}).(*otlp.Span)
		if !ok {
			return nil
		}
		s.Kind, s.Trace, s.Parent = otlp.Client, of.Trace, of.ID
	} else {
		var flags string
		parent := short(jsonwire.Text(jsonwire.Lookup(op.Params, "_meta", "traceparent")))
		if s.Trace, s.Parent, flags, _ = traceparent.Parse(parent); flags == "" {
			s.Trace = newID() + newID()
		}
		if !t.sampler.samples(s.Trace, flags) {
			return nil
		}
	}
	member := "name"
	if strings.HasPrefix(op.Method, "resources/") {
		member = "uri"
	}
	s.Describe(short(op.Method), short(jsonwire.Text(jsonwire.Lookup(op.Params, member))))
	if op.Revision != mcp.RevisionNone {
		s.Set("mcp.protocol.version", op.Revision.String())
	}
	if op.Upstream != "" {
		s.Set("mcpwire.gateway.upstream", op.Upstream)
		return s
	}
	s.Set("network.transport", t.options.Transport)
	id, ok := op.ID.Text()
	if !ok {
		id = op.ID.String()
	}
	s.Set("jsonrpc.request.id", short(id))
	return s
}

// finish sets what the response says.
func finish(s *otlp.Span, op *gateway.Operation, result json.RawMessage, err error) {
	s.End = time.Now()
	kind := ""
	e, answered := errors.AsType[*jsonrpc.Error](err)
	rejected, isRejected := errors.AsType[*relay.RejectedError](err)
	switch {
	case err == nil:
		if op.Method == mcp.MethodToolsCall && string(jsonwire.Lookup(result, "isError")) == "true" {
			kind = "tool_error"
		}
	case answered:
		kind, s.Failure = strconv.Itoa(int(e.Code)), e.Message
		s.Set("rpc.response.status_code", kind)
	case isRejected:
		kind, s.Failure = strconv.Itoa(rejected.Status), rejected.Reason
	case errors.Is(err, context.Canceled), errors.Is(err, jsonrpc.ErrRequestEnded):
		kind = "cancelled"
	case errors.Is(err, context.DeadlineExceeded):
		kind = "timeout"
	default:
		kind, s.Failure = "_OTHER", err.Error()
	}
	s.Failed, s.Failure = kind != "", short(s.Failure)
	s.Set("error.type", kind)
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
