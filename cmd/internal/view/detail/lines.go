package detail

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"mcpwire/internal/text/lazyregexp"
	"mcpwire/internal/text/printable"
)

// Limits of the lines of one payload, in addition to Options.MaxShown.
const (
	maxLines = 10_000
	maxSpans = 40_000
)

// A lineWriter builds lines of spans.
type lineWriter struct {
	lines []Line
	spans int
	// size is the number of bytes of text.
	size  int
	limit int
	// redacted counts placeholders.
	redacted int
	// flat writes spaces in place of line ends.
	flat bool

	// kind is the kind of the text in buf.
	kind SpanKind
	buf  []byte
	// marks counts the combining marks since the last other character.
	marks int
}

func newLineWriter(limit int) *lineWriter {
	return &lineWriter{limit: limit, lines: []Line{{Spans: []Span{}}}}
}

// full reports whether a limit is reached.
func (lw *lineWriter) full() bool {
	return lw.size >= lw.limit || len(lw.lines) >= maxLines || lw.spans >= maxSpans
}

// writeText adds text that is safe to show.
func writeText[T string | []byte](s *lineWriter, text T, kind SpanKind) {
	if kind != s.kind {
		s.flush()
		s.kind = kind
	}
	s.buf = append(s.buf, text...)
	s.size += len(text)
}

// flush ends the span.
func (lw *lineWriter) flush() {
	if len(lw.buf) == 0 {
		return
	}
	l := &lw.lines[len(lw.lines)-1]
	l.Spans = append(l.Spans, Span{Text: string(lw.buf), Kind: lw.kind})
	lw.buf = lw.buf[:0]
	lw.spans++
}

func (lw *lineWriter) newline(depth int) {
	if lw.flat {
		writeText(lw, " ", Punct)
		return
	}
	lw.flush()
	lw.marks = 0
	lw.lines = append(lw.lines, Line{Depth: depth, Spans: []Span{}})
}

// writeUntrusted adds text of a peer and marks invisible characters. It stops at limit bytes, or
// when the writer is full, and returns how many bytes it has consumed.
func (lw *lineWriter) writeUntrusted(text []byte, kind SpanKind, limit int) int {
	i := 0
	quoted := kind == String || kind == Name
	for i < len(text) && i < limit && !lw.full() {
		j, end := i, min(len(text), limit, i+lw.limit-lw.size)
		for j < end && text[j] >= ' ' && text[j] < 0x7f && text[j] != '~' && (text[j] != '\\' || !quoted) {
			j++
		}
		switch {
		case j > i:
			writeText(lw, text[i:j], kind)
			lw.marks = 0
			i = j
		case text[i] == '~':
			n := placeholderLen(text[i:])
			if n > 0 {
				lw.redacted++
				writeText(lw, text[i:i+n], Secret)
			} else {
				n = 1
				writeText(lw, "~", kind)
			}
			i += n
		case text[i] == '\\' && quoted:
			n := 2
			if i+1 < len(text) && text[i+1] == 'u' {
				n = 6
			}
			n = min(n, len(text)-i)
			writeText(lw, text[i:i+n], Escape)
			i += n
		default:
			i += lw.writeRune(text[i:], kind)
		}
	}
	return i
}

// writeRune adds a character that is not printable ASCII, or a run of equal ones, and returns the
// number of bytes consumed.
func (lw *lineWriter) writeRune(text []byte, kind SpanKind) int {
	r, n := utf8.DecodeRune(text)
	if unicode.In(r, unicode.Mn, unicode.Me) {
		lw.marks++
	} else {
		lw.marks = 0
	}
	const maxMarks = 4 // more would cover adjacent lines
	switch {
	case r == utf8.RuneError && n <= 1:
		writeText(lw, fmt.Sprintf("‹%02X›", text[0]), InvalidByte)
		return 1
	case r == '\n' || r == '\r' || r == '\t':
		writeText(lw, string(0x2400+r), Space)
		return 1
	case printable.Safe(r) && lw.marks <= maxMarks:
		writeText(lw, text[:n], kind)
		return n
	}
	size := n
	for bytes.HasPrefix(text[size:], text[:n]) {
		size += n
	}
	writeText(lw, invisibleName(r, size/n), Invisible)
	return size
}

