package replay

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"mcpwire/internal/jsonwire"
)

// volatile are texts that are others each time: times (RFC 3339, and with a space in place of the T), UUIDs and ULIDs.
var volatile = regexp.MustCompile(`(?P<time>\b\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:[Zz]\b|[+-]\d\d:?\d\d\b|\b))` +
	`|(?P<uuid>\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b)` +
	`|(?P<ulid>\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b)`)

// The members of the protocol whose values a server chooses anew each time, and those of applications that say by their name that they are of one session.
var (
	chosen   = []string{"requestState", "nextCursor", "taskId", "elicitationId", "createdAt", "lastUpdatedAt"}
	sessions = []string{"sessionId", "session_id", "requestId", "request_id", "traceId", "trace_id"}
	left     = []string{"_meta", "ttlMs"} // that need not even be there
	ofApps   = []string{"structuredContent", "content", "contents", "messages", "arguments", "data"}
)

// A masker appends JSON text with the same in the place of whatever is another thing each time.
type masker struct{ depth int } // depth counts texts within texts

// maxMaskDepth is how many texts within texts are looked into.
const maxMaskDepth = 2

// mask returns the text, which is valid JSON, masked.
func mask(value []byte) []byte {
	var m masker
	return m.value(make([]byte, 0, len(value)), value, false)
}

// Volatile reports whether two values of a member, JSON texts, differ only in what is another thing each time: times, UUIDs and ULIDs in them, and all of cursors, states and ids of
// tasks and sessions, which the name tells. What is no JSON is not.
func Volatile(name string, old, now []byte) bool {
	var masked [2][]byte
	for i, v := range [][]byte{old, now} {
		if jsonwire.Valid(v, 0) != nil {
			return false
		}
		object := append(append([]byte{'{'}, quoted(name)...), ':')
		masked[i] = mask(append(append(object, v...), '}'))
	}
	return bytes.Equal(masked[0], masked[1])
}

func (m *masker) value(dst, value []byte, app bool) []byte {
	switch value[0] {
	case '{':
		return m.object(dst, value, app)
	case '[':
		dst = append(dst, '[')
		elements := jsonwire.ArrayElements(value)
		for i := 0; elements.Next(); i++ {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = m.value(dst, elements.Value(), app)
		}
		return append(dst, ']')
	case '"':
		return m.string(dst, value)
	}
	return append(dst, value...)
}

func (m *masker) object(dst, value []byte, app bool) []byte {
	dst = append(dst, '{')
	first := true
	members := jsonwire.ObjectMembers(value)
	for members.Next() {
		name, v := members.KeyString(), members.Value()
		scalar := v[0] != '{' && v[0] != '['
		if name == "_meta" || !app && scalar && slices.Contains(left, name) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(append(append(dst, '"'), members.RawKey()...), '"', ':')
		if v[0] == '"' && (slices.Contains(sessions, name) || !app && slices.Contains(chosen, name)) {
			dst = append(dst, `"~"`...)
			continue
		}
		dst = m.value(dst, v, app || slices.Contains(ofApps, name))
	}
	return append(dst, '}')
}

// string masks a string. One that is itself JSON is masked as that.
func (m *masker) string(dst, value []byte) []byte {
	s := jsonwire.Text(value)
	if m.depth < maxMaskDepth {
		if t := strings.TrimSpace(s); t != "" && (t[0] == '{' || t[0] == '[') && jsonwire.Valid([]byte(t), 0) == nil {
			inner := masker{m.depth + 1}
			return jsonwire.AppendQuote(dst, inner.value(nil, []byte(t), true))
		}
	}
	if len(s) < len("2006-01-02T15:04") {
		return append(dst, value...)
	}
	return jsonwire.AppendQuote(dst, maskText(s))
}

// maskText replaces times and unique ids by what they are.
func maskText(s string) string {
	names := volatile.SubexpNames()
	places := volatile.FindAllStringSubmatchIndex(s, -1)
	if places == nil {
		return s
	}
	var b strings.Builder
	from := 0
	for _, p := range places {
		b.WriteString(s[from:p[0]])
		for i := 1; i < len(names); i++ {
			if p[2*i] >= 0 {
				b.WriteString("~" + names[i] + "~")
			}
		}
		from = p[1]
	}
	b.WriteString(s[from:])
	return b.String()
}
