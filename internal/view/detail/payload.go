package detail

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"mcpwire/capture"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/printable"
	"mcpwire/internal/trace"
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
	Findings []int  `json:"l,omitempty"` // numbers in Detail.Findings, counted from 0, that point here
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

const (
	maxIndent  = 64       // levels that are indented; what is deeper stays on one line
	maxString  = 16 << 10 // bytes of a string that are shown
	maxPointer = 1024     // bytes of pointers that findings are looked for by
)

// A printer writes valid JSON so that each member and element is on a line of its own, without changing anything but the white space between them.
type jsonPrinter struct {
	*lineWriter
	data             []byte
	depth            int
	kinds            []byte      // '{' or '[' of what is open
	path             []container // of the outer ones
	omittedBytes     int64       // bytes that are not shown
	blobs            []Blob
	mediaLookups     int            // objects that were searched for their mimeType, which may take as long as they are
	previewBytesLeft int            // for data of blobs
	wantPointers     bool           // pointers are asked for
	lineOf           map[string]int // lines of values, by their pointers
}

// A frame is an object or array that is open.
type container struct {
	index      int
	name       []byte // of the member that is written, as it stands between the quotes
	object     []byte // its text from its beginning
	media      string // its mimeType, if that was looked for
	mediaKnown bool
}

func (jp *jsonPrinter) run() {
	i := 0
	for i < len(jp.data) && !jp.full() {
		switch c := jp.data[i]; c {
		case ' ', '\t', '\r', '\n':
			i++
		case '{', '[':
			i = jp.beginContainer(i, c)
		case '}', ']':
			if jp.depth--; jp.depth < maxIndent {
				jp.path = jp.path[:jp.depth]
				jp.newline(jp.depth)
			}
			jp.kinds = jp.kinds[:jp.depth]
			writeText(jp.lineWriter, jp.data[i:i+1], Punct)
			i++
		case ',':
			writeText(jp.lineWriter, ",", Punct)
			if jp.depth <= maxIndent && jp.depth > 0 {
				jp.path[jp.depth-1].index++
			}
			jp.beginItem()
			i++
		case ':':
			writeText(jp.lineWriter, ": ", Punct)
			i++
		case '"':
			i = jp.writeString(i)
		default:
			i = jp.writeToken(i)
		}
	}
	jp.omittedBytes += int64(len(jp.data) - i)
}

// beginContainer begins an object or array.
func (jp *jsonPrinter) beginContainer(i int, c byte) int {
	j := i + 1
	for j < len(jp.data) && (jp.data[j] == ' ' || jp.data[j] == '\t' || jp.data[j] == '\r' || jp.data[j] == '\n') {
		j++
	}
	if j < len(jp.data) && (jp.data[j] == '}' || jp.data[j] == ']') {
		writeText(jp.lineWriter, []byte{c, jp.data[j]}, Punct)
		return j + 1
	}
	writeText(jp.lineWriter, jp.data[i:i+1], Punct)
	if jp.depth < maxIndent {
		jp.path = append(jp.path[:jp.depth], container{object: jp.data[i:]})
	}
	jp.kinds = append(jp.kinds, c)
	jp.depth++
	jp.beginItem()
	return i + 1
}

// beginItem begins a member or element.
func (jp *jsonPrinter) beginItem() {
	if jp.depth > maxIndent || jp.depth == 0 {
		return
	}
	jp.newline(jp.depth)
	if jp.wantPointers && jp.kinds[jp.depth-1] == '[' {
		jp.notePointer()
	}
}

// notePointer remembers that a value is on this line.
func (jp *jsonPrinter) notePointer() {
	pointer, ok := jp.pointer()
	if _, there := jp.lineOf[pointer]; ok && !there {
		jp.lineOf[pointer] = len(jp.lines) - 1
	}
}

// pointer returns where the value is that is being written, false if that is too long to say.
func (jp *jsonPrinter) pointer() (string, bool) {
	size := 0
	for i := range jp.path {
		size += 1 + len(jp.path[i].name)
	}
	if size > maxPointer {
		return "", false
	}
	var b strings.Builder
	for i := range jp.path {
		b.WriteByte('/')
		if jp.kinds[i] == '[' {
			b.WriteString(strconv.Itoa(jp.path[i].index))
		} else {
			b.WriteString(strings.ReplaceAll(strings.ReplaceAll(jsonwire.UnquoteString(jp.path[i].name), "~", "~0"), "/", "~1"))
		}
	}
	return b.String(), true
}

// writeToken writes a number or a literal.
func (jp *jsonPrinter) writeToken(i int) int {
	j := i
	for j < len(jp.data) && !bytes.ContainsRune([]byte(" \t\r\n,]}"), rune(jp.data[j])) {
		j++
	}
	kind := Literal
	if c := jp.data[i]; c == '-' || c >= '0' && c <= '9' {
		kind = Number
	}
	if n := jp.writeUntrusted(jp.data[i:j], kind, maxString); n < j-i {
		jp.addOmitted(int64(j - i - n))
	}
	return max(j, i+1)
}

func (jp *jsonPrinter) addOmitted(n int64) {
	jp.omittedBytes += n
	writeText(jp.lineWriter, " … "+trace.FormatSize(n)+" not shown ", Annotation)
}

