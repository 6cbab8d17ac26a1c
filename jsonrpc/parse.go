package jsonrpc

import (
	"bytes"
	"errors"
	"math"

	"mcpwire/internal/json/jsonwire"
)

// Parse parses a frame that holds one message. It makes one pass over the frame, which validates
// the whole text (RFC 8259, UTF-8, at most maxDepth levels; zero means 512), and allocates
// nothing. m's slices alias the frame.
//
// The error is an *Error to answer with. If the frame is not JSON, it is [CodeParseError] and m is
// empty. If the frame is JSON but not a message, it is [CodeInvalidRequest], m.ID is the id if a
// valid one was found, and m.Kind says whether the frame looks like a response, which must not be
// answered. Member names are compared by their decoded value and case-sensitively. A duplicate of
// one of the message's own members is an invalid request.
func Parse(frame []byte, m *Message, maxDepth int) error {
	var s jsonwire.Scanner
	s.Reset(frame, maxDepth)
	m.reset(frame)
	if len(frame) > math.MaxInt32 {
		return Errorf(CodeInvalidRequest, "message of more than %d bytes", math.MaxInt32)
	}
	problem, err := m.scan(&s)
	if err == nil {
		err = s.End()
	}
	if err != nil {
		m.reset(nil)
		return parseError(err)
	}
	if problem != "" {
		return &Error{Code: CodeInvalidRequest, Message: "invalid request: " + problem}
	}
	return nil
}

func parseError(err error) *Error {
	var syntax *jsonwire.SyntaxError
	if errors.As(err, &syntax) {
		return &Error{Code: CodeParseError, Message: "parse error: " + syntax.Error()}
	}
	return &Error{Code: CodeParseError, Message: "parse error"}
}

func (m *Message) reset(text []byte) {
	m.Kind, m.ID, m.Method, m.Params, m.Result, m.Error = KindInvalid, nil, nil, nil, nil, nil
	m.text = text
	m.resetIndex()
}

// The members that scan has seen.
const (
	sawVersion = 1 << iota
	sawID
	sawMethod
	sawParams
	sawResult
	sawError
)

// scan reads the message at the scanner's position. err means that the text is not JSON; problem
// means that it is JSON but not a message.
func (m *Message) scan(s *jsonwire.Scanner) (problem string, err error) {
	if c := s.Peek(); c != '{' {
		if err := s.Skip(); err != nil {
			return "", err
		}
		return "not an object", nil
	}
	seen := 0
	more, err := s.EnterObject()
	if more && s.TryLiteral(`"jsonrpc":"2.0",`) { // the usual beginning; a member follows the comma
		seen = sawVersion
	}
	for more && err == nil {
		bit, p := sawParams, ""
		if s.TryLiteral(`"params":`) { // nobody sends other spellings
			if p, err = m.scanParams(s); err == nil {
				more, err = s.NextMember()
			}
		} else {
			var at jsonwire.Member
			if more, err = s.Member(&at); err == nil {
				bit, p = m.setMember(&at)
			}
		}
		if bit != 0 && seen&bit != 0 {
			p = "member " + memberNames[bit] + " appears twice"
			if bit == sawID {
				m.ID = nil // ambiguous
			}
		}
		seen |= bit
		if problem == "" {
			problem = p
		}
	}
	if err != nil {
		return "", err
	}
	return m.classify(seen, problem), nil
}

var memberNames = map[int]string{
	sawVersion: "jsonrpc", sawID: "id", sawMethod: "method", sawParams: "params", sawResult: "result", sawError: "error",
}

// setMember sets a member of the message. bit is 0 for an unknown name.
func (m *Message) setMember(at *jsonwire.Member) (bit int, problem string) {
	name, value := m.text[at.NameStart:at.NameEnd], m.text[at.Start:at.End]
	if at.Escaped {
		name = jsonwire.AppendUnquote(nil, name)
	}
	switch string(name) {
	case "jsonrpc":
		return sawVersion, checkVersion(value)
	case "id":
		return sawID, m.setID(value)
	case "method":
		return sawMethod, m.setMethod(value)
	case "params":
		return sawParams, m.setParams(value)
	case "result":
		m.Result = value
		return sawResult, ""
	case "error":
		m.Error = value
		return sawError, ""
	}
	return 0, ""
}

