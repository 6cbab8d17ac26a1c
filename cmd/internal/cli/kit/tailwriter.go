package kit

import (
	"fmt"
	"io"
	"strings"
	"sync"

	"mcpwire/cmd/internal/text/safe"
	"mcpwire/internal/text/lazyregexp"
)

// A TailWriter keeps the beginning and the end of a server's standard error, for error messages,
// and can pass it on. It is safe for concurrent use.
type TailWriter struct {
	mu sync.Mutex
	// show is where the text is passed on to. Nil discards it.
	show io.Writer
	head []byte
	// text is the end, after head.
	text []byte
	// cut is true if bytes between head and text were dropped.
	cut bool
}

const (
	// maxHead is the number of bytes kept of the beginning.
	maxHead = 8 << 10
	// maxTail is the number of bytes kept of the end.
	maxTail = 8 << 10
	// tailLines is the number of lines shown in a message.
	tailLines = 10
	// tailWidth is the number of characters shown of each.
	tailWidth = 200
)

// NewTailWriter returns a TailWriter that also writes to show, unless that is nil.
func NewTailWriter(show io.Writer) *TailWriter {
	if show != nil && WriterIsTerminal(show) {
		show = safe.Writer{W: show}
	}
	return &TailWriter{show: show}
}

// Write implements io.Writer. It never fails, because a server must not fail for its standard
// error.
func (t *TailWriter) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	rest := p[min(len(p), maxHead-len(t.head)):]
	t.head = append(t.head, p[:len(p)-len(rest)]...)
	t.cut = t.cut || len(t.text)+len(rest) > maxTail
	t.text = append(t.text, rest[max(0, len(rest)-maxTail):]...)
	t.text = t.text[max(0, len(t.text)-maxTail):]
	if t.show != nil {
		_, _ = t.show.Write(p)
	}
	return len(p), nil
}

// Lines returns the important lines, escaped.
func (t *TailWriter) Lines() []string {
	var lines []string
	for _, line := range importantLines(t.All()) {
		lines = append(lines, safe.Clip(line, tailWidth))
	}
	return lines
}

// colors matches the sequences that set colors and styles on a terminal.
var colors = lazyregexp.New(`\x1b\[[0-9;:]*m`)

// withoutColors removes colors and styles from text.
func withoutColors(s string) string {
	if strings.IndexByte(s, 0x1b) < 0 {
		return s
	}
	return colors().ReplaceAllString(s, "")
}

// All returns all kept lines that are not blank, without colors.
func (t *TailWriter) All() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	parts := []string{string(t.head) + string(t.text)}
	if t.cut {
		parts = []string{string(t.head), "…", string(t.text)}
	}
	var lines []string
	for _, part := range parts {
		for line := range strings.Lines(withoutColors(part)) {
			if line = strings.TrimRight(line, "\r\n\t "); line != "" {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

var (
	troubleLine = lazyregexp.New(`(?i)\b(error|fatal|panic|exception|denied|missing|required|not set|not found|must|failed|failure|cannot|can't|unable|invalid)\b|[a-z](Error|Exception)\b`)
	// usageLine matches lines of usage texts, source code and stack traces, which explain nothing.
	usageLine = lazyregexp.New(`new [A-Za-z]*Error\(|^\s*(-{1,2}[A-Za-z]|[Uu]sage\b|at |File "|\.\.\.|\^|[}\])])`)
)

// isErrorLine reports whether a line says that something went wrong.
func isErrorLine(line string) bool {
	return troubleLine().MatchString(line) && !usageLine().MatchString(line)
}

// importantLines selects the lines of a standard error that say why a server failed: the first, the
// last, and those about errors. It replaces omitted lines by their number.
func importantLines(lines []string) []string {
	if len(lines) <= tailLines {
		return lines
	}
	const first, last = 2, 2
	keep := make([]bool, len(lines))
	for i := range first {
		keep[i] = true
	}
	for i := range last {
		keep[len(lines)-1-i] = true
	}
	left := tailLines - first - last
	for i, line := range lines {
		if left > 0 && !keep[i] && isErrorLine(line) {
			keep[i] = true
			left--
		}
	}
	var chosen []string
	skipped := 0
	for i, line := range lines {
		if !keep[i] {
			skipped++
			continue
		}
		if skipped > 0 {
			lines := "lines"
			if skipped == 1 {
				lines = "line"
			}
			chosen = append(chosen, fmt.Sprintf("… (%d %s)", skipped, lines))
			skipped = 0
		}
		chosen = append(chosen, line)
	}
	return chosen
}
