package capture

import (
	"bytes"
	"slices"
	"time"
)

// A Kind tells what an event is: the member k of its line. Readers must pass over kinds they do not know.
type Kind string

// The kinds of event. What each of them has besides is said in doc/capture-format.md.
const (
	KindHead      Kind = "head"      // the first line of a capture; written by whoever writes the capture, see Head
	KindStart     Kind = "start"     // a process was started: Start
	KindMessage   Kind = "msg"       // a frame, or the body of an HTTP message that is one: Data
	KindInvalid   Kind = "invalid"   // bytes in the place of a frame that are not JSON, such as stray output of a server: Data. Record them as KindMessage
	KindStderr    Kind = "err"       // what a process wrote to its standard error: Data
	KindEOF       Kind = "eof"       // the end of what Dir sends
	KindExit      Kind = "exit"      // a process has ended: Exit
	KindRequest   Kind = "req"       // the head of an HTTP request: Request
	KindResponse  Kind = "res"       // the head of an HTTP response: Response
	KindBody      Kind = "body"      // the body of an HTTP message, or a part of it, that is no frame: Data
	KindSSE       Kind = "sse"       // an event of an event stream that has no message: SSE, and Data
	KindEnd       Kind = "end"       // an HTTP exchange is over: Data says why, if it was not the normal end
	KindTranslate Kind = "translate" // a bridge has turned one event into others: Xlate
	KindNote      Kind = "note"      // a remark of whoever records: Data
	KindGap       Kind = "gap"       // events are missing: Gap
	KindTail      Kind = "tail"      // the last line of a capture that was closed: Tail
)

// A Dir is a direction.
type Dir string

// The directions. An event that has none concerns both.
const (
	ToServer Dir = "c2s"
	ToClient Dir = "s2c"
)

// A Side is which of the two conversations of a bridge an event is of.
type Side string

// The sides. Captures of one conversation have none.
const (
	Downstream Side = "downstream" // between the clients and the bridge
	Upstream   Side = "upstream"   // between the bridge and the server
)

// A Framing tells how a frame was set apart from its neighbours in a stream of bytes. The bytes of the framing are not in Data.
type Framing string

// The framings. Frames that are HTTP bodies or events of an event stream have none.
const (
	FramingLF     Framing = "lf"     // a line that ends in LF
	FramingCRLF   Framing = "crlf"   // a line that ends in CR LF
	FramingNone   Framing = "eof"    // a line that the end of the stream cut off, without a line end
	FramingHeader Framing = "header" // a block behind a header, which is in Prefix
)

// An Event is one line of a capture. Fields that do not belong to its Kind are zero.
type Event struct {
	Kind Kind
	// N is the number of the event in its capture. They are given without gaps, starting at 1, and before the bytes are forwarded, so that their order is one in
	// which the events may have caused each other. Events that are missing have a [Gap] in their place, with the first of their numbers.
	N uint64
	// T is the time since the head of the capture, by the monotonic clock.
	T time.Duration
	// At is when it was: the head's time plus T. Readers set it; writers ignore it.
	At time.Time
	// Capture is the id of the capture that the event is in. Readers set it; writers ignore it.
	Capture string
	Dir     Dir
	// Side is set in a bridge's capture, which has two: each session is of one.
	Side Side
	// Session tells connections and sessions in one capture apart. The recorder counts them; it is never the session id of the protocol, which is a secret.
	// 0 is for a capture that has but one, or does not know.
	Session uint64
	// Exchange tells HTTP exchanges, a request with its response, in one capture apart. 0 is none.
	Exchange uint64

	// Data are the bytes of the payload, exactly as they were on the wire, unless Redacted says otherwise. Of a frame they are the message without the framing; of an
	// event of an event stream the data, its lines joined by LF. From a [Reader], they are good until the next event.
	Data []byte
	// Len is how many bytes the payload had on the wire, which may be more than len(Data), see Cut, and is another number if something is hidden. To writers, 0 is len(Data).
	Len int64
	// Cut tells that Data is only the beginning of the payload.
	Cut bool
	// Part counts the parts of a body or a line of text that is recorded in several, from 1. 0 is one in one piece. Redaction hides parts as a whole, since half a secret does not
	// show what it is.
	Part int
	// Encoding is the content coding that Data is in ("gzip"), if it is not the plain bytes.
	Encoding string
	Framing  Framing
	// Prefix is the header of FramingHeader with all its line ends.
	Prefix string
	// Why says why the payload of a message is not in the file as JSON: "not-json", "utf8", "depth", "empty", "duplicate", "newline", "space", "cut". Readers set it.
	Why string

	Head        *Head
	Start       *Start
	Exit        *Exit
	Request     *Request
	Response    *Response
	SSE         *SSE
	Gap         *Gap
	Translation *Translation
	Tail        *Tail

	// Redacted lists what was hidden, as JSON pointers (https://www.rfc-editor.org/rfc/rfc6901) into the event's line. Readers set it.
	Redacted []string
	// RedactedMore is how many more there were than the list holds. Readers set it.
	RedactedMore int
}

