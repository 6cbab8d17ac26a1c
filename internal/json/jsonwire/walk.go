package jsonwire

import (
	"bytes"
	"math"
	"strconv"
)

// SkipValue returns the index after the value that starts at b[i] or after white space there.
//
// b must have passed a [Scanner]: SkipValue only looks for the end. For other input the result is
// meaningless, but it is never less than i nor more than len(b), and nothing panics. 0 <= i <=
// len(b).
func SkipValue(b []byte, i int) int {
	i = space(b, i)
	if i >= len(b) {
		return i
	}
	switch b[i] {
	case '"':
		return quotedEnd(b, i+1)
	case '{', '[':
		return containerClose(b, i+1)
	}
	// A scalar: up to the next delimiter, but at least one byte.
	for i++; i < len(b) && b[i] > ' ' && b[i] != ',' && b[i]|0x20 != '}'; i++ {
	}
	return i
}

// quotedEnd returns the index after the quote that closes the string whose content starts at i, or
// len(b).
func quotedEnd(b []byte, i int) int {
	start, mark := i, i // mark: start of the run without a quote
	for i >= 0 && i <= len(b)-16 {
		m := equals(load64(b, i), '"'*ones)
		i += 8
		if m == 0 {
			m = equals(load64(b, i), '"'*ones)
			i += 8
			if m == 0 {
				if i-mark >= longRun {
					k := bytes.IndexByte(b[i:], '"')
					if k < 0 {
						return len(b)
					}
					i += k
					mark = i
				}
				continue
			}
		}
		for ; m != 0; m &= m - 1 {
			if k := i - 8 + firstByte(m); b[k] == '"' && !escapedQuote(b, start, k) {
				return k + 1
			}
		}
		mark = i
	}
	for ; i < len(b); i++ {
		if b[i] == '"' && !escapedQuote(b, start, i) {
			return i + 1
		}
	}
	return len(b)
}

// escapedQuote reports whether the quote at b[i], in a string whose content starts at start, has an
// odd number of backslashes before it. Each backslash counts for only one quote, because quotes lie
// between.
func escapedQuote(b []byte, start, i int) bool {
	k := i - 1
	for k >= start && b[k] == '\\' {
		k--
	}
	return (i-k)&1 == 0
}

// nameQuote returns the index of the quote that closes the member name whose content starts at i,
// and whether the name has escapes. The result is never less than i nor more than len(b).
func nameQuote(b []byte, i int) (end int, escaped bool) {
	start := i
	for i >= 0 && i <= len(b)-8 {
		w := load64(b, i)
		m := equals(w, '"'*ones) | equals(w, '\\'*ones)
		if m != 0 {
			if i += firstByte(m); b[i] == '"' {
				return i, false
			}
			break
		}
		i += 8
	}
	end = max(quotedEnd(b, start)-1, start)
	return end, bytes.IndexByte(b[start:end], '\\') >= 0
}

// containerClose returns the index after the bracket that closes the container whose content starts
// at i, or len(b).
func containerClose(b []byte, i int) int {
	for level := 1; i < len(b); {
		switch b[i] {
		case '"':
			i = quotedEnd(b, i+1)
			continue
		case '{', '[':
			level++
		case '}', ']':
			if level--; level == 0 {
				return i + 1
			}
		}
		i++
	}
	return i
}

// Members walks the members of an object in order. See [ObjectMembers].
type Members struct {
	obj []byte
	// next is where Next continues.
	next int
	// keyStart and keyEnd delimit the name between its quotes.
	keyStart, keyEnd int
	valStart, valEnd int
	escaped          bool
}

// ObjectMembers walks the object obj, which must have passed a [Scanner] and
// may have white space around it. Members aliases obj. For any other text what
// it yields is meaningless, but it ends and does not panic.
func ObjectMembers(obj []byte) Members {
	i := space(obj, 0)
	if i >= len(obj) || obj[i] != '{' {
		return Members{obj: obj, next: len(obj)}
	}
	return Members{obj: obj, next: i + 1}
}

// Next moves to the next member and reports whether there is one.
func (m *Members) Next() bool {
	b := m.obj
	i := space(b, m.next)
	if i < len(b) && b[i] == ',' {
		i = space(b, i+1)
	}
	if i >= len(b) || b[i] != '"' {
		m.stop()
		return false
	}
	m.keyStart = i + 1
	m.keyEnd, m.escaped = nameQuote(b, i+1)
	i = space(b, m.keyEnd+1)
	if i >= len(b) || b[i] != ':' {
		m.stop()
		return false
	}
	m.valStart = space(b, i+1)
	m.valEnd = SkipValue(b, m.valStart)
	m.next = m.valEnd
	return true
}

// stop makes every further Next return false. (Assigning a new Members would be
// shorter, but then obj escapes.)
func (m *Members) stop() {
	m.next = len(m.obj)
	m.keyStart, m.keyEnd, m.valStart, m.valEnd, m.escaped = 0, 0, 0, 0, false
}

// RawKey returns the member's name as written between the quotes, aliasing the object.
func (m *Members) RawKey() []byte { return m.obj[m.keyStart:m.keyEnd] }

