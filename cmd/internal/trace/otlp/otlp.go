// Package otlp encodes spans of MCP requests as OTLP in JSON
// (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding). Names and attributes follow
// the MCP conventions (https://opentelemetry.io/docs/specs/semconv/gen-ai/mcp/), as those of
// package mcpotel do.
package otlp

import (
	"strconv"
	"time"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/mcp"
)

// A Span is a request.
type Span struct {
	// Trace, ID and Parent are in lower-case hexadecimal digits. Parent is "" without a parent.
	Trace, ID, Parent string
	Name              string
	Kind              Kind
	Start, End        time.Time
	Attributes        []Attribute
	Events            []Event
	// Failed sets the status to error, with the text Failure.
	Failed  bool
	Failure string
}

// A Kind says which side of a request recorded a span. Its values are those of OTLP.
type Kind uint8

const (
	Server Kind = 2
	Client Kind = 3
)

// An Event is something that happened during a span.
type Event struct {
	Time       time.Time
	Name       string
	Attributes []Attribute
}

// An Attribute has a text, or the decimal digits of an integer.
type Attribute struct {
	Key, Value string
	Integer    bool
}

// Set adds an attribute, unless its value is "".
func (s *Span) Set(key, value string) {
	if value != "" {
		s.Attributes = append(s.Attributes, Attribute{Key: key, Value: value})
	}
}

// Describe sets the name, and the attributes for the method and its target: the name of a tool or
// prompt, or the URI of a resource.
func (s *Span) Describe(method, target string) {
	s.Name = method
	s.Set("mcp.method.name", method)
	switch method {
	case mcp.MethodToolsCall:
		s.Set("gen_ai.operation.name", "execute_tool")
		s.Set("gen_ai.tool.name", target)
	case mcp.MethodPromptsGet:
		s.Set("gen_ai.prompt.name", target)
	case mcp.MethodResourcesRead, mcp.MethodResourcesSubscribe, mcp.MethodResourcesUnsubscribe:
		s.Set("mcp.resource.uri", target)
		return
	default:
		return
	}
	if target != "" {
		s.Name += " " + target
	}
}

// Append appends an ExportTraceServiceRequest with spans of one scope, which is a program or
// library with its version.
func Append(dst []byte, resource []Attribute, scope, version string, spans []*Span) []byte {
	dst = appendAttributes(append(dst, `{"resourceSpans":[{"resource":{`...), resource)
	dst = jsonwire.AppendQuote(append(dst, `},"scopeSpans":[{"scope":{"name":`...), scope)
	dst = jsonwire.AppendQuote(append(dst, `,"version":`...), version)
	dst = append(dst, `},"spans":[`...)
	for i, s := range spans {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = s.append(dst)
	}
	return append(dst, `]}]}]}`...)
}

func (s *Span) append(dst []byte) []byte {
	dst = jsonwire.AppendQuote(append(dst, `{"traceId":`...), s.Trace)
	dst = jsonwire.AppendQuote(append(dst, `,"spanId":`...), s.ID)
	if s.Parent != "" {
		dst = jsonwire.AppendQuote(append(dst, `,"parentSpanId":`...), s.Parent)
	}
	dst = jsonwire.AppendQuote(append(dst, `,"name":`...), s.Name)
	dst = strconv.AppendInt(append(dst, `,"kind":`...), int64(s.Kind), 10)
	dst = appendTime(append(dst, `,"startTimeUnixNano":`...), s.Start)
	dst = appendTime(append(dst, `,"endTimeUnixNano":`...), s.End)
	dst = appendAttributes(append(dst, ','), s.Attributes)
	for i, e := range s.Events {
		if i == 0 {
			dst = append(dst, `,"events":[`...)
		} else {
			dst = append(dst, ',')
		}
		dst = appendTime(append(dst, `{"timeUnixNano":`...), e.Time)
		dst = jsonwire.AppendQuote(append(dst, `,"name":`...), e.Name)
		dst = append(appendAttributes(append(dst, ','), e.Attributes), '}')
	}
	if len(s.Events) > 0 {
		dst = append(dst, ']')
	}
	if s.Failed {
		dst = jsonwire.AppendQuote(append(dst, `,"status":{"code":2,"message":`...), s.Failure)
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

// appendTime appends a time in nanoseconds. JSON texts of OTLP have numbers of 64 bits as strings.
func appendTime(dst []byte, t time.Time) []byte {
	return append(strconv.AppendInt(append(dst, '"'), t.UnixNano(), 10), '"')
}

// appendAttributes appends the member attributes.
func appendAttributes(dst []byte, list []Attribute) []byte {
	dst = append(dst, `"attributes":[`...)
	for i, a := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsonwire.AppendQuote(append(dst, `{"key":`...), a.Key)
		kind := `,"value":{"stringValue":`
		if a.Integer {
			kind = `,"value":{"intValue":`
		}
		dst = append(jsonwire.AppendQuote(append(dst, kind...), a.Value), `}}`...)
	}
	return append(dst, ']')
}
