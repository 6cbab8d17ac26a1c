package kit

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// WriterIsTerminal reports whether w writes to a terminal.
func WriterIsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && IsTerminal(f)
}

// IsTerminal reports whether f is a terminal. The file mode does not show it: /dev/zero is a
// character device too, and on Windows the console looks like NUL.
func IsTerminal(f *os.File) (yes bool) {
	conn, err := f.SyscallConn() // f.Fd would make pipes block
	if err != nil {
		return false
	}
	err = conn.Control(func(fd uintptr) { yes = term.IsTerminal(int(fd)) })
	return err == nil && yes
}

// A Screen prints a session. On a terminal, messages are folded to its width and colored. Elsewhere
// each message is one unchanged line, which can be copied and compared.
type Screen struct {
	w io.Writer
	// width is the width in columns. Zero doesn't fold.
	width int
	Paint Paint
	// Err is the first write error.
	Err error
}

const (
	defaultWidth = 80
	MinWidth     = 20
)

// NewScreen configures a screen for w and the environment: NO_COLOR (https://no-color.org) and
// TERM=dumb turn colors off, COLUMNS is the width. Windows consoles don't understand colors until
// told to, so they get none.
func NewScreen(w io.Writer) *Screen {
	s := &Screen{w: w}
	if f, ok := w.(*os.File); !ok || !IsTerminal(f) {
		return s
	}
	s.width = defaultWidth
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n >= MinWidth {
		s.width = n
	}
	s.Paint = Paint(os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && runtime.GOOS != "windows")
	return s
}

// Printf prints text unchanged, unless a write has failed.
func (s *Screen) Printf(format string, args ...any) {
	if s.Err == nil {
		_, s.Err = fmt.Fprintf(s.w, format, args...)
	}
}

// Title prints the title of what follows.
func (s *Screen) Title(text string) { s.Printf("\n%s\n", s.Paint.In(Bold, text)) }

// Message prints a message with an arrow for its direction.
func (s *Screen) Message(color, arrow, line string) {
	if s.width > 0 {
		f := NewFolder(s.Paint, s.width, 2, 4)
		if strings.HasPrefix(line, "{") {
			for _, unit := range jsonUnits(line, color) {
				f.unit(unit)
			}
		} else {
			f.Words(line, color)
		}
		line = f.String()
	}
	s.Printf("%s %s\n", s.Paint.In(color, arrow), line)
}

// Note prints a note about the message before it.
func (s *Screen) Note(text string) { s.Printf("  %s\n", s.fold(text, 2)) }

// Line prints a line that belongs to no message.
func (s *Screen) Line(text string) { s.Printf("%s\n", s.fold(text, 0)) }

// fold breaks text between words into indented lines.
func (s *Screen) fold(text string, indent int) string {
	if s.width == 0 {
		return text
	}
	f := NewFolder(s.Paint, s.width, indent, indent)
	f.Words(text, "")
	return f.String()
}

// A Paint colors text for a terminal, or leaves it unchanged if it is false.
type Paint bool

// The styles, as parameters of the SGR escape sequence.
const (
	Bold   = "1"
	Dim    = "2"
	Red    = "31"
	Green  = "32"
	Yellow = "33"
	Cyan   = "36"
)

// In returns text with a style.
func (p Paint) In(style, text string) string {
	if !p || style == "" || text == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// A piece is a part of a line with one style.
type piece struct{ text, style string }

// dims returns a dim style for text that is the same in every message. color may be empty.
func dims(color string) string { return strings.TrimSuffix(Dim+";"+color, ";") }

// jsonUnits splits a line into styled units that should not be broken across lines. Names and
// punctuation are dim, values are not, and id and method, which identify a message, are bold. The
// line need not be JSON.
func jsonUnits(line, color string) [][]piece {
	var units [][]piece
	var unit []piece
	depth, name := 0, ""
	for line != "" {
		n := tokenLen(line)
		token, rest := line[:n], line[n:]
		style := dims(color)
		switch isName := strings.HasPrefix(rest, ":"); {
		case isName:
			name, token, rest = token, token+":", rest[1:]
		case strings.Contains("{[", token):
			depth++
		case strings.Contains("}]", token):
			depth--
		case token == ",", depth == 1 && name == `"jsonrpc"`:
		case depth == 1 && (name == `"id"` || name == `"method"`):
			style = Bold + ";" + color
		default:
			style = color
		}
		unit = append(unit, piece{token, style})
		if strings.Contains("{[,", token) {
			units, unit = append(units, unit), nil
		}
		line = rest
	}
	return append(units, unit)
}

// tokenLen returns the length of the JSON token at the start of s. s must not be empty.
func tokenLen(s string) int {
	const punctuation = "{}[],:"
	if strings.IndexByte(punctuation, s[0]) >= 0 {
		return 1
	}
	if s[0] != '"' {
		if n := strings.IndexAny(s, punctuation+`"`); n > 0 {
			return n
		}
		return len(s)
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(s)
}

// A Folder breaks a line for a terminal. Continuation lines are indented.
type Folder struct {
	paint         Paint
	width, indent int

	b   strings.Builder
	col int
	// same is not yet in b: more text of the same style may follow.
	same piece
}

// NewFolder returns a Folder for a line that starts at column col.
func NewFolder(p Paint, width, col, indent int) *Folder {
	return &Folder{paint: p, width: width, indent: indent, col: col}
}

// unit adds pieces and keeps them on one line if they fit.
func (f *Folder) unit(pieces []piece) {
	size := 0
	for _, p := range pieces {
		size += utf8.RuneCountInString(p.text)
	}
	if size <= f.width-f.indent && f.col+size > f.width {
		f.newline()
	}
	for _, p := range pieces {
		f.Words(p.text, p.style)
	}
}

// Words adds text that may be broken after spaces, and anywhere in a word longer than a line.
func (f *Folder) Words(text, style string) {
	for word := range strings.SplitAfterSeq(text, " ") {
		size := utf8.RuneCountInString(strings.TrimSuffix(word, " "))
		if f.col+size > f.width && f.col > f.indent {
			f.newline()
		}
		for _, r := range word {
			switch {
			case f.col < f.width:
			case r == ' ':
				// The margin replaces the space.
				continue
			default:
				f.newline()
			}
			f.add(r, style)
		}
	}
}

func (f *Folder) add(r rune, style string) {
	if style != f.same.style {
		f.flush()
		f.same.style = style
	}
	f.same.text += string(r)
	f.col++
}

func (f *Folder) newline() {
	f.same.text = strings.TrimRight(f.same.text, " ")
	f.flush()
	f.b.WriteString("\n" + strings.Repeat(" ", f.indent))
	f.col = f.indent
}

func (f *Folder) flush() {
	f.b.WriteString(f.paint.In(f.same.style, f.same.text))
	f.same.text = ""
}

// String returns the lines without the indent of the first.
func (f *Folder) String() string {
	f.flush()
	return f.b.String()
}
