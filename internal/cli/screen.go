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

// isTerminal reports whether f is a terminal. The mode of a file does not tell: /dev/zero is a character
// device too, and on Windows the console looks like NUL.
func isTerminal(f *os.File) (yes bool) {
	conn, err := f.SyscallConn() // f.Fd would have a pipe block from now on
	if err != nil {
		return false
	}
	err = conn.Control(func(fd uintptr) { yes = term.IsTerminal(int(fd)) })
	return err == nil && yes
}

// A screen is where a session is shown. On a terminal messages are folded to its width, and coloured; anything else gets each as the line it is,
// so that it can be copied and compared.
type screen struct {
	w     io.Writer
	width int // 0 does not fold
	paint paint
	err   error // the first one
}

const (
	defaultWidth = 80
	minWidth     = 20
)

// newScreen decides by where the text goes and by the environment: NO_COLOR (https://no-color.org) and TERM=dumb turn colours off, COLUMNS is
// the width. Consoles of Windows do not understand colours before they are told to, so they get none.
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

// message prints a message that crossed, with an arrow for its direction.
func (s *screen) message(colour, arrow, line string) {
	if s.width > 0 {
		f := newFolder(s.paint, s.width, 2, 4)
		if strings.HasPrefix(line, "{") {
			for _, unit := range jsonUnits(line, colour) {
				f.unit(unit)
			}
		} else {
			f.words(line, colour)
		}
		line = f.String()
	}
	s.printf("%s %s\n", s.paint.in(colour, arrow), line)
}

// note prints what there is to say about the message before it.
func (s *screen) note(text string) { s.printf("  %s\n", s.fold(text, 2)) }

// line prints a line that belongs to no message.
func (s *screen) line(text string) { s.printf("%s\n", s.fold(text, 0)) }

// fold breaks a text between words, for lines that are indented.
func (s *screen) fold(text string, indent int) string {
	if s.width == 0 {
		return text
	}
	f := newFolder(s.paint, s.width, indent, indent)
	f.words(text, "")
	return f.String()
}

// A statusLine is a line on a terminal that says what is being done, until it is cleared. A nil one
// shows nothing.
type statusLine struct {
	w     io.Writer
	width int
	shown bool
}

// newStatusLine returns a line at the end of w; nil if that is no terminal that can erase one.
func newStatusLine(w io.Writer) *statusLine {
	if !writerIsTerminal(w) || os.Getenv("TERM") == "dumb" || runtime.GOOS == "windows" {
		return nil
	}
	return &statusLine{w: w, width: newScreen(w).width}
}

// show puts a text, which is safe to show, into the place of what is there. It is not worth failing for.
func (s *statusLine) show(text string) {
	if s == nil {
		return
	}
	s.shown = true
	_, _ = io.WriteString(s.w, "\r\x1b[K"+cutColumns(text, s.width-1))
}

// clear erases the line.
func (s *statusLine) clear() {
	if s != nil && s.shown {
		s.shown = false
		_, _ = io.WriteString(s.w, "\r\x1b[K")
	}
}