// KeyIs reports whether the member's name, its escapes decoded, is name.
func (m *Members) KeyIs(name string) bool {
	if m.escaped {
		return m.escapedKeyIs(name)
	}
	return string(m.RawKey()) == name
}

//go:noinline
func (m *Members) escapedKeyIs(name string) bool { return RawEqual(m.RawKey(), name) }

// KeyString returns the member's name with its escapes decoded. It allocates.
func (m *Members) KeyString() string {
	if m.escaped {
		return UnquoteString(m.RawKey())
	}
	return string(m.RawKey())
}

// Value returns the text of the member's value without white space around it, aliasing the object.
func (m *Members) Value() []byte { return m.obj[m.valStart:m.valEnd] }

// Span returns the indexes in the object at which the value begins and ends.
func (m *Members) Span() (start, end int) { return m.valStart, m.valEnd }

// Elements walks the elements of an array in order. See [ArrayElements].
type Elements struct {
	arr              []byte
	next             int
	valStart, valEnd int
}

// ArrayElements walks the array arr, which must have passed a [Scanner] and may
// have white space around it. Elements aliases arr. Another value, or none, has
// no elements. For any other text what it yields is meaningless, but it ends and
// does not panic.
func ArrayElements(arr []byte) Elements {
	i := space(arr, 0)
	if i >= len(arr) || arr[i] != '[' {
		return Elements{arr: arr, next: len(arr)}
	}
	return Elements{arr: arr, next: i + 1}
}

// Next moves to the next element and reports whether there is one.
func (e *Elements) Next() bool {
	b := e.arr
	i := space(b, e.next)
	if i < len(b) && b[i] == ',' {
		i = space(b, i+1)
	}
	if i >= len(b) || b[i] == ']' {
		e.next, e.valStart, e.valEnd = len(b), 0, 0
		return false
	}
	e.valStart = i
	e.valEnd = SkipValue(b, i)
	e.next = e.valEnd
	return true
}

// Value returns the text of the element without white space around it, aliasing the array.
func (e *Elements) Value() []byte { return e.arr[e.valStart:e.valEnd] }

// Span returns the indexes in the array at which the element begins and ends.
func (e *Elements) Span() (start, end int) { return e.valStart, e.valEnd }

// Lookup follows a path of member names from a valid JSON text and returns the value there. It
// returns nil if a name is missing or a value on the way is not an object, and the first of members
// with the same name. It scans the text before the value each time; to get many members, use
// [ObjectMembers].
func Lookup(value []byte, path ...string) []byte {
	for _, name := range path {
		if value = firstMember(value, name); value == nil {
			return nil
		}
	}
	return value
}

func firstMember(object []byte, name string) []byte {
	if len(object) == 0 || object[0] != '{' {
		return nil
	}
	for m := ObjectMembers(object); m.Next(); {
		if m.KeyIs(name) {
			return m.Value()
		}
	}
	return nil
}

// Text returns the value of a JSON string, and "" for other types. The text must be valid.
func Text(value []byte) string {
	s, _ := String(value)
	return s
}

// String returns the value of a JSON string. ok is false for other types. The text must be valid.
func String(value []byte) (s string, ok bool) {
	if len(value) < 2 || value[0] != '"' || value[len(value)-1] != '"' {
		return "", false
	}
	return UnquoteString(value[1 : len(value)-1]), true
}

// IsInexact reports whether a value is a number that a reader may round, because it is beyond
// ±(2^53-1). The text must be valid, without white space before it.
func IsInexact(value []byte) bool {
	if c := value[0]; c != '-' && (c < '0' || c > '9') {
		return false
	}
	f, _ := strconv.ParseFloat(string(value), 64) // infinite if too large
	return math.Abs(f) > 1<<53-1
}

// OneLine returns text without raw line breaks. It returns text itself if it has no line breaks.
// text must be valid JSON.
func OneLine(text []byte) []byte {
	if bytes.IndexByte(text, '\n') < 0 && bytes.IndexByte(text, '\r') < 0 {
		return text
	}
	return AppendCompact(nil, text)
}

// AppendCompact appends the JSON text src, which must have passed a [Scanner], without its
// insignificant white space: what it appends has no raw newline. Strings and numbers are copied
// unchanged. dst may be src[:0].
func AppendCompact(dst, src []byte) []byte {
	start := 0
	for i := 0; i < len(src); {
		switch src[i] {
		case '"':
			i = quotedEnd(src, i+1)
		case ' ', '\n', '\r', '\t':
			dst = append(dst, src[start:i]...)
			i = spaceEnd(src, i)
			start = i
		default:
			i++
		}
	}
	return append(dst, src[start:]...)
}

// HasSpace reports whether the JSON text src, which must have passed a [Scanner], has any
// insignificant white space, so that [AppendCompact] would shorten it.
func HasSpace(src []byte) bool {
	for i := 0; i < len(src); {
		switch src[i] {
		case '"':
			i = quotedEnd(src, i+1)
		case ' ', '\n', '\r', '\t':
			return true
		default:
			i++
		}
	}
	return false
}
