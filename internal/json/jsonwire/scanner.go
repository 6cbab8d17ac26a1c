package jsonwire

import (
	"fmt"
	"math"
	"strconv"
)

// DefaultMaxDepth limits the arrays and objects open at once, unless a caller says otherwise.
const DefaultMaxDepth = 512

// Scanner validates one JSON text in a single pass, from front to back, and returns slices into it.
// The zero value scans an empty text.
//
// The caller follows the structure of the text; see the example. An object is EnterObject, then Key
// and a value as long as that and NextMember return true. An array is EnterArray, then a value as
// long as that and NextElement return true. A value is one of these, String or Skip. End comes
// last.
//
// Every method skips white space before what it reads, but not after it. After an error the Scanner
// stays where it was before the call and must not be used again. Methods called out of step with
// the text return errors. Methods called out of step with each other (NextElement inside an object)
// may accept invalid text. Nothing panics.
//
// A Scanner must not be used by several goroutines at once. It may be copied to look ahead.
type Scanner struct {
	data []byte
	// pos is an index: 0 <= pos <= len(data).
	pos int
	// depth counts the open containers.
	depth    int
	maxDepth int
}

// Reset starts the Scanner on data, which it keeps and never changes. maxDepth limits the arrays
// and objects open at once; 0 or less means [DefaultMaxDepth].
func (s *Scanner) Reset(data []byte, maxDepth int) {
	if maxDepth <= 0 {
		maxDepth = DefaultMaxDepth
	}
	*s = Scanner{data: data, maxDepth: maxDepth}
}

// Pos returns the index of the first byte not consumed.
func (s *Scanner) Pos() int { return s.pos }

// Peek skips white space and returns the next byte without consuming it, so that Pos is then the
// start of a value. It returns 0 at the end of data, and for a NUL byte, which is never valid: in
// both cases the next call, except [Scanner.End] at the end, returns the error.
func (s *Scanner) Peek() (next byte) {
	if s.pos < len(s.data) {
		next = s.data[s.pos]
	}
	if next <= ' ' {
		next = s.peekBehindSpace()
	}
	return
}

