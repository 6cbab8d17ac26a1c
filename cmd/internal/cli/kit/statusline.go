package kit

import (
	"fmt"
	"io"
	"sync"
	"time"

	"mcpwire/cmd/internal/trace"
)

// statusDelay is how long a step takes before the status line shows it.
const statusDelay = 300 * time.Millisecond

// A StatusLine is the last line on the terminal of standard error. It shows the current step and,
// from one second on, how long the command has been working without output. Output on any stream
// must come after clear or through print. A nil StatusLine shows nothing. A StatusLine is safe for
// concurrent use.
type StatusLine struct {
	W io.Writer
	// width is the number of columns. Zero means that of the terminal.
	width int

	mu sync.Mutex
	// text is the current step. It must be escaped.
	text string
	// began is when the first step since the last clear began. It is zero without a step.
	began time.Time
	// timer draws the line after statusDelay, and then each second.
	timer *time.Timer
	shown bool
}

// Step sets the current step. Its arguments must be escaped. The line appears after statusDelay.
func (s *StatusLine) Step(format string, args ...any) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = fmt.Sprintf(format, args...)
	switch {
	case s.began.IsZero():
		s.began = time.Now()
		s.timer = time.AfterFunc(statusDelay, s.tick)
	case s.shown:
		s.drawLocked()
	}
}

// show shows a text at once, until the next step or clear.
func (s *StatusLine) show(text string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopLocked()
	s.writeLocked(text)
}

// Clear ends the current step and erases the line.
func (s *StatusLine) Clear() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopLocked()
	s.eraseLocked()
}

// print writes text above the line, which stays.
func (s *StatusLine) print(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	again := s.shown && !s.began.IsZero()
	s.eraseLocked()
	_, _ = io.WriteString(s.W, text)
	if again {
		s.drawLocked()
	}
}

func (s *StatusLine) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := time.Since(s.began)
	if s.began.IsZero() || since < statusDelay {
		return // cleared meanwhile
	}
	s.drawLocked()
	s.timer.Reset(time.Second - since%time.Second)
}

func (s *StatusLine) drawLocked() {
	text := s.text
	if n := int(time.Since(s.began) / time.Second); n > 0 {
		text += fmt.Sprintf(" · %d s", n)
	}
	s.writeLocked(text)
}

// writeLocked replaces the line. Nothing can be done about write errors.
func (s *StatusLine) writeLocked(text string) {
	width := s.width
	if width == 0 {
		width = max(MinWidth, TerminalWidth(s.W))
	}
	s.shown = true
	_, _ = io.WriteString(s.W, "\r\x1b[K"+trace.Truncate(text, width-1))
}

func (s *StatusLine) stopLocked() {
	s.began = time.Time{}
	if s.timer != nil {
		s.timer.Stop()
	}
}

func (s *StatusLine) eraseLocked() {
	if s.shown {
		s.shown = false
		_, _ = io.WriteString(s.W, "\r\x1b[K")
	}
}
