package filter

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/itchyny/gojq"

	"mcpwire/cmd/internal/trace/jq"
	"mcpwire/internal/json/jsonwire"
)

// A payload is what scans search.
type payload struct {
	text []byte
	// json is the text if it is a JSON object or array, without space around it. It is valid if
	// checked is set.
	json    []byte
	checked bool
}

// asJSON returns the text if it is a JSON object or array, and nil otherwise.
func (p *payload) asJSON() []byte {
	if !p.checked {
		p.checked = true
		if text := bytes.TrimSpace(p.text); len(text) > 0 && (text[0] == '{' || text[0] == '[') && jsonwire.Valid(text, 0) == nil {
			p.json = text
		}
	}
	return p.json
}

// A regexScan searches the bytes of a payload for a regular expression.
type regexScan struct{ re *regexp.Regexp }

func (s regexScan) match(_ context.Context, p *payload) bool { return s.re.Match(p.text) }

// A wordScan searches a payload for text, as raw bytes and in unescaped JSON strings. Case is
// ignored.
type wordScan struct {
	// word is in lower case.
	word string
	// re is set for words beyond ASCII.
	re *regexp.Regexp
	// escape means that JSON may spell the word with a backslash.
	escape bool
}

func newWordScan(s string) *wordScan {
	w := &wordScan{word: strings.ToLower(s), escape: strings.ContainsAny(s, "\"\\/<>&'\t\r\n")}
	if strings.ContainsFunc(w.word, func(r rune) bool { return r >= utf8.RuneSelf }) {
		w.re = regexp.MustCompile("(?i)" + regexp.QuoteMeta(w.word))
		w.escape = true
	}
	return w
}

func (w *wordScan) match(_ context.Context, p *payload) bool {
	if w.find(p.text) {
		return true
	}
	return w.escape && bytes.IndexByte(p.text, '\\') >= 0 && w.find(unescape(p.text[:min(len(p.text), maxUnescaped)]))
}

func (w *wordScan) find(text []byte) bool {
	if w.re != nil {
		return w.re.Match(text)
	}
	word := []byte(w.word)
	var buf [4 << 10]byte
	if len(word) > len(buf)/2 {
		return bytes.Contains(bytes.ToLower(text), word)
	}
	for len(text) >= len(word) {
		n := copy(buf[:], text)
		for i, c := range buf[:n] {
			if c >= 'A' && c <= 'Z' {
				buf[i] = c + 'a' - 'A'
			}
		}
		if bytes.Contains(buf[:n], word) {
			return true
		}
		if n == len(text) {
			return false
		}
		text = text[n-len(word)+1:]
	}
	return false
}

const maxUnescaped = 8 << 20 // bytes of a payload that are unescaped

// unescape replaces the escapes of JSON strings anywhere in a text.
func unescape(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			out = append(out, text[i])
			continue
		}
		i++
		switch c := text[i]; c {
		case 'b', 'f', 'n', 'r', 't':
			out = append(out, "\b\f\n\r\t"[strings.IndexByte("bfnrt", c)])
		case 'u':
			if i+5 > len(text) {
				continue
			}
			v, err := strconv.ParseUint(string(text[i+1:i+5]), 16, 16)
			if err != nil {
				continue
			}
			i += 4
			r := rune(v)
			if r >= 0xd800 && r < 0xdc00 && i+7 <= len(text) && text[i+1] == '\\' && text[i+2] == 'u' {
				if low, err := strconv.ParseUint(string(text[i+3:i+7]), 16, 16); err == nil && low >= 0xdc00 && low < 0xe000 {
					r = (r-0xd800)<<10 + rune(low) - 0xdc00 + 0x10000
					i += 6
				}
			}
			out = utf8.AppendRune(out, r)
		default:
			out = append(out, c)
		}
	}
	return out
}

// A hasScan searches for a member by its path.
type hasScan struct{ path string }

