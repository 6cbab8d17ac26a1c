package schema

import (
	"errors"
	"strings"
)

// maxProblems is how many problems one check reports before it stops.
const maxProblems = 8

// ErrLimit is what errors.Is finds in an [*Error] whose check ended because it
// took too many steps or nested too deeply, not because the value was seen to
// be wrong.
var ErrLimit = errors.New("schema: limit on validation work exceeded")

// Error says what is wrong with a value. Decode, Append and Validate return it
// as an *Error. Its text is written for the language model that sent the value:
// each problem names the place, what was expected and what was there.
type Error struct {
	// Root is what messages call the whole value. Empty means "arguments".
	// Whoever knows better may set it before printing.
	Root string
	// Problems has at least one entry and at most eight, in the order of the
	// text.
	Problems []Problem
	// Limit is set if the last problem is that a limit on work or depth was
	// hit; errors.Is(err, ErrLimit) reports it.
	Limit bool
}

// Problem is one thing wrong with a value.
type Problem struct {
	// Pointer is the JSON pointer (RFC 6901) of the value the problem is with,
	// "" for the whole. Names longer than 128 bytes are cut.
	Pointer string
	// Message says what was expected there and what was found.
	Message string
}

// Error lists the problems, such as
//
//	arguments.limit: expected integer, got string "ten"; arguments: missing required property "text"
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
		tok = strings.ReplaceAll(strings.ReplaceAll(tok, "~1", "/"), "~0", "~")
		switch {
		case isDigits(tok):
			dst = append(append(append(dst, '['), tok...), ']')
		case isIdentifier(tok):
			dst = append(append(dst, '.'), tok...)
		default:
			dst = append(append(dst, '['), quoteClipped(tok)...)
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
