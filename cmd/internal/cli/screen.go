package cli

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/term"
)

// writerIsTerminal reports whether w writes to a terminal.
func writerIsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isTerminal(f)
}

// isTerminal reports whether f is a terminal. The file mode doesn't tell: /dev/zero is a character
// device too, and on Windows the console looks like NUL.
func isTerminal(f *os.File) (yes bool) {
	conn, err := f.SyscallConn() // f.Fd would make pipes block
	if err != nil {
		return false
	}
	err = conn.Control(func(fd uintptr) { yes = term.IsTerminal(int(fd)) })
	return err == nil && yes
}

// A screen prints a session. On a terminal, messages are folded to its width and colored. Elsewhere
// each message is one unchanged line, which can be copied and compared.
type screen struct {
	w io.Writer
	// width is the width in columns. Zero doesn't fold.
	width int
	paint paint
	// err is the first write error.
	err error
}

const (
	defaultWidth = 80
	minWidth     = 20
)

// newScreen configures a screen for w and the environment: NO_COLOR (https://no-color.org) and
// TERM=dumb turn colors off, COLUMNS is the width. Windows consoles don't understand colors until
// told to, so they get none.
func newScreen(w io.Writer) *screen {
	s := &screen{w: w}
	if f, ok := w.(*os.File); !ok || !isTerminal(f) {
		return s
	}
	s.width = defaultWidth
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n >= minWidth {
		s.width = n
	}
	s.paint = paint(os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && runtime.GOOS != "windows")
	return s
}

func (s *screen) printf(format string, args ...any) {
	if s.err == nil {
		_, s.err = fmt.Fprintf(s.w, format, args...)
	}
}

// title prints the title of what follows.
func (s *screen) title(text string) { s.printf("\n%s\n", s.paint.in(bold, text)) }

// message prints a message with an arrow for its direction.
func (s *screen) message(color, arrow, line string) {
	if s.width > 0 {
		f := newFolder(s.paint, s.width, 2, 4)
		if strings.HasPrefix(line, "{") {
			for _, unit := range jsonUnits(line, color) {
				f.unit(unit)
			}
		} else {
			f.words(line, color)
		}
		line = f.String()
	}
	s.printf("%s %s\n", s.paint.in(color, arrow), line)
}

// note prints a note about the message before it.
func (s *screen) note(text string) { s.printf("  %s\n", s.fold(text, 2)) }

// line prints a line that belongs to no message.
func (s *screen) line(text string) { s.printf("%s\n", s.fold(text, 0)) }

// fold breaks text between words into indented lines.
func (s *screen) fold(text string, indent int) string {
	if s.width == 0 {
		return text
	}
	f := newFolder(s.paint, s.width, indent, indent)
	f.words(text, "")
	return f.String()
}
