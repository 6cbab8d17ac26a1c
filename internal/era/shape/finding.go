package shape

import (
	"strconv"
	"strings"

	"mcpwire/internal/json/jsonpointer"
	"mcpwire/internal/text/clip"
	"mcpwire/mcp"
)

// MaxFindings limits the findings that Check returns for one message.
const MaxFindings = 20

// A MessageKind is the kind of a Message.
type MessageKind uint8

// The kinds of messages.
const (
	Request MessageKind = iota + 1
	Notification
	Result
	ErrorObject
)

// A Direction is the direction of a message.
type Direction uint8

// The directions. Either skips the check of the direction.
const (
	Either Direction = iota
	ToServer
	ToClient
)

// A Message is a message without its JSON-RPC envelope.
type Message struct {
	Kind MessageKind
	Dir  Direction
	// Method is the method. For a Result or ErrorObject it is the method of the request, or "" if
	// that is unknown.
	Method string
	// Body is the JSON text of the params, the result or the error object. It is nil without
	// params. Check only reads it.
	Body []byte
}

// A Code is the kind of a finding.
type Code uint8

// The codes.
const (
	// Malformed says that the body is invalid JSON or nested too deep.
	Malformed Code = iota + 1
	// Missing says that a required member is absent.
	Missing
	// WrongType says that a value has another JSON type.
	WrongType
	// BadValue says that a value of the right type is not allowed.
	BadValue
	// BadFormat says that a string is not a URI or base64.
	BadFormat
	// Duplicate says that a member occurs twice.
	Duplicate
	// WrongKind says that a request was sent as a notification, or the reverse.
	WrongKind
	// WrongDirection says that only the other side sends the method.
	WrongDirection
	// NotInRevision says that only other revisions have the method or value.
	NotInRevision
)

var codeNames = [...]string{"", "malformed", "missing", "wrong-type", "bad-value", "bad-format", "duplicate", "wrong-kind", "wrong-direction", "not-in-revision"}

// String returns the code's name, such as "wrong-type".
func (c Code) String() string {
	if int(c) >= len(codeNames) {
		return ""
	}
	return codeNames[c]
}

// A Finding is one difference between a message and its shape.
type Finding struct {
	// Pointer is a JSON Pointer (RFC 6901) into the body. It is "" for the body and for a method.
	// It cuts member names after 100 bytes. They come from the peer and may contain control
	// characters.
	Pointer string
	// Code is the kind of the finding.
	Code Code
	// Message describes the finding in one line. It quotes and clips texts of the peer.
	Message string
	// Type is the specification's name of the violated type, such as "Tool", or its place if it has
	// no name, such as "Tool.inputSchema". It may be "".
	Type string
}

const (
	// maxToken limits the bytes of a member name in a pointer.
	maxToken = 100
	// maxQuoted limits the bytes of a peer's text in a message.
	maxQuoted = 60
)

// A path is the position of a value, as a list that ends at the body.
type path struct {
	parent *path
	// key is a member name if named is set, and index an element number otherwise.
	key   string
	index int
	named bool
}

// pointer returns the path as a JSON Pointer.
func (p *path) pointer() string {
	if p == nil {
		return ""
	}
	token := strconv.Itoa(p.index)
	if p.named {
		token = jsonpointer.Escape(clip.Prefix(p.key, maxToken))
	}
	return p.parent.pointer() + "/" + token
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
