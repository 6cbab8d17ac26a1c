package shape

import (
	"bytes"
	"strconv"
	"strings"

	"mcpwire/internal/jsonwire"
)

// AppendSample appends a value of the type: with the members that must be there, or with all that the revision has if all is set. Check has nothing to say
// of it. An array has an element if all is set.
func (t Type) AppendSample(dst []byte, all bool) []byte {
	return t.sample(dst, "", all)
}

// samples are values for members of some names; others get one by their type.
var samples = map[string]string{
	"protocolVersion": "", "name": "example", "version": "1.0.0", "uri": "file:///notes.txt", "uriTemplate": "file:///{path}", "mimeType": "text/plain", "text": "Hello",
	"message": "Which city?", "description": "An example", "model": "example-model", "taskId": "task-1", "createdAt": "2006-01-02T15:04:05Z",
	"lastUpdatedAt": "2006-01-02T15:04:05Z", "lastModified": "2006-01-02T15:04:05Z", "cursor": "page-2", "nextCursor": "page-2", "requestState": "opaque",
	"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "vendor=1", "baggage": "key=value", "sizes": "48x48",
	"$schema": "https://json-schema.org/draft/2020-12/schema", "reason": "no longer needed",
}

func (t Type) sample(dst []byte, name string, all bool) []byte {
	t = t.resolve()
	switch e := &t.expr; e.kind {
	case kindNamed:
		return t.sampleObject(dst, all)
	case KindBoolean:
		return append(dst, "true"...)
	case KindNull:
		return append(dst, "null"...)
	case KindInteger:
		return strconv.AppendInt(dst, max(1, int64(e.min)), 10)
	case KindNumber:
		return append(dst, "0.5"...)
	case KindString:
		return jsonwire.AppendQuote(dst, t.sampleString(name))
	case KindEnum:
		return jsonwire.AppendQuote(dst, e.values[0])
	case KindArray:
		if !all {
			return append(dst, "[]"...)
		}
		return append(t.Elem().sample(append(dst, '['), name, all), ']')
	case KindMap:
		if !all {
			return append(dst, "{}"...)
		}
		return append(t.Elem().sample(append(dst, `{"example":`...), name, all), '}')
	case KindUnion:
		return Type{t.rev, exprs[e.alts[0]]}.sample(dst, name, all)
	}
	if strings.EqualFold(name, "data") || name == "structuredContent" {
		return append(dst, `{"example":true}`...)
	}
	return append(dst, "{}"...)
}

func (t Type) sampleString(name string) string {
	if text := samples[name]; text != "" && (t.expr.format == "" || name == "uri" || name == "uriTemplate") {
		return text
	}
	switch {
	case strings.HasSuffix(name, "rotocolVersion"), name == "supportedVersions", name == "supported":
		return t.rev.String()
	case name == "requested":
		return "1900-01-01"
	case name == "resultType":
		return "complete"
	case t.expr.format == "byte":
		return "SGVsbG8="
	case t.expr.format == "uri":
		return "https://example.com/"
	case t.expr.format == "uri-template":
		return "file:///{path}"
	}
	return "example"
}

func (t Type) sampleObject(dst []byte, all bool) []byte {
	dst = append(dst, '{')
	first := true
	for _, f := range t.Fields() {
		if !f.Required && !all {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(jsonwire.AppendQuote(dst, f.Name), ':')
		start := len(dst)
		dst = f.Type.sample(dst, f.Name, all)
		if f.Name == "resultType" && t.Name() == "InputRequiredResult" && bytes.Equal(dst[start:], []byte(`"complete"`)) {
			dst = append(dst[:start], `"input_required"`...)
		}
	}
	return append(dst, '}')
}
