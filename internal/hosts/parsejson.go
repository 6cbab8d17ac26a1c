package hosts

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"
)

// parseJSON reads JSON with comments and trailing commas, from data[skip:].
func parseJSON(data []byte, skip int) (*node, error) {
	if err := guardJSON(data, skip); err != nil {
		return nil, err
	}
	// A comment may end with the file, for hosts but not for the parser. The copy keeps it from appending to the caller's slice.
	text := append(data[skip:len(data):len(data)], '\n')
	v, err := hujson.Parse(text)
	if err != nil {
		return nil, jsonError(data, skip, err)
	}
	return jsonNode(&v, skip), nil
}

func jsonNode(v *hujson.Value, skip int) *node {
	n := &node{start: v.StartOffset + skip, end: v.EndOffset + skip}
	switch x := v.Value.(type) {
	case *hujson.Object:
		n.kind = kindObject
		n.members = make([]member, len(x.Members))
		for i := range x.Members {
			m := &x.Members[i]
			name, _ := m.Name.Value.(hujson.Literal)
			from, to := m.Name.StartOffset+skip, m.Name.EndOffset+skip
			n.members[i] = member{name: name.String(), keyStart: from, lineKey: from, keyEnd: to, value: jsonNode(&m.Value, skip)}
		}
	case *hujson.Array:
		n.kind = kindArray
		n.elems = make([]*node, len(x.Elements))
		for i := range x.Elements {
			n.elems[i] = jsonNode(&x.Elements[i], skip)
		}
	case hujson.Literal:
		n.text = x.String()
		switch x.Kind() {
		case '"':
			n.kind = kindString
		case 't', 'f':
			n.kind = kindBool
		case '0':
			n.kind = kindNumber
		default:
			n.kind = kindOther
		}
	}
	return n
}

// guardJSON refuses what the parser would need too much memory or stack for. It knows strings and comments, and nothing else.
func guardJSON(data []byte, skip int) error {
	depth, values := 0, 0
	for i := skip; i < len(data); i++ {
		switch data[i] {
		case '{', '[':
			if depth++; depth > MaxDepth {
				return errorAt(data, i, fmt.Sprintf("nested more than %d deep", MaxDepth))
			}
		case '}', ']':
			depth--
		case ',', ':':
			if values++; values > MaxValues {
				return errorAt(data, i, fmt.Sprintf("more than %d values", MaxValues))
			}
		case '"':
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		case '/':
			i = skipComment(data, i)
		}
	}
	return nil
}

// skipComment returns the offset of the last byte of the comment that may begin at i, or i.
func skipComment(data []byte, i int) int {
	rest := data[i+1:]
	end := "\n"
	switch {
	case bytes.HasPrefix(rest, []byte("*")):
		rest, end, i = rest[1:], "*/", i+1
	case !bytes.HasPrefix(rest, []byte("/")):
		return i
	}
	j := bytes.Index(rest, []byte(end))
	if j < 0 {
		return len(data)
	}
	return i + j + len(end)
}

var jsonPlace = regexp.MustCompile(`^hujson: line (\d+), column (\d+): `)

// jsonError makes an error of the parser's ours. The parser quotes values that it cannot read, and those may be secrets.
func jsonError(data []byte, skip int, err error) error {
	text := err.Error()
	m := jsonPlace.FindStringSubmatch(text)
	if m == nil {
		return &ParseError{Reason: "not JSON"}
	}
	line, _ := strconv.Atoi(m[1])
	column, _ := strconv.Atoi(m[2])
	if line == 1 {
		column += skip
	}
	if n, _ := position(data, len(data)); line > n { // behind the line end that was added
		line, column = position(data, len(data))
	}
	text = text[len(m[0]):]
	switch {
	case strings.HasPrefix(text, "invalid literal"):
		text = "neither a string, a number, true, false nor null"
	case strings.HasSuffix(text, "unexpected EOF"):
		text = "the file ends too early"
	}
	return &ParseError{Line: line, Column: column, Reason: text}
}