func (s *Scanner) peekBehindSpace() byte {
	s.pos = spaceEnd(s.data, s.pos)
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

// Skip validates and skips one value of any kind, including nested values. Its text is
// data[start:Pos()], where start is Pos after a Peek.
func (s *Scanner) Skip() error {
	i, f := valueEnd(s.data, space(s.data, s.pos), s.maxDepth-s.depth)
	if f != faultNone {
		return newError(s.data, i, f)
	}
	s.pos = i
	return nil
}

// String validates and consumes a string and returns the text between its quotes, aliasing data. If
// escaped is set, raw contains escape sequences, and [UnquoteString] or [AppendUnquote] return its
// value; if not, raw is the value.
func (s *Scanner) String() (raw []byte, escaped bool, err error) {
	i := space(s.data, s.pos)
	if i >= len(s.data) || s.data[i] != '"' {
		return nil, false, newError(s.data, i, faultStringStart)
	}
	end, escaped := stringEnd(s.data, i+1)
	if end < 0 {
		return nil, false, newError(s.data, ^end, faultString)
	}
	s.pos = end + 1
	return s.data[i+1 : end], escaped, nil
}

// EnterObject consumes '{'. If the object has members it returns true, and [Scanner.Key] is next.
// If it is empty, EnterObject also consumes '}'. It returns an error with Depth set if the object
// exceeds the depth limit.
func (s *Scanner) EnterObject() (more bool, err error) { return s.enter('{', faultObject) }

// EnterArray consumes '['. If the array has elements it returns true, and a value is next. If it is
// empty, EnterArray also consumes ']'. It returns an error with Depth set if the array exceeds the
// depth limit.
func (s *Scanner) EnterArray() (more bool, err error) { return s.enter('[', faultArray) }

func (s *Scanner) enter(open byte, f fault) (more bool, err error) {
	i := space(s.data, s.pos)
	if i >= len(s.data) || s.data[i] != open {
		return false, newError(s.data, i, f)
	}
	if s.depth >= s.maxDepth {
		return false, newError(s.data, i, faultDepth)
	}
	i = space(s.data, i+1)
	if i < len(s.data) && s.data[i] == open+2 { // '[' + 2 is ']', '{' + 2 is '}'
		s.pos = i + 1
		return false, nil
	}
	s.pos = i
	s.depth++
	return true, nil
}

// Key consumes a member's name and the ':' after it; the value is next. The name is returned as by
// [Scanner.String].
func (s *Scanner) Key() (raw []byte, escaped bool, err error) {
	start := space(s.data, s.pos)
	if start >= len(s.data) || s.data[start] != '"' {
		return nil, false, newError(s.data, start, faultName)
	}
	end, escaped := stringEnd(s.data, start+1)
	if end < 0 {
		return nil, false, newError(s.data, ^end, faultString)
	}
	i := space(s.data, end+1)
	if i >= len(s.data) || s.data[i] != ':' {
		return nil, false, newError(s.data, i, faultColon)
	}
	s.pos = i + 1
	return s.data[start+1 : end], escaped, nil
}

// NextMember continues after a member's value. It consumes ',' and returns true, then [Scanner.Key]
// is next; or it consumes '}' and returns false.
func (s *Scanner) NextMember() (more bool, err error) { return s.next('}', faultMember) }

// NextElement continues after an element. It consumes ',' and returns true, then a value is next;
// or it consumes ']' and returns false.
func (s *Scanner) NextElement() (more bool, err error) { return s.next(']', faultElement) }

func (s *Scanner) next(closing byte, f fault) (more bool, err error) {
	i := space(s.data, s.pos)
	if i < len(s.data) {
		switch s.data[i] {
		case ',':
			s.pos = i + 1
			return true, nil
		case closing:
			s.pos = i + 1
			s.depth--
			return false, nil
		}
	}
	return false, newError(s.data, i, f)
}

// End returns an error unless only white space remains.
func (s *Scanner) End() error {
	i := space(s.data, s.pos)
	if i < len(s.data) {
		return newError(s.data, i, faultEnd)
	}
	s.pos = i
	return nil
}

// Valid returns nil if data is exactly one valid JSON text that nests at most maxDepth deep. 0 or
// less means [DefaultMaxDepth].
func Valid(data []byte, maxDepth int) error {
	if maxDepth <= 0 {
		maxDepth = DefaultMaxDepth
	}
	i, f := valueEnd(data, space(data, 0), maxDepth)
	if f == faultNone {
		if i = space(data, i); i == len(data) {
			return nil
		}
		f = faultEnd
	}
	return newError(data, i, f)
}

// A Member locates a member of an object in the text: its name, between the quotes, and its value.
type Member struct {
	NameStart, NameEnd int
	Start, End         int
	// Escaped reports that the name contains escape sequences.
	Escaped bool
}

// Member consumes a member and the comma or brace after it. It replaces [Scanner.Key],
// [Scanner.Skip] and [Scanner.NextMember] in half the time, and stores the location in m.
func (s *Scanner) Member(m *Member) (more bool, err error) {
	b := s.data
	i := space(b, s.pos)
	if i >= len(b) || b[i] != '"' {
		return false, newError(b, i, faultName)
	}
	end, escaped := stringEnd(b, i+1)
	if end < 0 {
		return false, newError(b, ^end, faultString)
	}
	m.NameStart, m.NameEnd, m.Escaped = i+1, end, escaped
	if i = end + 1; i >= len(b) || b[i] != ':' {
		if i = space(b, i); i >= len(b) || b[i] != ':' {
			return false, newError(b, i, faultColon)
		}
	}
	i = space(b, i+1)
	m.Start = i
	if i < len(b) && b[i] == '"' {
		if i, _ = stringEnd(b, i+1); i < 0 {
			return false, newError(b, ^i, faultString)
		}
		i++
	} else {
		var f fault
		if i, f = valueEnd(b, i, s.maxDepth-s.depth); f != faultNone {
			return false, newError(b, i, f)
		}
	}
	m.End = i
	if i = space(b, i); i < len(b) {
		switch b[i] {
		case ',':
			s.pos = i + 1
			return true, nil
		case '}':
			s.pos = i + 1
			s.depth--
			return false, nil
		}
	}
	return false, newError(b, i, faultMember)
}

// TryLiteral consumes a member's name and the ':' after it, as [Scanner.Key] does, if the text
// continues with quoted: the name in its quotes with the colon. It reports whether it does; there
// are other spellings of the same name. quoted may continue with a value and the comma after it.
func (s *Scanner) TryLiteral(quoted string) bool {
	i := space(s.data, s.pos)
	if len(s.data)-i < len(quoted) || len(quoted) < 2 || s.data[i+1] != quoted[1] || string(s.data[i:i+len(quoted)]) != quoted {
		return false
	}
	s.pos = i + len(quoted)
	return true
}

// space returns the index of the first byte from i on that is not white space, or len(b).
func space(b []byte, i int) int {
	if i < len(b) && b[i] <= ' ' {
		return spaceEnd(b, i)
	}
	return i
}

// spaceEnd is space where white space is likely. It skips eight spaces at a time, because most of
// it is indentation.
//
//go:noinline
func spaceEnd(b []byte, i int) int {
	for i < len(b) {
		switch b[i] {
		case ' ':
			for i >= 0 && i <= len(b)-8 && load64(b, i) == ' '*ones {
				i += 8
			}
			if i < len(b) && b[i] == ' ' {
				i++
			}
		case '\n', '\r', '\t':
			i++
		default:
			return i
		}
	}
	return i
}

// valueEnd validates the value at b[i] and returns the index after it, or the index of the error
// and a fault. depthLeft limits its nesting.
func valueEnd(b []byte, i, depthLeft int) (int, fault) {
	if i >= len(b) {
		return i, faultValue
	}
	switch b[i] {
	case '"':
		if i, _ = stringEnd(b, i+1); i < 0 {
			return ^i, faultString
		}
		return i + 1, faultNone
	case '{', '[':
		return containerEnd(b, i, depthLeft)
	}
	return scalarEnd(b, i)
}

// containerEnd is valueEnd for an array or object.
//
// It does not recurse: the kinds of the open containers are bits, 1 for an object, the innermost
// lowest. Every 64 levels the full word goes on a stack, which has room here for the default depth.
func containerEnd(b []byte, i, depthLeft int) (int, fault) {
	var stackBuf [DefaultMaxDepth / 64]uint64
	stack, kinds, level, f := stackBuf[:0], uint64(0), 0, faultNone
	for {
		if kinds&1 != 0 {
			if i, f = nameEnd(b, i); f != faultNone {
				return i, f
			}
		}
		if i >= len(b) {
			return i, faultValue
		}
		switch c := b[i]; c {
		case '"':
			if i, _ = stringEnd(b, i+1); i < 0 {
				return ^i, faultString
			}
			i++
		case '{', '[':
			if level >= depthLeft {
				return i, faultDepth
			}
			i = space(b, i+1)
			if i >= len(b) || b[i] != c+2 { // '[' + 2 is ']', '{' + 2 is '}'
				if level&63 == 0 && level > 0 {
					stack = append(stack, kinds)
				}
				level++
				kinds = kinds<<1 | uint64(c>>5&1)
				continue
			}
			i++
		default:
			if i, f = scalarEnd(b, i); f != faultNone {
				return i, f
			}
		}
		for { // after a value: close containers until there is a comma
			if level == 0 {
				return i, faultNone
			}
			if i = space(b, i); i >= len(b) {
				return i, faultElement - fault(kinds&1)
			}
			if b[i] == ',' {
				i = space(b, i+1)
				break
			}
			if b[i] != ']'+byte(kinds&1)<<5 {
				return i, faultElement - fault(kinds&1)
			}
			i++
			kinds >>= 1
			if level--; level&63 == 0 && level > 0 {
				kinds = stack[len(stack)-1]
				stack = stack[:len(stack)-1]
			}
		}
	}
}

// nameEnd validates a member name at b[i] with its colon and returns the index of the value.
func nameEnd(b []byte, i int) (int, fault) {
	if i >= len(b) || b[i] != '"' {
		return i, faultName
	}
	if i, _ = stringEnd(b, i+1); i < 0 {
		return ^i, faultString
	}
	i = space(b, i+1)
	if i >= len(b) || b[i] != ':' {
		return i, faultColon
	}
	return space(b, i+1), faultNone
}

// scalarEnd validates a number or a literal at b[i].
func scalarEnd(b []byte, i int) (int, fault) {
	c := b[i]
	if c-'0' < 10 || c == '-' {
		if i = numberEnd(b, i); i < 0 {
			return ^i, faultNumber
		}
		return i, faultNone
	}
	want := ""
	switch c {
	case 't':
		want = "true"
	case 'f':
		want = "false"
	case 'n':
		want = "null"
	default:
		return i, faultValue
	}
	if len(b)-i >= len(want) && string(b[i:i+len(want)]) == want {
		return i + len(want), faultNone
	}
	for k := 0; k < len(want) && i < len(b) && b[i] == want[k]; k++ {
		i++
	}
	return i, faultLiteral
}

// numberEnd validates the number at b[i], a digit or '-'. It returns the index after its last byte,
// or ^k if a digit is missing at k.
func numberEnd(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		// Only a point or an exponent may follow a leading zero.
		i++
	} else if k := digitsEnd(b, i); k == i {
		return ^i
	} else {
		i = k
	}
	if i < len(b) && b[i] == '.' {
		i++
		k := digitsEnd(b, i)
		if k == i {
			return ^i
		}
		i = k
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		k := digitsEnd(b, i)
		if k == i {
			return ^i
		}
		i = k
	}
	return i
}