// invisibleName returns the text that stands for count equal invisible characters.
func invisibleName(r rune, count int) string {
	if count < 4 && (r < ' ' || r == 0x7f) {
		picture := 0x2400 + r
		if r == 0x7f {
			picture = '␡'
		}
		return strings.Repeat(string(picture), count)
	}
	name := fmt.Sprintf("‹U+%04X", r)
	if short := shortNames[r]; short != "" {
		name += " " + short
	}
	if count > 1 {
		name += " ×" + strconv.Itoa(count)
	}
	return name + "›"
}

// shortNames are common abbreviations of characters.
var shortNames = map[rune]string{
	0x1b: "ESC", 0xa0: "NBSP", 0xad: "SHY", 0x200b: "ZWSP", 0x200c: "ZWNJ", 0x200d: "ZWJ", 0x200e: "LRM", 0x200f: "RLM",
	0x2028: "LS", 0x2029: "PS", 0x202a: "LRE", 0x202b: "RLE", 0x202c: "PDF", 0x202d: "LRO", 0x202e: "RLO", 0x2060: "WJ",
	0x2066: "LRI", 0x2067: "RLI", 0x2068: "FSI", 0x2069: "PDI", 0xfeff: "BOM",
}

var placeholder = lazyregexp.New(`~redacted:([a-z]{1,32}):([0-9a-f]{12}):[0-9]{1,20}~`)

// placeholderLen returns the length of the placeholder at the beginning of a text, or 0.
func placeholderLen(text []byte) int {
	const longest = 96
	if !bytes.HasPrefix(text, []byte("~redacted:")) {
		return 0
	}
	at := placeholder().FindIndex(text[:min(len(text), longest)])
	if at == nil || at[0] != 0 {
		return 0
	}
	return at[1]
}

// writeLines adds text unchanged, with line ends and trailing spaces marked. It returns the number
// of bytes consumed.
func (lw *lineWriter) writeLines(text []byte) (taken int) {
	for taken < len(text) && !lw.full() {
		line := text[taken:]
		if i := bytes.IndexByte(line, '\n'); i >= 0 {
			line = line[:i+1]
		}
		body := bytes.TrimRight(line, "\r\n")
		seen := bytes.TrimRight(body, " ")
		if n := lw.writeUntrusted(seen, "", len(seen)); n < len(seen) {
			return taken + n
		}
		writeText(lw, strings.Repeat("·", min(len(body)-len(seen), 64)), Space)
		if more := len(body) - len(seen) - 64; more > 0 {
			writeText(lw, fmt.Sprintf("‹%d more›", more), Space)
		}
		lw.writeUntrusted(line[len(body):], "", len(line))
		if taken += len(line); line[len(line)-1] == '\n' && taken < len(text) {
			lw.newline(0)
		}
	}
	return taken
}

// writeProse is like writeLines without marks for line ends, tabs and trailing spaces.
func (lw *lineWriter) writeProse(text []byte) (taken int) {
	for taken < len(text) && !lw.full() {
		line := text[taken:]
		if i := bytes.IndexByte(line, '\n'); i >= 0 {
			line = line[:i+1]
		}
		for i, part := range bytes.Split(bytes.TrimRight(line, "\r\n"), []byte("\t")) {
			if i > 0 {
				writeText(lw, "    ", "")
			}
			if n := lw.writeUntrusted(part, "", len(part)); n < len(part) {
				return min(taken+n, len(text)-1)
			}
		}
		if taken += len(line); taken < len(text) {
			lw.newline(0)
		}
	}
	return taken
}

func (lw *lineWriter) finish() []Line {
	lw.flush()
	return lw.lines
}

// oneLine returns the beginning of a peer's text on one line.
func oneLine(text []byte, limit int) []Span {
	s := newLineWriter(4 * limit)
	if n := s.writeUntrusted(text, "", limit); n < len(text) {
		writeText(s, " …", Annotation)
	}
	return s.finish()[0].Spans
}
