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
	serverChosen = []string{"requestState", "nextCursor", "taskId", "elicitationId", "createdAt", "lastUpdatedAt"}
	appSessions  = []string{"sessionId", "session_id", "requestId", "request_id", "traceId", "trace_id"}
	optional     = []string{"_meta", "ttlMs"} // that need not even be there
	appData      = []string{"structuredContent", "content", "contents", "messages", "arguments", "data"}
)

// A masker appends JSON text with the same in the place of whatever is another thing each time.
type normalizer struct{ depth int } // depth counts texts within texts

// maxTextDepth is how many texts within texts are looked into.
const maxTextDepth = 2

// normalize returns the text, which is valid JSON, masked.
func normalize(value []byte) []byte {
	var m normalizer
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
		masked[i] = normalize(append(append(object, v...), '}'))
	}
	return bytes.Equal(masked[0], masked[1])
}

func (n *normalizer) value(dst, value []byte, app bool) []byte {
	switch value[0] {
	case '{':
		return n.object(dst, value, app)
	case '[':
		dst = append(dst, '[')
		elements := jsonwire.ArrayElements(value)
		for i := 0; elements.Next(); i++ {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = n.value(dst, elements.Value(), app)
		}
		return append(dst, ']')
	case '"':
		return n.string(dst, value)
	}
	return append(dst, value...)
}

func (n *normalizer) object(dst, value []byte, app bool) []byte {
	dst = append(dst, '{')
	first := true
	members := jsonwire.ObjectMembers(value)
	for members.Next() {
		name, v := members.KeyString(), members.Value()
		scalar := v[0] != '{' && v[0] != '['
		if name == "_meta" || !app && scalar && slices.Contains(optional, name) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(append(append(dst, '"'), members.RawKey()...), '"', ':')
		if v[0] == '"' && (slices.Contains(appSessions, name) || !app && slices.Contains(serverChosen, name)) {
			dst = append(dst, `"~"`...)
			continue
		}
		dst = n.value(dst, v, app || slices.Contains(appData, name))
	}
	return append(dst, '}')
}

// string masks a string. One that is itself JSON is masked as that.
func (n *normalizer) string(dst, value []byte) []byte {
	s := jsonwire.Text(value)
	if n.depth < maxTextDepth {
		if t := strings.TrimSpace(s); t != "" && (t[0] == '{' || t[0] == '[') && jsonwire.Valid([]byte(t), 0) == nil {
			inner := normalizer{n.depth + 1}
			return jsonwire.AppendQuote(dst, inner.value(nil, []byte(t), true))
		}
	}
	if len(s) < len("2006-01-02T15:04") {
		return append(dst, value...)
	}
	return jsonwire.AppendQuote(dst, normalizeText(s))
}

// normalizeText replaces times and unique ids by what they are.
func normalizeText(s string) string {
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
