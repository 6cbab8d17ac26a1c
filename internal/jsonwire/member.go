package jsonwire

// A Member says where a member of an object is in the text: its name, between
// the quotes, and its value.
type Member struct {
	NameStart, NameEnd int
	Start, End         int
	Escaped            bool // the name contains escape sequences
}

// Member consumes a member and what follows it, as [Scanner.Key],
// [Scanner.Skip] and [Scanner.NextMember] do one after the other but in half
// the time, and notes in m where the member was.
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

// TryLiteral consumes a member's name and the ':' behind it, as [Scanner.Key] does, if
// they are spelled like this: quoted is the name in its quotes with the colon.
// It reports whether they are; there are other ways to spell the same. quoted
// may go on with a value, and then has to end with the comma behind that.
func (s *Scanner) TryLiteral(quoted string) bool {
	i := space(s.data, s.pos)
	if len(s.data)-i < len(quoted) || len(quoted) < 2 || s.data[i+1] != quoted[1] || string(s.data[i:i+len(quoted)]) != quoted {
		return false
	}
	s.pos = i + len(quoted)
	return true
}