// writeString writes a name or a string.
func (jp *jsonPrinter) writeString(i int) int {
	end := jsonwire.SkipValue(jp.data, i)
	if end <= i+1 {
		return len(jp.data)
	}
	text := jp.data[i+1 : end-1]
	j := end
	for j < len(jp.data) && (jp.data[j] == ' ' || jp.data[j] == '\t' || jp.data[j] == '\r' || jp.data[j] == '\n') {
		j++
	}
	kind := String
	if j < len(jp.data) && jp.data[j] == ':' {
		kind = Name
		if jp.depth <= maxIndent && jp.depth > 0 {
			jp.path[jp.depth-1].name = text
			if jp.wantPointers {
				jp.notePointer()
			}
		}
	}
	writeText(jp.lineWriter, `"`, Punct)
	if kind == Name || !jp.writeBlob(text) {
		if n := jp.writeUntrusted(text, kind, maxString); n < len(text) {
			jp.addOmitted(int64(len(text) - n))
		}
	}
	writeText(jp.lineWriter, `"`, Punct)
	return end
}

// markFindings marks the lines that findings point to. A pointer to what is not there leads to what should have it.
func (jp *jsonPrinter) markFindings(list []Finding, event uint64) {
	for i := range list {
		if list[i].Event != event || list[i].Pointer == "" {
			continue
		}
		pointer := list[i].Pointer
		line, ok := jp.lineOf[pointer]
		for !ok && pointer != "" {
			pointer = pointer[:max(0, strings.LastIndexByte(pointer, '/'))]
			line, ok = jp.lineOf[pointer]
		}
		if line < len(jp.lines) {
			jp.lines[line].Findings = append(jp.lines[line].Findings, i)
		}
	}
}

const (
	maxBlobs    = 16      // in one payload that are told apart from other long strings
	minBlob     = 64      // characters; shorter data are shown in full
	blobPrefix  = 24      // characters that are shown
	maxPreview  = 1 << 20 // bytes of data that a page gets to show
	maxPreviews = 4 << 20 // of all in one payload
)

// writeBlob writes a string in short if it is data in Base64, and reports whether it has.
func (jp *jsonPrinter) writeBlob(text []byte) bool {
	if len(text) < minBlob || len(jp.blobs) >= maxBlobs || jp.depth == 0 || jp.depth > maxIndent || jp.kinds[jp.depth-1] != '{' {
		return false
	}
	data := text
	media := ""
	if rest, ok := bytes.CutPrefix(text, []byte("data:")); ok { // https://www.rfc-editor.org/rfc/rfc2397
		head, body, ok := bytes.Cut(rest[:min(len(rest), 256)], []byte(";base64,"))
		if !ok {
			return false
		}
		media = string(head)
		data = rest[len(rest[:min(len(rest), 256)])-len(body):]
	} else if f := &jp.path[jp.depth-1]; string(f.name) == "data" || string(f.name) == "blob" {
		if !f.mediaKnown && jp.mediaLookups < maxBlobs {
			f.mediaKnown, f.media = true, mediaOf(f.object)
			jp.mediaLookups++
		}
		media = f.media
	}
	if media == "" || len(data) < minBlob || !isBase64(data) {
		return false
	}
	b := Blob{MediaType: printable.Line(media[:min(len(media), 100)]), Len: int64(base64.StdEncoding.DecodedLen(len(data)) - (len(data) - len(bytes.TrimRight(data, "="))))}
	b.Pointer, _ = jp.pointer()
	b.Pointer = printable.Line(b.Pointer)
	jp.preview(&b, media, data)
	jp.blobs = append(jp.blobs, b)
	jp.lines[len(jp.lines)-1].Blob = len(jp.blobs)
	shown := min(len(text), len(text)-len(data)+blobPrefix)
	writeText(jp.lineWriter, text[:shown], String)
	writeText(jp.lineWriter, " … "+b.MediaType+", "+trace.FormatSize(b.Len)+" ", Annotation)
	jp.omittedBytes += int64(len(text) - shown)
	return true
}

// mediaOf returns the mimeType of an object.
func mediaOf(object []byte) string {
	for m := jsonwire.ObjectMembers(object); m.Next(); {
		if v := m.Value(); m.KeyIs("mimeType") && len(v) > 2 && v[0] == '"' && len(v) < 256 {
			return jsonwire.UnquoteString(v[1 : len(v)-1])
		}
	}
	return ""
}

func isBase64(text []byte) bool {
	if len(text)%4 != 0 {
		return false
	}
	body := bytes.TrimRight(text, "=")
	if len(text)-len(body) > 2 {
		return false
	}
	for _, c := range body {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '+' || c == '/') {
			return false
		}
	}
	return true
}

// preview decodes what can be shown as a picture or heard. Kinds that can carry script, as SVG does, are not among it.
func (jp *jsonPrinter) preview(b *Blob, media string, text []byte) {
	kind, _, _ := strings.Cut(strings.ToLower(media), ";")
	begins, ok := map[string][]string{
		"image/png": {"\x89PNG\r\n\x1a\n"}, "image/jpeg": {"\xff\xd8\xff"}, "image/gif": {"GIF87a", "GIF89a"}, "image/webp": {"RIFF"},
		"audio/wav": {"RIFF"}, "audio/x-wav": {"RIFF"}, "audio/mpeg": {"ID3", "\xff\xfb", "\xff\xf3", "\xff\xf2"}, "audio/mp3": {"ID3", "\xff\xfb", "\xff\xf3", "\xff\xf2"},
		"audio/ogg": {"OggS"}, "audio/flac": {"fLaC"},
	}[strings.TrimSpace(kind)]
	if !ok {
		return
	}
	var head [24]byte // of 32 characters
	n, _ := base64.StdEncoding.Decode(head[:], text[:32])
	for _, begin := range begins {
		if bytes.HasPrefix(head[:n], []byte(begin)) {
			b.Preview, _, _ = strings.Cut(kind, "/")
		}
	}
	if b.Preview == "" || b.Len > maxPreview || int(b.Len) > jp.previewBytesLeft {
		return
	}
	data, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil {
		b.Preview = ""
		return
	}
	jp.previewBytesLeft -= len(data)
	b.Data = data
}
