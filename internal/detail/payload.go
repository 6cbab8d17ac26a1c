package detail

import (
	"bytes"
	"errors"
	"unicode/utf8"

	"mcpwire/capture"
	"mcpwire/internal/jsonwire"
	"mcpwire/internal/printable"
)

// A Form says what a payload is.
type Form string

// The forms.
const (
	JSON   Form = "json"
	Text   Form = "text"
	Binary Form = "binary" // no UTF-8, or coded
	Empty  Form = "empty"
)

// A Payload is a message, or whatever else an event carries, as people read it.
type Payload struct {
	N       uint64      `json:"n"` // of the event
	Dir     capture.Dir `json:"dir,omitempty"`
	Form    Form        `json:"form"`
	Len     int64       `json:"len"`               // bytes on the wire
	Cut     bool        `json:"cut,omitempty"`     // only the beginning of it was recorded
	Partial bool        `json:"partial,omitempty"` // one message of a batch
	// Lines are the payload line by line: of JSON, each member and element on its own, with numbers, escapes and names that come up twice as they are on the wire.
	Lines []Line `json:"lines"`
	// OmittedBytes is how many bytes are not in Lines, because there are too many.
	OmittedBytes int64 `json:"left,omitempty"`
	// Blobs are data in Base64 that Lines show in short.
	Blobs []Blob `json:"blobs,omitempty"`
	// Redacted is how many placeholders of secrets there are in what is shown.
	Redacted int `json:"redacted,omitempty"`
	// Anomaly says why what should be JSON is none, or what is odd about it.
	Anomaly string `json:"wrong,omitempty"`
	// Bytes is what was recorded: the beginning, up to Options.MaxShown. It must not be changed.
	Bytes []byte `json:"-"`

	pointers map[int]string // places in the JSON that lines are about, by their numbers; nil if nobody asked
}

// A Line is a line of text.
type Line struct {
	Depth    int    `json:"d,omitempty"` // how far it is indented; lines that follow and are deeper may be folded
	Spans    []Span `json:"s"`
	Blob     int    `json:"b,omitempty"` // a number in Blobs, counted from 1
	Findings []int  `json:"l,omitempty"` // numbers in Detail.Lint, counted from 0, that point here
}

// A Span is text of one kind.
type Span struct {
	Text string   `json:"t"`
	Kind SpanKind `json:"k,omitempty"`
}

// A SpanKind says what a text is, so that it can be coloured.
type SpanKind string

// The kinds of span. "" is text of no kind.
const (
	Punct       SpanKind = "p" // brackets, commas, colons and quotes
	Name        SpanKind = "n" // of a member
	String      SpanKind = "s"
	Number      SpanKind = "0"
	Literal     SpanKind = "l" // true, false, null
	Escape      SpanKind = "e" // an escape sequence that is on the wire
	Invisible   SpanKind = "h" // stands for what cannot be seen on the wire, or would do harm: not on the wire like this
	Space       SpanKind = "w" // stands for white space that would be overlooked: line ends, tabs, spaces at the end of a line
	InvalidByte SpanKind = "b" // stands for a byte that is no UTF-8
	Secret      SpanKind = "r" // the placeholder of what redaction has hidden
	Annotation  SpanKind = "c" // is not on the wire at all: what was left out, say
)

// A Blob is data in Base64 that is shown in short.
type Blob struct {
	Pointer   string `json:"pointer"`
	MediaType string `json:"media,omitempty"` // as the message says
	Len       int64  `json:"len"`             // bytes of data, decoded
	// Preview is "image" or "audio" if the data can be shown as such: Media is on a short list of safe kinds, and the data begin like that.
	Preview string `json:"preview,omitempty"`
	// Data are the decoded bytes, if Preview is set and they are not too many. For an <img>, <audio> or a file, never for markup.
	Data []byte `json:"data,omitempty"`
}

// maxNesting is how deep JSON may be to be shown as such: anything that fits into memory.
const maxNesting = 1 << 28

// payload makes a Payload of the data of an event, or of a part of them.
func (b *builder) payload(e *capture.Event, data []byte, partial bool) *Payload {
	p := &Payload{N: e.N, Dir: e.Dir, Len: wireLen(e), Cut: e.Cut, Partial: partial, Anomaly: b.anomaly(e), Bytes: bytes.Clone(data[:min(len(data), b.opts.MaxShown)])}
	if partial {
		p.Len = int64(len(data))
	}
	s := newLineWriter(b.opts.MaxShown)
	switch {
	case len(data) == 0:
		p.Form, p.Lines = Empty, []Line{}
		return p
	case e.Encoding != "":
		p.Form, p.OmittedBytes = Binary, int64(len(data))
		writeText(s, "coded: "+printable.Line(e.Encoding), Annotation)
	case e.Kind != capture.KindStderr && b.formatJSON(e, data, p, s):
		return p
	case utf8.Valid(data) || e.Cut:
		p.Form = Text
		p.OmittedBytes = int64(len(data) - s.writeLines(data))
	default:
		p.Form = Binary
		p.OmittedBytes = int64(len(data) - s.writeLines(data))
	}
	p.Lines, p.Redacted = s.finish(), s.redacted
	return p
}

// formatJSON makes the lines of data that are JSON, and reports whether they are.
func (b *builder) formatJSON(e *capture.Event, data []byte, p *Payload, s *lineWriter) bool {
	if first := bytes.TrimLeft(data, " \t\r\n"); len(first) == 0 || e.Kind != capture.KindMessage && first[0] != '{' && first[0] != '[' {
		return false
	}
	if err := jsonwire.Valid(data, maxNesting); err != nil {
		if bad, ok := errors.AsType[*jsonwire.SyntaxError](err); ok && e.Kind == capture.KindMessage && !e.Cut {
			p.Anomaly = printable.Line(bad.Error())
		}
		return false
	}
	pr := &jsonPrinter{lineWriter: s, data: data, lineOf: map[string]int{"": 0}, previewBytesLeft: maxPreviews}
	for i := range b.detail.Findings {
		pr.wantPointers = pr.wantPointers || b.detail.Findings[i].Event == e.N && b.detail.Findings[i].Pointer != ""
	}
	pr.wantPointers = pr.wantPointers || b.wantPointers
	pr.run()
	pr.flush()
	if b.wantPointers {
		p.pointers = make(map[int]string, len(pr.lineOf))
		for pointer, line := range pr.lineOf {
			p.pointers[line] = pointer
		}
	}
	pr.markFindings(b.detail.Findings, e.N)
	p.Form, p.Lines, p.OmittedBytes, p.Blobs, p.Redacted = JSON, s.finish(), pr.omittedBytes, pr.blobs, s.redacted
	return true
}

// anomaly says in words what the capture says is odd about a payload.
func (b *builder) anomaly(e *capture.Event) string {
	switch e.Why {
	case "not-json":
		return "it is no JSON"
	case "utf8":
		return "it is not UTF-8 throughout"
	case "duplicate":
		return "a name comes up twice in an object"
	case "depth":
		return "it is nested very deep"
	case "newline":
		return "it has line breaks in it"
	case "space":
		return "it has white space around it"
	case "empty", "cut", "":
		return ""
	}
	return printable.Line(e.Why)
}

func wireLen(e *capture.Event) int64 {
	if e.Len > 0 {
		return e.Len
	}
	return int64(len(e.Data))
}
