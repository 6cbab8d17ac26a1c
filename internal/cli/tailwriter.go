package cli

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
)

// A tailWriter keeps the beginning and the end of a server's standard error, for when it fails, and
// passes it on if it is to be shown. It may be used by many goroutines at once.
type tailWriter struct {
	mu   sync.Mutex
	show io.Writer // nil does not
	head []byte
	text []byte // behind head
	cut  bool   // something between the two is gone
}

const (
	maxHead   = 8 << 10 // bytes that are kept of the beginning
	maxTail   = 8 << 10 // and of the end
	tailLines = 10      // that a message shows
	tailWidth = 200     // characters of each
)

// newTailWriter returns one that passes on to show, which may be nil.
func newTailWriter(show io.Writer) *tailWriter {
	if show != nil && writerIsTerminal(show) {
		show = safeWriter{show}
	}
	return &tailWriter{show: show}
}

// Write implements io.Writer. It never fails: what a server has to say besides is not worth failing for.
func (t *tailWriter) Write(p []byte) (int, error) {
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

// lines are those that matter, escaped.
func (t *tailWriter) lines() []string {
	var lines []string
	for _, line := range importantLines(t.all()) {
		lines = append(lines, clipLine(line, tailWidth))
	}
	return lines
}

// all are all lines that were kept and have something in them.
func (t *tailWriter) all() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	parts := []string{string(t.head) + string(t.text)}
	if t.cut {
		parts = []string{string(t.head), "…", string(t.text)}
	}
	var lines []string
	for _, part := range parts {
		for line := range strings.Lines(part) {
			if line = strings.TrimRight(line, "\r\n\t "); line != "" {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

var (
	troubleLine = regexp.MustCompile(`(?i)\b(error|fatal|panic|exception|denied|missing|required|not set|not found|must|failed|failure|cannot|can't|unable|invalid)\b|[a-z](Error|Exception)\b`)
	// Lines of usage texts, of source code and of stack traces, which tell nothing by themselves.
	usageLine = regexp.MustCompile(`new [A-Za-z]*Error\(|^\s*(-{1,2}[A-Za-z]|[Uu]sage\b|at |File "|\.\.\.|\^|[}\])])`)
)

// isTrouble reports whether a line says that something went wrong.
func isTrouble(line string) bool {
	return troubleLine.MatchString(line) && !usageLine.MatchString(line)
}

// importantLines chooses the lines of a standard error that say why a server failed: the first ones,
// the last ones, and those that speak of an error. What is left out is counted.
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
		if left > 0 && !keep[i] && isTrouble(line) {
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
