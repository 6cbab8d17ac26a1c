package cli

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/printable"
)

// Text from peers reaches terminals, which act on control characters, and people, whom invisible
// and bidirectional characters mislead. These functions show all such characters as escape
// sequences; see package printable.

// safeText escapes unsafe characters except line breaks and tabs.
func safeText(s string) string { return printable.Text(s) }

// safeLine escapes unsafe characters, including line breaks.
func safeLine(s string) string { return printable.Line(s) }

// safeJSON escapes unsafe characters in a JSON text. The value stays the same, because such
// characters occur only in strings.
func safeJSON(text []byte) []byte { return printable.JSON(text) }

// clipLine returns the first n characters of safeLine(s). Its cost depends on n, not on the length
// of s.
func clipLine(s string, n int) string { return clip.Characters(safeLine(beginning(s, n)), n) }

// clipText is clipLine for text of several lines.
func clipText(s string, n int) string { return clip.Characters(safeText(beginning(s, n)), n) }

// beginning returns at least the first n+1 characters of s if it has them, which is enough to tell
// that it has more than n. Escaping never shortens text.
func beginning(s string, n int) string { return clip.Prefix(s, (n+1)*utf8.UTFMax) }

// firstLine returns the first non-blank line of s.
func firstLine(s string) string {
	s = strings.TrimSpace(s)
	line, _, _ := strings.Cut(s, "\n")
	return strings.TrimSpace(line)
}

// writerIsTerminal reports whether w writes to a terminal.
func writerIsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isTerminal(f)
}

// A safeWriter escapes text from peers and writes it to a terminal.
type safeWriter struct{ w io.Writer }

// Write implements io.Writer. p should end on a character boundary.
func (s safeWriter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(s.w, safeText(strings.ReplaceAll(string(p), "\r\n", "\n"))); err != nil {
		return 0, err
	}
	return len(p), nil
}
