package detail

import (
	"bytes"
	"strconv"
	"strings"

	"mcpwire/internal/jsonwire"
	"mcpwire/internal/wireview"
)

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
