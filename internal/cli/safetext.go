package cli

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

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

// clip cuts s after n characters.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	// cut is where the last character that fits begins.
	cut := 0
	for i := range s {
		switch {
		case n == 1:
			cut = i
		case n == 0:
			return s[:cut] + "…"
		}
		n--
	}
	return s
}

// clipLine is clip of safeLine. Its cost depends on n, not on the length of s.
func clipLine(s string, n int) string { return clip(safeLine(beginning(s, n)), n) }

// clipText is clipLine for text of several lines.
func clipText(s string, n int) string { return clip(safeText(beginning(s, n)), n) }

// beginning returns at least the first n+1 characters of s if it has them, which is enough to tell
// that it has more than n. Escaping never shortens text.
func beginning(s string, n int) string {
	most := (n + 1) * utf8.UTFMax
	if len(s) <= most {
		return s
	}
	for i := range utf8.UTFMax {
		if utf8.RuneStart(s[most-i]) {
			return s[:most-i]
		}
	}
	return s[:most]
}

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
