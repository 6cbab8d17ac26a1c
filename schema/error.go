package schema

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"mcpwire/internal/json/jsonpointer"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
)

// maxProblems is how many problems one check reports before it stops.
const maxProblems = 8

// ErrLimit is wrapped by an [*Error] if the check took too many steps or nested too deeply. The
// value may be valid then.
var ErrLimit = errors.New("schema: limit on validation work exceeded")

// An Error says what is wrong with a value. Decode, Append and Validate return it as an *Error. Its
// text is for the language model that sent the value: each problem names the place, what was
// expected and what was found.
type Error struct {
	// Root is the name of the whole value in messages. Empty means "arguments". The caller may set
	// it before printing.
	Root string
	// Problems has one to eight problems, in the order of the text.
	Problems []Problem
	// Limit is set if the last problem is that a limit of work or depth was reached. The error then
	// wraps ErrLimit.
	Limit bool
}

// A Problem is one thing that is wrong with a value.
type Problem struct {
	// Pointer is the JSON pointer (RFC 6901) of the value, "" for the whole value. Names longer
	// than 128 bytes are cut.
	Pointer string
	// Message says what was expected there and what was found.
	Message string
}

// Error lists the problems, such as
//
//	arguments.limit: expected integer, got string "ten"; arguments: missing required property "q"
func (e *Error) Error() string {
	root := e.Root
	if root == "" {
		root = "arguments"
	}
	var b []byte
	for i, p := range e.Problems {
		if i > 0 {
			b = append(b, "; "...)
		}
		b = append(b, root...)
		b = appendPath(b, p.Pointer)
		b = append(b, ": "...)
		b = append(b, p.Message...)
	}
	if len(e.Problems) >= maxProblems {
		b = append(b, "; there may be more"...)
	}
	return string(b)
}

// Is reports whether target is [ErrLimit] and a limit ended the check.
func (e *Error) Is(target error) bool { return target == ErrLimit && e.Limit }

// finding is a problem while the text is still being checked: the place is only
// an offset, and becomes a pointer if the check fails in the end.
type finding struct {
	at  int
	msg string
}

// newError turns findings in text into an Error.
func newError(text []byte, findings []finding, limit bool) *Error {
	e := &Error{Problems: make([]Problem, len(findings)), Limit: limit}
	for i, f := range findings {
		e.Problems[i] = Problem{Pointer: pointerAt(text, f.at), Message: f.msg}
	}
	return e
}

// appendPath appends a JSON pointer the way a programmer would write it behind
// the name of the root: .limit, [3], ["a b"].
func appendPath(dst []byte, pointer string) []byte {
	const shown = 16 // tokens; the middle of a longer path is left out
	tokens := strings.Split(pointer, "/")[1:]
	if pointer == "" {
		return dst
	}
	for i, tok := range tokens {
		if len(tokens) > shown && i >= shown/2 && i < len(tokens)-shown/2 {
			if i == shown/2 {
				dst = append(dst, "..."...)
			}
			continue
		}
		tok = jsonpointer.Unescape(tok)
		switch {
		case isDigits(tok):
			dst = append(append(append(dst, '['), tok...), ']')
		case isIdentifier(tok):
			dst = append(append(dst, '.'), tok...)
		default:
			dst = append(append(dst, '['), quote(tok)...)
			dst = append(dst, ']')
		}
	}
	return dst
}

func isDigits(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i]-'0' > 9 {
			return false
		}
	}
	return s != ""
}

func isIdentifier(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' || c == '$'
		if !letter && (i == 0 || c != '-' && c-'0' > 9) {
			return false
		}
	}
	return s != "" && len(s) <= maxQuoted
}

const (
	maxQuoted = 60 // bytes of a value quoted in a message
	maxListed = 20 // alternatives listed in a message
	// maxErrorText limits the bytes of an error that other code made, which may
	// quote its whole input.
	maxErrorText = 200
)

// gotAt describes the value at text[at] for a message: its type and, if it is a
// scalar, how it starts.
func gotAt(text []byte, at int) string {
	c := cursor{b: text, i: at}
	switch ch := c.space(); ch {
	case 0:
		return "nothing"
	case '"':
		raw, _ := c.str()
		return "string " + quoteRaw(raw)
	case '{':
		return "object"
	case '[':
		return "array"
	case 'n':
		return "null"
	case 't', 'f':
		return "boolean " + string(c.value())
	default:
		return "number " + clip.String(c.number(), maxQuoted)
	}
}

// expected is the message for a value that is not of the type wanted.
func expected(want string, text []byte, at int) string {
	return "expected " + want + ", got " + gotAt(text, at)
}

// unknownProperty names the allowed ones, since the one sent is most often a misspelling.
func unknownProperty(raw []byte, allowed []string) string {
	if len(allowed) == 0 {
		return "unknown property " + quoteRaw(raw) + "; no properties are allowed here"
	}
	return "unknown property " + quoteRaw(raw) + "; allowed: " + listNames(allowed)
}

func duplicateProperty(raw []byte) string { return "duplicate property " + quoteRaw(raw) }

func missingProperty(name string) string {
	return "missing required property " + quote(name)
}

func tooDeep(limit int) string { return fmt.Sprintf("nested more than %d levels deep", limit) }

func listNames(names []string) string { return list(names, quote) }

// listTexts is listNames for texts that are JSON already.
func listTexts(texts []string) string {
	return list(texts, func(t string) string { return clip.String(t, maxQuoted) })
}

func list(all []string, show func(string) string) string {
	var b strings.Builder
	for i, s := range all {
		if i == maxListed {
			fmt.Fprintf(&b, ", ... (%d in all)", len(all))
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(show(s))
	}
	return b.String()
}

// quote quotes s, cut if it is long.
func quote(s string) string {
	return string(jsonwire.AppendQuote(nil, clip.String(s, maxQuoted)))
}

// quoteRaw quotes the content of a JSON string, cut if it is long.
func quoteRaw(raw []byte) string {
	cut := clipRaw(raw, maxQuoted)
	s := jsonwire.UnquoteString(cut)
	if len(cut) < len(raw) {
		s += "…"
	}
	return string(jsonwire.AppendQuote(nil, s))
}

// clipRaw cuts the content of a JSON string to about n bytes, but not inside a
// character, an escape or a pair of surrogates.
func clipRaw(raw []byte, n int) []byte {
	i := 0
	for i < n && i < len(raw) {
		switch {
		case raw[i] != '\\':
			i++
		case i+1 < len(raw) && raw[i+1] != 'u':
			i += 2
		case i+7 < len(raw) && raw[i+2]|0x20 == 'd' && raw[i+3] >= '8' && raw[i+6] == '\\' && raw[i+7] == 'u':
			i += 12
		default:
			i += 6
		}
	}
	for i < len(raw) && !utf8.RuneStart(raw[i]) {
		i++
	}
	return raw[:min(i, len(raw))]
}
