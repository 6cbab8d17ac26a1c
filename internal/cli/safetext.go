package cli

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"mcpwire/internal/text/printable"
)

// What peers say is shown on terminals, which do as control characters tell them, and to people, whom invisible characters and those that change the
// direction of writing mislead. Everything of the kind is shown as an escape sequence: see package printable.

// safeText escapes what is not safe, but leaves line breaks and tabs.
func safeText(s string) string { return printable.Text(s) }

// safeLine escapes what is not safe, and what would begin another line.
func safeLine(s string) string { return printable.Line(s) }

// safeJSON escapes in a JSON text what is not safe in it. The text stays the same value: such characters stand in strings only.
func safeJSON(text []byte) []byte { return printable.JSON(text) }

// clip cuts a text that is longer than n characters.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	cut := 0 // where the last character that there is room for begins
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

// clipLine is what safeLine makes of a text, and clip of that. It costs what is shown, not what the peer said.
func clipLine(s string, n int) string { return clip(safeLine(beginning(s, n)), n) }

// clipText is clipLine for text of several lines.
func clipText(s string, n int) string { return clip(safeText(beginning(s, n)), n) }

// beginning returns at least the first n+1 characters of a text that has them: enough to tell that it has more than n. Nothing gets shorter by escaping.
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

// firstLine is the first line of a text that has anything in it.
func firstLine(s string) string {
	s = strings.TrimSpace(s)
	line, _, _ := strings.Cut(s, "\n")
	return strings.TrimSpace(line)
}

// writerIsTerminal reports whether what is written to w goes to a terminal.
func writerIsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isTerminal(f)
}

// A safeWriter writes text of others to a terminal.
type safeWriter struct{ w io.Writer }

// Write implements io.Writer. p should end where a character does.
func (s safeWriter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(s.w, safeText(strings.ReplaceAll(string(p), "\r\n", "\n"))); err != nil {
		return 0, err
	}
	return len(p), nil
}
