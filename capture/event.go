package capture

import (
	"bytes"
	"slices"
	"time"

	"mcpwire/internal/rpc/traffic"
)

// A Kind is the type of an event: the member k of its line. Readers must skip kinds they do not
// know.
type Kind string

// The kinds of event. doc/capture-format.md lists the members of each.
const (
	// KindHead is the first line of a capture, which the Writer writes. It has Head.
	KindHead Kind = "head"
	// KindStart reports that a process was started. It has Start.
	KindStart Kind = "start"
	// KindMessage is a frame, or an HTTP body that is one. It has Data.
	KindMessage Kind = "msg"
	// KindInvalid is bytes in the place of a frame that are not JSON, such as stray output of a
	// server. It has Data. Record them as KindMessage.
	KindInvalid Kind = "invalid"
	// KindStderr is output on the standard error of a process. It has Data.
	KindStderr Kind = "err"
	// KindEOF is the end of the stream in direction Dir.
	KindEOF Kind = "eof"
	// KindExit reports that a process ended. It has Exit.
	KindExit Kind = "exit"
	// KindRequest is the head of an HTTP request. It has Request.
	KindRequest Kind = "req"
	// KindResponse is the head of an HTTP response. It has Response.
	KindResponse Kind = "res"
	// KindBody is an HTTP body, or a part of one, that is not a frame. It has Data.
	KindBody Kind = "body"
	// KindSSE is an event of an event stream without a message. It has SSE, and may have Data.
	KindSSE Kind = "sse"
	// KindEnd ends an HTTP exchange. Data has the reason if the end was abnormal.
	KindEnd Kind = "end"
	// KindTranslate reports that a bridge turned one event into others. It has Translation.
	KindTranslate Kind = "translate"
	// KindNote is a remark of the recording program. It has Data.
	KindNote Kind = "note"
	// KindGap stands for missing events. It has Gap.
	KindGap Kind = "gap"
	// KindTail is the last line of a capture that was closed. It has Tail.
	KindTail Kind = "tail"
)

// A Dir is a direction.
type Dir string

// The directions. An event without a direction concerns both.
const (
	ToServer Dir = "c2s"
	ToClient Dir = "s2c"
)

// A Side names one of the two conversations of a bridge.
type Side string

// The sides. Captures of one conversation have none.
const (
	Downstream Side = "downstream" // between the clients and the bridge
	Upstream   Side = "upstream"   // between the bridge and the server
)

// A Transport is what moved the messages. A recording program may have another name for its own, as
// "bridge" for one that has two.
type Transport string

// The transports.
const (
	TransportStdio Transport = "stdio"
	TransportHTTP  Transport = "http" // Streamable HTTP
	TransportSSE   Transport = "sse"  // HTTP+SSE of 2024-11-05
)

// A Framing is the way a frame was delimited in a byte stream. Data excludes the framing bytes.
type Framing string

// The framings. Frames that are HTTP bodies or events of an event stream have none.
const (
	FramingLF     Framing = "lf"     // a line that ends in LF
	FramingCRLF   Framing = "crlf"   // a line that ends in CR LF
	FramingNone   Framing = "eof"    // a last line without a line end
	FramingHeader Framing = "header" // a block after a header, which is in Prefix
)

