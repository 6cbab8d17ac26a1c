package jsonwire

// DefaultMaxDepth is how many arrays and objects may be open at once unless a
// caller says otherwise.
const DefaultMaxDepth = 512

// Scanner validates one JSON text in a single pass, from front to back, and
// returns slices into it. The zero value scans an empty text.
//
// The caller drives it along the structure of the text, see the example: an
// object is EnterObject, then Key and a value as long as that and NextMember
// return true; an array is EnterArray, then a value as long as that and
// NextElement return true; a value is one of these, String or Skip; and End
// comes last.
//
// Every method skips white space before what it reads, none behind it. After an
// error the Scanner stays where it was before the call and is of no further
// use. Methods called out of step with the text return errors, those called
// out of step with each other (NextElement inside an object) may pass invalid
// text; nothing panics.
//
// A Scanner is for one goroutine at a time and may be copied to look ahead.
type Scanner struct {
	data     []byte
	pos      int // 0 <= pos <= len(data)
	depth    int // containers entered and not left
	maxDepth int
}

// Reset starts the Scanner on data, which it keeps and never changes. At most
// maxDepth arrays and objects may be open at once; 0 or less means
// [DefaultMaxDepth].
func (s *Scanner) Reset(data []byte, maxDepth int) {
	if maxDepth <= 0 {
		maxDepth = DefaultMaxDepth
	}
	*s = Scanner{data: data, maxDepth: maxDepth}
}

// Pos is the index of the first byte not consumed.
func (s *Scanner) Pos() int { return s.pos }

// Peek moves over white space and returns the next byte without consuming it,
// so that Pos is then where a value starts. It returns 0 at the end of data, and
// for a NUL byte, which is valid nowhere: either way whatever is called next,
// except [Scanner.End] at the end, returns the error.
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

// Skip validates and passes over one value of any kind with all it contains.
// Its text is data[start:Pos()], start being Pos after a Peek.
func (s *Scanner) Skip() error {
	i, f := valueEnd(s.data, space(s.data, s.pos), s.maxDepth-s.depth)
	if f != faultNone {
		return newError(s.data, i, f)
	}
	s.pos = i
	return nil
}

// String validates and consumes a string and returns what is between its
// quotes, aliasing data. If escaped is set, raw contains escape sequences and
// its value is that of [UnquoteString] or [AppendUnquote]; if not, raw is the
// value.
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

// EnterObject consumes '{'. If the object has members it returns true, and
// [Scanner.Key] is next; if it is empty, '}' is consumed as well. It is an
// error with Depth set if the object exceeds the depth limit.
func (s *Scanner) EnterObject() (more bool, err error) { return s.enter('{', faultObject) }

// EnterArray consumes '['. If the array has elements it returns true, and a
// value is next; if it is empty, ']' is consumed as well. It is an error with
// Depth set if the array exceeds the depth limit.
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

// Key consumes a member's name and the ':' behind it; the value is next. The
// name is returned as by [Scanner.String].
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

// NextMember goes on behind a member's value: it consumes ',' and returns true,
// then [Scanner.Key] is next; or it consumes '}' and returns false.
func (s *Scanner) NextMember() (more bool, err error) { return s.next('}', faultMember) }

// NextElement goes on behind an element: it consumes ',' and returns true, then
// a value is next; or it consumes ']' and returns false.
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

// Valid returns nil if data is exactly one valid JSON text that nests at most
// maxDepth deep (0 or less: [DefaultMaxDepth]).
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