func digitsEnd(b []byte, i int) int {
	for i < len(b) && b[i]-'0' < 10 {
		i++
	}
	return i
}

// ParseInt parses text as an integer. It reports false unless text is exactly one JSON number
// without fraction and exponent (no white space, "-0" is 0) that fits an int64.
func ParseInt(text []byte) (int64, bool) {
	digits := text
	if len(text) > 0 && text[0] == '-' {
		digits = text[1:]
	}
	if len(digits) == 0 || len(digits) > 19 || digits[0] == '0' && len(digits) > 1 {
		return 0, false
	}
	var n uint64 // 19 digits fit
	for _, c := range digits {
		if c -= '0'; c > 9 {
			return 0, false
		}
		n = n*10 + uint64(c)
	}
	if len(digits) < len(text) {
		if n > -math.MinInt64 {
			return 0, false
		}
		return -int64(n), true
	}
	if n > math.MaxInt64 {
		return 0, false
	}
	return int64(n), true
}

// SyntaxError reports where and why a text is not valid JSON. It is returned as a *SyntaxError.
type SyntaxError struct {
	// Offset is the index of the first byte that cannot be part of a valid
	// text, or the length of the text if the text ends too early.
	Offset int
	// Msg says what is wrong there, without the offset.
	Msg string
	// Depth is set if the text was rejected only because it nests deeper than the limit. The rest
	// was not validated.
	Depth bool
}