// Clone returns a copy that shares no memory with the reader.
func (e *Event) Clone() *Event {
	c := *e
	c.Data = bytes.Clone(e.Data)
	return &c
}

// A Head says what a capture is of.
type Head struct {
	Version   int       // of the format
	ID        string    // of the capture, random
	At        time.Time // when it began: what T counts from
	Tool      string    // that recorded it, with its version
	Transport string    // "stdio", "http", "sse" or whatever the tool calls it
	Name      string    // of the server, as the user knows it
	URL       string    // of the server, if it is one on HTTP and that is known; secrets in it are hidden
	Redact    string    // "default", "custom" or "off"
}

// A Start says how a process was started.
type Start struct {
	Command []string // the program and its arguments
	Dir     string   // the working directory
	Env     []string // names of the variables it was given. Unless redaction is off, a value behind "=" is cut off, and remembered as a secret if the name is that of one
	PID     int
}

// An Exit says how a process ended.
type Exit struct {
	Code   int    // -1 if a signal ended it
	Signal string // its name, "" if none did
}

// A Header is one field of an HTTP header, in its place and spelling.
type Header struct{ Name, Value string }

// A Request is the head of an HTTP request.
type Request struct {
	Method  string
	URL     string // the request target
	Proto   string // "HTTP/1.1"
	Remote  string // address of the peer
	Headers []Header
}

// A Response is the head of an HTTP response.
type Response struct {
	Status  int
	Proto   string
	Headers []Header
}

// An SSE holds the fields of an event of an event stream but for its data (https://html.spec.whatwg.org/multipage/server-sent-events.html). It belongs to events of
// [KindSSE], and to messages that came in one.
type SSE struct {
	Event      string // its name, "" if it had none
	ID         string // if HasID
	HasID      bool
	Retry      time.Duration // if HasRetry; whole milliseconds
	HasRetry   bool
	Comment    string // if HasComment; several lines are joined by LF
	HasComment bool
	HasData    bool // whether there was a data field, which may be empty. Only for KindSSE
}

// A Gap stands for events that are not in the capture. Those that a Reader makes up have no number.
type Gap struct {
	Lost  uint64        // how many events; 0 is unknown
	Bytes int64         // of their payloads, or of the lines that could not be read
	Until time.Duration // when the last of them was, as T is when the first was
	Why   string        // GapQueue, GapWrite, GapLimit, GapMalformed or GapTruncated
}

// Why there is a gap.
const (
	GapQueue     = "queue"     // recorded faster than written
	GapWrite     = "write"     // writing failed. Some of them may be in the capture nevertheless
	GapUnwatched = "unwatched" // of a tap that records for viewers only: there were none, see Options.Want
	GapLimit     = "limit"     // a Reader passed over a line that is above its limit
	GapMalformed = "malformed" // a Reader passed over a line that is no event
	GapTruncated = "truncated" // a Reader found that the last line has no end: whoever wrote it has died, or is still writing
)

// An Translation links an event to those that a bridge made of it.
type Translation struct {
	Of   uint64   // number of the event
	To   []uint64 // numbers of the events it became
	Rule string   // what was done
}

// A Tail sums a capture up.
type Tail struct {
	Events uint64 // that are in the capture, without head, gaps and tail
	Lost   uint64 // events that are not
}

// wireLen is how many bytes the payload had.
func (e *Event) wireLen() int64 {
	if e.Len > 0 {
		return e.Len
	}
	return int64(len(e.Data))
}

// overhead is what an event costs in a queue besides its payload, in bytes.
const overhead = 512

// cost is how much memory the event takes until it is written.
func (e *Event) cost() int {
	n := overhead + len(e.Data) + len(e.Prefix) + len(e.Encoding)
	headers := func(list []Header) {
		for _, h := range list {
			n += 32 + len(h.Name) + len(h.Value)
		}
	}
	switch {
	case e.Request != nil:
		n += len(e.Request.URL)
		headers(e.Request.Headers)
	case e.Response != nil:
		headers(e.Response.Headers)
	case e.Start != nil:
		for _, s := range slices.Concat(e.Start.Command, e.Start.Env) {
			n += 16 + len(s)
		}
	}
	if s := e.SSE; s != nil {
		n += len(s.ID) + len(s.Event) + len(s.Comment)
	}
	return n
}
