package shape

import (
	"strconv"
	"strings"

	"mcpwire/mcp"
)

// MaxFindings is how many problems Check returns for one message at most.
const MaxFindings = 20

// A MessageKind is what a Message is.
type MessageKind uint8

// The kinds of messages.
const (
	Request MessageKind = iota + 1
	Notification
	Result
	ErrorObject
)

// A Direction says who sent a message.
type Direction uint8

// The directions. With Either, Check does not look at the direction.
const (
	Either Direction = iota
	ToServer
	ToClient
)

// A Message is one message without its envelope.
type Message struct {
	Kind   MessageKind
	Dir    Direction
	Method string // of a Result or ErrorObject: the method of the request that it answers; "" if that is not known
	Body   []byte // params, result or error object; nil if there are no params. Check only reads it
}

// A Code says what kind of problem there is.
type Code uint8

// The codes.
const (
	Malformed      Code = iota + 1 // the body is not JSON, or nests too deep
	Missing                        // a member that must be there is not
	WrongType                      // a value is of another JSON type
	BadValue                       // a value is of the right type, and none of those that are allowed
	BadFormat                      // a string is not the URI or base64 text that it should be
	Duplicate                      // a member stands twice
	WrongKind                      // a request sent as a notification, or the other way round
	WrongDirection                 // the other side sends this method
	NotInRevision                  // other revisions have the method, or the value, and this one does not
)

var codeNames = [...]string{"", "malformed", "missing", "wrong-type", "bad-value", "bad-format", "duplicate", "wrong-kind", "wrong-direction", "not-in-revision"}

// String returns the code's name, such as "wrong-type".
func (c Code) String() string {
	if int(c) >= len(codeNames) {
		return ""
	}
	return codeNames[c]
}

// A Finding is one way in which a message differs from its shape.
type Finding struct {
	// Pointer says where: a JSON Pointer (RFC 6901) from the body. It is "" for the body itself, and for a method. Names of members are cut after 100
	// bytes. They are the peer's, and may have control characters.
	Pointer string
	Code    Code
	// Message says what is wrong in one line of plain words. What it quotes of the peer's is quoted as Go does, and cut.
	Message string
	// Type is the specification's name of the type that is not met, such as "Tool"; one that the specification defines in place is named after that
	// place, such as "Tool.inputSchema". It is "" if there is none.
	Type string
	// Has are the revisions that have what this one does not have. Of NotInRevision only.
	Has []mcp.Revision
}

// maxToken is how many bytes of a member's name a pointer has.
const maxToken = 100

// A path is where a value stands, as a list that ends in the body.
type path struct {
	parent *path
	key    string // a member's name
	index  int    // or, if key is not set, an element's number
	named  bool
}

// pointer writes the path as a JSON Pointer.
func (p *path) pointer() string {
	if p == nil {
		return ""
	}
	token := strconv.Itoa(p.index)
	if p.named {
		token = strings.NewReplacer("~", "~0", "/", "~1").Replace(clip(p.key, maxToken))
	}
	return p.parent.pointer() + "/" + token
}

// clip cuts a text to n bytes, at the end of a character.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n]
}

// quote quotes what the peer sent, for a message.
func quote(s string) string {
	const most = 60
	if len(s) > most {
		return strconv.Quote(clip(s, most)) + "…"
	}
	return strconv.Quote(s)
}

// revisionList lists revisions in words.
func revisionList(all []mcp.Revision) string {
	var names []string
	for _, r := range all {
		names = append(names, r.String())
	}
	return joinWords(names, "and")
}

// joinWords lists texts in words.
func joinWords(all []string, conjunction string) string {
	if len(all) < 2 {
		return strings.Join(all, "")
	}
	return strings.Join(all[:len(all)-1], ", ") + " " + conjunction + " " + all[len(all)-1]
}