// Error returns "invalid JSON at byte 17: ...".
func (e *SyntaxError) Error() string {
	return "invalid JSON at byte " + strconv.Itoa(e.Offset) + ": " + e.Msg
}

// fault names what the scanner wanted where it stopped. The hot functions return an offset and a
// fault; newError creates the text.
type fault uint8

const (
	faultNone fault = iota
	faultDepth
	faultValue
	faultName
	faultColon
	faultMember // faultElement - 1, see containerEnd
	faultElement
	faultObject
	faultArray
	faultStringStart
	faultString
	faultNumber
	faultLiteral
	faultEnd
)

var faultWant = [...]string{
	faultNone:        "nothing",
	faultDepth:       "text with less nesting",
	faultValue:       "a value",
	faultName:        "a member name in quotes",
	faultColon:       "':' after a member name",
	faultMember:      "',' or '}' after a member",
	faultElement:     "',' or ']' after an element",
	faultObject:      "'{'",
	faultArray:       "'['",
	faultStringStart: "'\"'",
	faultString:      "the end of the string",
	faultNumber:      "a digit",
	faultLiteral:     "true, false or null",
	faultEnd:         "the end of the text",
}

// newError returns an error about the fault at b[at:].
func newError(b []byte, at int, f fault) *SyntaxError {
	e := &SyntaxError{Offset: at}
	switch {
	case f == faultDepth:
		e.Depth = true
		e.Msg = "nested too deeply"
	case at >= len(b):
		e.Offset = len(b)
		e.Msg = "unexpected end of text, want " + faultWant[f]
	case f == faultString:
		e.Msg = stringFault(b[at])
	case b[at] == 0:
		e.Msg = "NUL byte, want " + faultWant[f]
	case len(b)-at >= 3 && string(b[at:at+3]) == "\xef\xbb\xbf":
		e.Msg = "byte order mark, want " + faultWant[f]
	case b[at] < 0x20 || b[at] >= 0x7f:
		e.Msg = fmt.Sprintf("unexpected byte 0x%02x, want %s", b[at], faultWant[f])
	default:
		e.Msg = fmt.Sprintf("unexpected %q, want %s", b[at], faultWant[f])
	}
	return e
}

// stringFault describes the byte at which the scan of a string stopped.
func stringFault(c byte) string {
	switch {
	case c == '\\':
		return "invalid escape sequence in a string"
	case c < 0x20:
		return fmt.Sprintf("unescaped control character 0x%02x in a string", c)
	default:
		return fmt.Sprintf("invalid UTF-8 in a string, at byte 0x%02x", c)
	}
}
