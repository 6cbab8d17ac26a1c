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
type printer struct {
	*sheet
	data  []byte
	depth int
	kinds []byte  // '{' or '[' of what is open
	path  []frame // of the outer ones
	left  int64   // bytes that are not shown
	blobs []Blob
	looks int            // objects that were searched for their mimeType, which may take as long as they are
	room  int            // for data of blobs
	want  bool           // pointers are asked for
	at    map[string]int // lines of values, by their pointers
}

// A frame is an object or array that is open.
type frame struct {
	index  int
	name   []byte // of the member that is written, as it stands between the quotes
	object []byte // its text from its beginning
	media  string // its mimeType, if that was looked for
	looked bool
}

func (p *printer) run() {
	i := 0
	for i < len(p.data) && !p.full() {
		switch c := p.data[i]; c {
		case ' ', '\t', '\r', '\n':
			i++
		case '{', '[':
			i = p.open(i, c)
		case '}', ']':
			if p.depth--; p.depth < maxIndent {
				p.path = p.path[:p.depth]
				p.newline(p.depth)
			}
			p.kinds = p.kinds[:p.depth]
			put(p.sheet, p.data[i:i+1], Punct)
			i++
		case ',':
			put(p.sheet, ",", Punct)
			if p.depth <= maxIndent && p.depth > 0 {
				p.path[p.depth-1].index++
			}
			p.item()
			i++
		case ':':
			put(p.sheet, ": ", Punct)
			i++
		case '"':
			i = p.string(i)
		default:
			i = p.word(i)
		}
	}
	p.left += int64(len(p.data) - i)
}

// open begins an object or array.
func (p *printer) open(i int, c byte) int {
	j := i + 1
	for j < len(p.data) && (p.data[j] == ' ' || p.data[j] == '\t' || p.data[j] == '\r' || p.data[j] == '\n') {
		j++
	}
	if j < len(p.data) && (p.data[j] == '}' || p.data[j] == ']') {
		put(p.sheet, []byte{c, p.data[j]}, Punct)
		return j + 1
	}
	put(p.sheet, p.data[i:i+1], Punct)
	if p.depth < maxIndent {
		p.path = append(p.path[:p.depth], frame{object: p.data[i:]})
	}
	p.kinds = append(p.kinds, c)
	p.depth++
	p.item()
	return i + 1
}

// item begins a member or element.
func (p *printer) item() {
	if p.depth > maxIndent || p.depth == 0 {
		return
	}
	p.newline(p.depth)
	if p.want && p.kinds[p.depth-1] == '[' {
		p.note()
	}
}

// note remembers that a value is on this line.
func (p *printer) note() {
	pointer, ok := p.pointer()
	if _, there := p.at[pointer]; ok && !there {
		p.at[pointer] = len(p.lines) - 1
	}
}

// pointer returns where the value is that is being written, false if that is too long to say.
func (p *printer) pointer() (string, bool) {
	size := 0
	for i := range p.path {
		size += 1 + len(p.path[i].name)
	}
	if size > maxPointer {
		return "", false
	}
	var b strings.Builder
	for i := range p.path {
		b.WriteByte('/')
		if p.kinds[i] == '[' {
			b.WriteString(strconv.Itoa(p.path[i].index))
		} else {
			b.WriteString(strings.ReplaceAll(strings.ReplaceAll(jsonwire.UnquoteString(p.path[i].name), "~", "~0"), "/", "~1"))
		}
	}
	return b.String(), true
}

// word writes a number or a literal.
func (p *printer) word(i int) int {
	j := i
	for j < len(p.data) && !bytes.ContainsRune([]byte(" \t\r\n,]}"), rune(p.data[j])) {
		j++
	}
	kind := Literal
	if c := p.data[i]; c == '-' || c >= '0' && c <= '9' {
		kind = Number
	}
	if n := p.feed(p.data[i:j], kind, maxString); n < j-i {
		p.skipped(int64(j - i - n))
	}
	return max(j, i+1)
}

func (p *printer) skipped(n int64) {
	p.left += n
	put(p.sheet, " … "+wireview.Size(n)+" not shown ", Remark)
}

// string writes a name or a string.
func (p *printer) string(i int) int {
	end := jsonwire.SkipValue(p.data, i)
	if end <= i+1 {
		return len(p.data)
	}
	text := p.data[i+1 : end-1]
	j := end
	for j < len(p.data) && (p.data[j] == ' ' || p.data[j] == '\t' || p.data[j] == '\r' || p.data[j] == '\n') {
		j++
	}
	kind := String
	if j < len(p.data) && p.data[j] == ':' {
		kind = Name
		if p.depth <= maxIndent && p.depth > 0 {
			p.path[p.depth-1].name = text
			if p.want {
				p.note()
			}
		}
	}
	put(p.sheet, `"`, Punct)
	if kind == Name || !p.blob(text) {
		if n := p.feed(text, kind, maxString); n < len(text) {
			p.skipped(int64(len(text) - n))
		}
	}
	put(p.sheet, `"`, Punct)
	return end
}

// lints marks the lines that findings point to. A pointer to what is not there leads to what should have it.
func (p *printer) lints(list []Lint, event uint64) {
	for i := range list {
		if list[i].Event != event || list[i].Pointer == "" {
			continue
		}
		pointer := list[i].Pointer
		line, ok := p.at[pointer]
		for !ok && pointer != "" {
			pointer = pointer[:max(0, strings.LastIndexByte(pointer, '/'))]
			line, ok = p.at[pointer]
		}
		if line < len(p.lines) {
			p.lines[line].Lints = append(p.lines[line].Lints, i)
		}
	}
}
