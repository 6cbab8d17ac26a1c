package detail

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
	"mcpwire/internal/json/jsonpointer"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/printable"
)

// A Form says what a payload consists of.
type Form string

// The forms.
const (
	JSON   Form = "json"
	Text   Form = "text"
	Binary Form = "binary" // not UTF-8, or with a content coding
	Empty  Form = "empty"
)

// A Payload is a message or other data of an event, formatted for people.
type Payload struct {
	// N is the number of the event.
	N    uint64      `json:"n"`
	Dir  capture.Dir `json:"dir,omitempty"`
	Form Form        `json:"form"`
	// Len is the number of bytes on the wire.
	Len int64 `json:"len"`
	// Cut means that only the beginning was recorded.
	Cut bool `json:"cut,omitempty"`
	// Partial means that the payload is one message of a batch.
	Partial bool `json:"partial,omitempty"`
	// Lines are the lines of the payload. JSON has one line for each member and element; numbers,
	// escapes and duplicate names are unchanged.
	Lines []Line `json:"lines"`
	// OmittedBytes counts the bytes above the limit, which are not in Lines.
	OmittedBytes int64 `json:"left,omitempty"`
	// Blobs are Base64 data that Lines abbreviate.
	Blobs []Blob `json:"blobs,omitempty"`
	// Redacted counts the placeholders of secrets in Lines.
	Redacted int `json:"redacted,omitempty"`
	// Anomaly says why the payload is not valid JSON, or what is unusual about it.
	Anomaly string `json:"wrong,omitempty"`
	// Bytes is the beginning of the recorded data, up to Options.MaxShown. It must not be
	// modified.
	Bytes []byte `json:"-"`

	// pointers are the JSON pointers of lines, by line number. It is nil unless requested.
	pointers map[int]string
	// blobStarts has the first byte of each blob in the message, until its content is made.
	blobStarts []*byte
}

// A Line is a line of text.
type Line struct {
	// Depth is the indentation. Deeper lines that follow can be folded.
	Depth int    `json:"d,omitempty"`
	Spans []Span `json:"s"`
	// Blob is an index into Blobs, counted from 1. Zero means none.
	Blob int `json:"b,omitempty"`
	// Findings are indexes into Detail.Findings, counted from 0, of findings that point here.
	Findings []int `json:"l,omitempty"`
}

// A Span is text of one kind.
type Span struct {
	Text string   `json:"t"`
	Kind SpanKind `json:"k,omitempty"`
}

// A SpanKind is the kind of a text, for its color.
type SpanKind string

// The kinds of span. Plain text has an empty kind.
const (
	Punct       SpanKind = "p" // brackets, commas, colons and quotes
	Name        SpanKind = "n" // of a member
	String      SpanKind = "s"
	Number      SpanKind = "0"
	Literal     SpanKind = "l" // true, false, null
	Escape      SpanKind = "e" // an escape sequence on the wire
	Invisible   SpanKind = "h" // stands for invisible or harmful characters on the wire
	Space       SpanKind = "w" // stands for line ends, tabs and trailing spaces
	InvalidByte SpanKind = "b" // stands for a byte that is not UTF-8
	Secret      SpanKind = "r" // the placeholder of a redacted secret
	Annotation  SpanKind = "c" // not on the wire, such as "…" for omitted text
)

// A Blob is Base64 data that is abbreviated.
type Blob struct {
	Pointer string `json:"pointer"`
	// MediaType is the type according to the message.
	MediaType string `json:"media,omitempty"`
	// Len is the decoded size, in bytes.
	Len int64 `json:"len"`
	// Preview is "image" or "audio" if the data can be shown safely: the media type is on a short
	// list of safe types, and the data begin accordingly.
	Preview string `json:"preview,omitempty"`
	// Data are the decoded bytes if Preview is set and the size is within the limits. Use them for
	// <img>, <audio> or a file, never for markup.
	Data []byte `json:"data,omitempty"`
}

// maxNesting is the nesting limit of JSON. It allows anything that fits into memory.
const maxNesting = 1 << 28

// payload formats the data of an event, or a part of them.
func (b *builder) payload(e *capture.Event, data []byte, partial bool) *Payload {
	p := &Payload{N: e.N, Dir: e.Dir, Len: trace.WireLen(e), Cut: e.Cut, Partial: partial, Anomaly: anomaly(e), Bytes: bytes.Clone(data[:min(len(data), b.opts.MaxShown)])}
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
	default:
		if p.Form = Binary; utf8.Valid(data) || e.Cut {
			p.Form = Text
		}
		p.OmittedBytes = int64(len(data) - s.writeLines(data))
	}
	p.Lines, p.Redacted = s.finish(), s.redacted
	return p
}

// formatJSON formats JSON data. It returns false for other data.
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
	p.blobStarts = pr.blobStarts
	return true
}

// anomalies describe what a capture reports as unusual about a payload.
var anomalies = map[capture.RawReason]string{
	"not-json": "it is not JSON", "utf8": "it is not valid UTF-8", "duplicate": "a name appears twice in an object", "depth": "it is nested very deeply",
	"newline": "it contains line breaks", "space": "it has white space around it", "empty": "", "cut": "",
}

