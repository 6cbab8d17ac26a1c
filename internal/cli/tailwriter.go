package cli

import (
	"io"
	"strings"
	"sync"
)

// A tailWriter keeps the end of a server's standard error, for when it fails, and passes it on if it is to be shown. It may be used by many goroutines at
// once.
type tailWriter struct {
	mu   sync.Mutex
	show io.Writer // nil does not
	text []byte
}

const (
	maxTail   = 8 << 10 // bytes that are kept
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
	t.text = append(t.text, p[max(0, len(p)-maxTail):]...)
	t.text = t.text[max(0, len(t.text)-maxTail):]
	if t.show != nil {
		_, _ = t.show.Write(p)
	}
	return len(p), nil
}

// lines are the last lines, escaped.
func (t *tailWriter) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines []string
	for line := range strings.Lines(string(t.text)) {
		if line = strings.TrimRight(line, "\r\n\t "); line != "" {
			lines = append(lines, clipLine(line, tailWidth))
		}
	}
	return lines[max(0, len(lines)-tailLines):]
}