// An Event is one line of a capture. Fields that do not belong to its Kind are zero.
type Event struct {
	// Kind is the kind of the event.
	Kind Kind
	// N is the number of the event in its capture. Numbers start at 1, have no gaps, and are
	// assigned before the bytes are forwarded, so that their order is a possible order of cause and
	// effect. A [Gap] takes the place of missing events and has the number of the first.
	N uint64
	// T is the time since the head of the capture, by the monotonic clock.
	T time.Duration
	// At is the head's time plus T. Readers set it; writers ignore it.
	At time.Time
	// Capture is the id of the capture with this event. Readers set it; writers ignore it.
	Capture string
	// Dir is the direction. It is empty if the event concerns both.
	Dir Dir
	// Side is set in the capture of a bridge, where each session belongs to one side.
	Side Side
	// Session distinguishes connections and sessions in one capture. The recorder counts them; it
	// never uses the protocol's session id, which is a secret. Zero means that the capture has only
	// one or does not know.
	Session uint64
	// Exchange distinguishes HTTP exchanges, a request with its response, in one capture. Zero
	// means none.
	Exchange uint64

	// Data is the payload, exactly as on the wire unless Redacted says otherwise. For a frame it is
	// the message without framing; for an event of an event stream, the data lines joined by LF. In
	// an event from a [Reader] it is valid until the next event.
	Data []byte
	// Len is the size of the payload on the wire in bytes. It differs from len(Data) if Data is cut
	// or redacted. For writers, zero means len(Data).
	Len int64
	// Cut reports that Data is only the beginning of the payload.
	Cut bool
	// Part counts from 1 the parts of a body or line that is recorded in several. Zero means that
	// it is whole. Redaction hides parts completely, since half a secret cannot be recognized.
	Part int
	// Encoding is the content coding of Data ("gzip"). Empty means plain bytes.
	Encoding string
	// Framing is how a frame of a byte stream was delimited. Otherwise it is empty.
	Framing Framing
	// Prefix is the header of FramingHeader with all its line ends.
	Prefix string
	// Why says why the payload of a message is recorded as text and not as JSON. Readers set it.
	Why RawReason

	// The following fields belong to one Kind each, except that messages from an event stream also
	// have an SSE.

	Head        *Head
	Start       *Start
	Exit        *Exit
	Request     *Request
	Response    *Response
	SSE         *SSE
	Gap         *Gap
	Translation *Translation
	Tail        *Tail

	// Redacted lists the hidden values, as JSON pointers (https://www.rfc-editor.org/rfc/rfc6901)
	// into the line of the event. Readers set it.
	Redacted []string
	// RedactedMore counts hidden values beyond those in Redacted. Readers set it.
	RedactedMore int

	// Frame is the parsed Data, for programs of this repository, which parse a message once for all
	// its readers. Others leave it nil.
	Frame *traffic.Frame
}

// Clone returns a copy that shares no memory with the reader.
func (e *Event) Clone() *Event {
	c := *e
	c.Data, c.Frame = bytes.Clone(e.Data), nil
	return &c
}

// A Head describes a capture.
type Head struct {
	// Version is the version of the format.
	Version int
	// ID is the random id of the capture.
	ID string
	// At is the time at which the capture began; T counts from it.
	At time.Time
	// Tool is the name and version of the recording program.
	Tool string
	// Transport is what the tool recorded. Empty means unknown.
	Transport Transport
	// Name is the user's name for the server.
	Name string
	// URL is the server's URL with its secrets hidden. Empty means unknown or not HTTP.
	URL string
	// Redact is the redaction that the capture was written with.
	Redact RedactionMode
}

// A RedactionMode says how much the writer of a capture has hidden.
type RedactionMode string

// The redactions of a capture.
const (
	// redactionDefault is the redaction without options.
	redactionDefault RedactionMode = "default"
	// redactionCustom is a [Redaction] with options.
	redactionCustom RedactionMode = "custom"
	// RedactionOff hides nothing.
	RedactionOff RedactionMode = "off"
)

// A Start describes how a process was started.
type Start struct {
	// Command is the program and its arguments.
	Command []string
	// Dir is the working directory.
	Dir string
	// Env lists the names of the environment variables. Redaction cuts off a value after "=", and
	// remembers it as a secret if the name is the name of a secret.
	Env []string
	// PID is the id of the process.
	PID int
}

// An Exit describes how a process ended.
type Exit struct {
	// Code is the exit code, or -1 if a signal ended the process.
	Code int
	// Signal is the name of the signal that ended the process. Empty means none.
	Signal string
}

// A Header is one field of an HTTP header. A list of them keeps the original order and spelling.
type Header struct{ Name, Value string }