// hasTerm parses the path behind "has:". Names are separated by dots; a name may contain dots.
func (p *parser) hasTerm(start int) (node, error) {
	at := p.pos
	var path string
	var err error
	if strings.HasPrefix(p.src[p.pos:], `"`) {
		path, err = p.quoted()
	} else {
		path = p.unquoted()
		if err = p.expectEnd(); strings.ContainsAny(path, "*") || strings.HasPrefix(path, "/") {
			return nil, p.errorAt(at, "has: needs a path such as _meta.traceparent, without * and regular expressions; jq:(…) can do that")
		}
	}
	if err != nil {
		return nil, err
	}
	path = strings.TrimPrefix(path, ".")
	if path == "" {
		return nil, p.errorAt(at, "a path is missing after has:, such as has:_meta.traceparent")
	}
	return p.addPayloadTerm(start, hasScan{path})
}

func (s hasScan) match(_ context.Context, p *payload) bool {
	text := p.asJSON()
	if text == nil {
		return false
	}
	if text[0] != '[' {
		return s.matchMessage(text)
	}
	for el := jsonwire.ArrayElements(text); el.Next(); {
		if s.matchMessage(el.Value()) {
			return true
		}
	}
	return false
}

func (s hasScan) matchMessage(msg []byte) bool {
	if hasPath(msg, s.path) {
		return true
	}
	if msg[0] != '{' {
		return false
	}
	for m := jsonwire.ObjectMembers(msg); m.Next(); {
		if (m.KeyIs("params") || m.KeyIs("result") || m.KeyIs("error")) && hasPath(m.Value(), s.path) {
			return true
		}
	}
	return false
}

// hasPath reports whether a value has a member with the path. In an array, a number is an index;
// any other name is searched for in all elements.
func hasPath(value []byte, path string) bool {
	switch {
	case len(value) == 0:
		return false
	case value[0] == '{':
		for m := jsonwire.ObjectMembers(value); m.Next(); {
			key := m.KeyString()
			if key == path {
				return true
			}
			if rest, ok := strings.CutPrefix(path, key); ok && strings.HasPrefix(rest, ".") && hasPath(m.Value(), rest[1:]) {
				return true
			}
		}
	case value[0] == '[':
		head, rest, more := strings.Cut(path, ".")
		index, isIndex := jsonwire.ParseInt([]byte(head))
		i := int64(0)
		for el := jsonwire.ArrayElements(value); el.Next(); i++ {
			if isIndex {
				if i == index {
					return !more || hasPath(el.Value(), rest)
				}
			} else if hasPath(el.Value(), path) {
				return true
			}
		}
	}
	return false
}

// A jqScan runs a program on a payload.
type jqScan struct{ program *jq.Program }

// jqTerm parses a program in parentheses behind "jq:".
func (p *parser) jqTerm(start int) (node, error) {
	at := p.pos
	if !strings.HasPrefix(p.src[at:], "(") {
		return nil, p.errorAt(at, "jq: needs a program in parentheses, such as jq:(.params.name == \"search\")")
	}
	end := closingParen(p.src, at)
	if end < 0 {
		return nil, p.errorAt(at, `the jq program has no ")" at its end`)
	}
	source := p.src[at+1 : end]
	p.pos = end + 1
	if err := p.expectEnd(); err != nil {
		return nil, err
	}
	program, err := jq.Compile(source)
	if err != nil {
		var bad *gojq.ParseError
		if errors.As(err, &bad) {
			at += min(bad.Offset, len(source))
		}
		return nil, p.errorAt(at, "jq: %v", err)
	}
	return p.addPayloadTerm(start, jqScan{program})
}

// closingParen returns the index of the parenthesis that closes src[i], or -1. It skips comments
// and strings, but not the programs inside strings.
func closingParen(src string, i int) int {
	var open []byte // '(' for a parenthesis, '"' for a string
	for ; i < len(src); i++ {
		inString := len(open) > 0 && open[len(open)-1] == '"'
		switch c := src[i]; {
		case inString && c == '\\':
			if i++; i < len(src) && src[i] == '(' {
				open = append(open, '(')
			}
		case c == '"' && inString:
			open = open[:len(open)-1]
		case inString:
		case c == '"' || c == '(':
			open = append(open, c)
		case c == '#':
			n := strings.IndexByte(src[i:], '\n')
			if n < 0 {
				return -1
			}
			i += n
		case c == ')':
			if open = open[:len(open)-1]; len(open) == 0 {
				return i
			}
		}
	}
	return -1
}

func (s jqScan) match(ctx context.Context, p *payload) bool {
	return p.asJSON() != nil && s.program.True(ctx, p.text)
}