// classify decides the kind from the members that were seen, and names what is wrong.
func (m *Message) classify(seen int, problem string) string {
	response := seen&(sawResult|sawError) != 0
	switch {
	case response && seen&sawError != 0:
		m.Kind = KindError
	case response:
		m.Kind = KindResponse
	case seen&sawMethod != 0 && seen&sawID != 0:
		m.Kind = KindRequest
	case seen&sawMethod != 0:
		m.Kind = KindNotification
	}
	switch {
	case problem != "":
	case seen&sawVersion == 0:
		problem = `member jsonrpc is missing; it must be "2.0"`
	case seen&sawMethod != 0 && response:
		problem = "both a method and a result or an error"
	case seen&sawResult != 0 && seen&sawError != 0:
		problem = "both a result and an error"
	case response && len(m.ID) == 0 && seen&sawError == 0:
		problem = "a result without an id"
	case !response && seen&sawMethod == 0:
		problem = "member method is missing"
	case m.ID.IsNull() && m.Kind != KindError:
		problem = "id must be a string or an integer, not null"
	}
	if problem != "" {
		if m.ID.IsNull() {
			m.ID = nil
		}
		if !response {
			m.Kind = KindInvalid
		}
	}
	return problem
}

func checkVersion(text []byte) (problem string) {
	if string(text) == `"2.0"` || text[0] == '"' && jsonwire.RawEqual(text[1:len(text)-1], "2.0") {
		return ""
	}
	return `jsonrpc must be "2.0"`
}

func (m *Message) setID(text []byte) (problem string) {
	switch c := text[0]; {
	case c == '"', c == 'n', isInteger(text):
		m.ID = text
		return ""
	case c == '-' || '0' <= c && c <= '9':
		if whole, ok := bytes.CutSuffix(text, []byte(".0")); ok && isInteger(whole) {
			m.ID = text // the peer finds its request by it
		}
		return "id must be an integer, not a fraction or a number with an exponent"
	}
	return "id must be a string or an integer"
}

func (m *Message) setMethod(text []byte) (problem string) {
	if text[0] != '"' {
		return "method must be a string"
	}
	m.Method = text[1 : len(text)-1]
	if bytes.IndexByte(m.Method, '\\') >= 0 {
		m.Method = jsonwire.AppendUnquote(nil, m.Method)
	}
	return ""
}

// setParams is scanParams for a text that has been scanned.
func (m *Message) setParams(text []byte) (problem string) {
	m.resetIndex()
	switch text[0] {
	case '{':
		m.Params = text
		m.disableIndex()
	case '[':
		m.Params = text
	case 'n':
	default:
		return badParams
	}
	return ""
}

const badParams = "params must be an object or an array"

func (m *Message) scanParams(s *jsonwire.Scanner) (problem string, err error) {
	c := s.Peek()
	start := s.Pos()
	m.resetIndex()
	switch c {
	case '{':
		err = m.indexParams(s)
	case '[':
		err = s.Skip()
	case 'n':
		return "", s.Skip() // several SDKs write "params":null for no parameters
	default:
		return badParams, s.Skip()
	}
	if err == nil {
		m.Params = m.text[start:s.Pos()]
	}
	return "", err
}

// indexParams scans the object and remembers where its first members are.
func (m *Message) indexParams(s *jsonwire.Scanner) error {
	more, err := s.EnterObject()
	var at jsonwire.Member
	for more && err == nil {
		if more, err = s.Member(&at); err == nil && !m.unindexed {
			m.addParam(&at)
		}
	}
	return err
}

func (m *Message) addParam(at *jsonwire.Member) {
	if at.Escaped || m.nparams == maxIndexed {
		m.disableIndex()
		return
	}
	key := textRange{int32(at.NameStart), int32(at.NameEnd)}
	bit := lengthBit(at.NameEnd - at.NameStart)
	if m.nameLengths&bit != 0 {
		name := m.text[at.NameStart:at.NameEnd]
		for i := range m.params[:m.nparams] {
			p := &m.params[i]
			if string(m.text[p.key.start:p.key.end]) == string(name) {
				m.duplicate = true
			}
		}
	}
	m.nameLengths |= bit
	m.params[m.nparams] = member{key, textRange{int32(at.Start), int32(at.End)}}
	m.nparams++
}