func anomaly(e *capture.Event) string {
	if text, known := anomalies[e.Why]; known {
		return text
	}
	return printable.Line(string(e.Why))
}

const (
	maxIndent  = 64       // indented levels; deeper ones stay on one line
	maxString  = 16 << 10 // bytes shown of a string
	maxPointer = 1024     // bytes of a pointer
)

// A jsonPrinter formats valid JSON with each member and element on its own line. It changes
// nothing but the white space between tokens.
type jsonPrinter struct {
	*lineWriter
	data  []byte
	depth int
	// kinds has '{' or '[' for each open container.
	kinds []byte
	// path has the open containers up to maxIndent.
	path []container
	// omittedBytes counts the bytes that are not shown.
	omittedBytes int64
	blobs        []Blob
	// blobStarts has the first byte of each blob in data.
	blobStarts []*byte
	// mediaLookups counts the searches for a mimeType, each of which may read a whole object.
	mediaLookups int
	// previewBytesLeft limits the data of further blobs.
	previewBytesLeft int
	wantPointers     bool
	// lineOf has the lines of values, by pointer.
	lineOf map[string]int
}

// A container is an open object or array.
type container struct {
	index int
	// name is the raw name of the current member, without quotes.
	name []byte
	// object is the text from its beginning.
	object []byte
	// media is its mimeType, if it was searched for.
	media      string
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

func (jp *jsonPrinter) beginContainer(i int, c byte) int {
	j := jp.skipSpace(i + 1)
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

// skipSpace returns the index of the next token.
func (jp *jsonPrinter) skipSpace(i int) int {
	return len(jp.data) - len(bytes.TrimLeft(jp.data[i:], " \t\r\n"))
}

func (jp *jsonPrinter) beginItem() {
	if jp.depth > maxIndent || jp.depth == 0 {
		return
	}
	jp.newline(jp.depth)
	if jp.wantPointers && jp.kinds[jp.depth-1] == '[' {
		jp.notePointer()
	}
}

// notePointer records that the current value is on this line.
func (jp *jsonPrinter) notePointer() {
	pointer, ok := jp.pointer()
	if _, there := jp.lineOf[pointer]; ok && !there {
		jp.lineOf[pointer] = len(jp.lines) - 1
	}
}

// pointer returns the pointer of the current value, and false if it is too long.
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
			b.WriteString(jsonpointer.Escape(jsonwire.UnquoteString(jp.path[i].name)))
		}
	}
	return b.String(), true
}

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

func (jp *jsonPrinter) writeString(i int) int {
	end := jsonwire.SkipValue(jp.data, i)
	if end <= i+1 {
		return len(jp.data)
	}
	text := jp.data[i+1 : end-1]
	kind := String
	if j := jp.skipSpace(end); j < len(jp.data) && jp.data[j] == ':' {
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

// markFindings marks the lines that findings point to. A pointer to a missing value marks the
// closest enclosing value.
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
	maxBlobs    = 16      // of one payload; further ones count as strings
	minBlob     = 64      // characters; shorter data are shown in full
	blobPrefix  = 24      // characters shown
	maxPreview  = 1 << 20 // bytes of data of one preview
	maxPreviews = 4 << 20 // bytes of all previews of a payload
)

// writeBlob abbreviates a string of Base64 data. It returns false for other strings.
func (jp *jsonPrinter) writeBlob(text []byte) bool {
	if len(text) < minBlob || len(jp.blobs) >= maxBlobs || jp.depth == 0 || jp.depth > maxIndent || jp.kinds[jp.depth-1] != '{' {
		return false
	}
	data := text
	media := ""
	// https://www.rfc-editor.org/rfc/rfc2397
	if rest, ok := bytes.CutPrefix(text, []byte("data:")); ok {
		head, body, ok := bytes.Cut(rest[:min(len(rest), 256)], []byte(";base64,"))
		if !ok {
			return false
		}
		media = string(head)
		data = rest[len(rest[:min(len(rest), 256)])-len(body):]
	} else if f := &jp.path[jp.depth-1]; string(f.name) == "data" || string(f.name) == "blob" {
		if !f.mediaKnown && jp.mediaLookups < maxBlobs {
			if v := jsonwire.Lookup(f.object, "mimeType"); len(v) < 256 {
				f.media = jsonwire.Text(v)
			}
			f.mediaKnown = true
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
	jp.blobs, jp.blobStarts = append(jp.blobs, b), append(jp.blobStarts, &text[0])
	jp.lines[len(jp.lines)-1].Blob = len(jp.blobs)
	shown := min(len(text), len(text)-len(data)+blobPrefix)
	writeText(jp.lineWriter, text[:shown], String)
	writeText(jp.lineWriter, " … "+b.MediaType+", "+trace.FormatSize(b.Len)+" ", Annotation)
	jp.omittedBytes += int64(len(text) - shown)
	return true
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

// preview decodes images and audio. It excludes types that can contain scripts, such as SVG.
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