// A Request is the head of an HTTP request.
type Request struct {
	// Method is the HTTP method.
	Method string
	// URL is the request target.
	URL string
	// Proto is the version, such as "HTTP/1.1".
	Proto string
	// Remote is the address of the peer.
	Remote string
	// Headers has the fields as they were sent.
	Headers []Header
}

// A Response is the head of an HTTP response.
type Response struct {
	// Status is the status code.
	Status int
	// Proto is the version, such as "HTTP/1.1".
	Proto string
	// Headers has the fields as they were sent.
	Headers []Header
}

// An SSE holds the fields of an event of an event stream except its data
// (https://html.spec.whatwg.org/multipage/server-sent-events.html). Events of [KindSSE] and
// messages from an event stream have one.
type SSE struct {
	// Event is the name of the event. Empty means none.
	Event string
	// ID is valid if HasID is set.
	ID    string
	HasID bool
	// Retry is valid if HasRetry is set. It is in whole milliseconds.
	Retry    time.Duration
	HasRetry bool
	// Comment is valid if HasComment is set. LF joins several lines.
	Comment    string
	HasComment bool
	// HasData reports whether there was a data field, which may be empty. Only KindSSE uses it.
	HasData bool
}

// A Gap stands for events that are not in the capture. Gaps that a Reader adds have no number.
type Gap struct {
	// Lost is the number of missing events. Zero means unknown.
	Lost uint64
	// Bytes is the size of their payloads, or of the unreadable lines.
	Bytes int64
	// Until is the time of the last missing event; T of the event is the time of the first.
	Until time.Duration
	// Why says why the events are missing.
	Why GapReason
}

// A RawReason says why the payload of a message is recorded as text and not as JSON. The reasons
// are the two below, "not-json", "utf8" (it is not valid UTF-8), "depth" (it nests too deep to
// read), "empty" (it has only white space), "space" (it has white space around it) and "cut" (only
// its beginning is recorded).
type RawReason string

// Reasons to record JSON as text.
const (
	// RawDuplicate means that an object in it has two members of the same name.
	RawDuplicate RawReason = "duplicate"
	// RawNewline means that it has a line break, which a line of a capture cannot have.
	RawNewline RawReason = "newline"

	rawNotJSON RawReason = "not-json"
	rawUTF8    RawReason = "utf8"
	rawDepth   RawReason = "depth"
	rawEmpty   RawReason = "empty"
	rawSpace   RawReason = "space"
	rawCut     RawReason = "cut"
)

// A GapReason says why events are missing.
type GapReason string

// The reasons for a gap.
const (
	// GapQueue means that events came faster than they were written.
	GapQueue GapReason = "queue"
	// GapWrite means that writing failed. Some of the events may be in the capture nevertheless.
	GapWrite GapReason = "write"
	// GapUnwatched means that nobody wanted the events: a tap that records only for viewers had no
	// viewer.
	GapUnwatched GapReason = "unwatched"
	// GapLimit means that a Reader skipped a line above its limit.
	GapLimit GapReason = "limit"
	// GapMalformed means that a Reader skipped a line that is not an event.
	GapMalformed GapReason = "malformed"
	// GapTruncated means that the last line has no end: its writer died or is still writing.
	GapTruncated GapReason = "truncated"
)

// A Translation links an event to those that a bridge made from it.
type Translation struct {
	// Of is the number of the original event.
	Of uint64
	// To has the numbers of the resulting events.
	To []uint64
	// Rule names the conversion.
	Rule string
}

// A Tail summarizes a capture.
type Tail struct {
	// Events counts the events in the capture, without head, gaps and tail.
	Events uint64
	// Lost counts the missing events.
	Lost uint64
}

// wireLen returns the size of the payload on the wire in bytes.
func (e *Event) wireLen() int64 {
	if e.Len > 0 {
		return e.Len
	}
	return int64(len(e.Data))
}

// overhead is the memory that a queued event takes in addition to its payload, in bytes.
const overhead = 512

// cost returns the memory that the event takes until it is written, in bytes.
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
