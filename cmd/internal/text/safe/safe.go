// Package safe shows text from peers. Such text reaches terminals, which act on control characters,
// and people, whom invisible and bidirectional characters mislead. The functions show all such
// characters as escape sequences; see package printable.
package safe

import (
	"io"
	"strings"
	"unicode/utf8"

	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/printable"
)

// Text escapes unsafe characters except line breaks and tabs.
func Text(s string) string { return printable.Text(s) }

// Line escapes unsafe characters, including line breaks.
func Line(s string) string { return printable.Line(s) }

// JSON escapes unsafe characters in a JSON text. The value stays the same, because such
// characters occur only in strings.
func JSON(text []byte) []byte { return printable.JSON(text) }

// Clip returns the first n characters of Line(s). Its cost depends on n, not on the length
// of s.
func Clip(s string, n int) string { return clip.Characters(Line(beginning(s, n)), n) }

// ClipText is Clip for text of several lines.
func ClipText(s string, n int) string { return clip.Characters(Text(beginning(s, n)), n) }

// beginning returns at least the first n+1 characters of s if it has them, which is enough to tell
// that it has more than n. Escaping never shortens text.
func beginning(s string, n int) string { return clip.Prefix(s, (n+1)*utf8.UTFMax) }

// FirstLine returns the first non-blank line of s.
func FirstLine(s string) string {
	s = strings.TrimSpace(s)
	line, _, _ := strings.Cut(s, "\n")
	return strings.TrimSpace(line)
}

// A Writer escapes text from peers and writes it to a terminal.
type Writer struct{ W io.Writer }

// Write implements io.Writer. p should end on a character boundary.
func (s Writer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(s.W, Text(strings.ReplaceAll(string(p), "\r\n", "\n"))); err != nil {
		return 0, err
	}
	return len(p), nil
}
