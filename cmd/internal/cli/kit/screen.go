package kit

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/term"
)

// WriterIsTerminal reports whether w writes to a terminal.
func WriterIsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && IsTerminal(f)
}

// IsTerminal reports whether f is a terminal. The file mode does not show it: /dev/zero is a character
// device too, and on Windows the console looks like NUL.
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
