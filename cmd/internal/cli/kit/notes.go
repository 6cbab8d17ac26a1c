package kit

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/mcp"
)

// Notes prints to standard error while a command runs: progress, log messages, warnings, and on a
// terminal the current step. It is safe for concurrent use.
type Notes struct {
	mu sync.Mutex
	W  io.Writer
	// Status shows progress and steps. It is nil without a terminal.
	Status *StatusLine
	// least is the lowest level of log messages that are shown.
	least mcp.LoggingLevel
}

// NewNotes returns notes for a command. They show log messages from the level warning on.
func NewNotes(e *Env) *Notes {
	return &Notes{W: e.Stderr, Status: e.StatusLine(), least: mcp.LevelWarning}
}

// Show sets the lowest level of log messages that are shown. The default is warning.
func (n *Notes) Show(least mcp.LoggingLevel) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.least = least
}

// shows reports whether log messages of a level are shown.
func (n *Notes) shows(level mcp.LoggingLevel) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return level >= n.least || level == mcp.LevelNone
}

// Linef prints a line. Arguments that come from the server must be escaped; see [safe.Line].
func (n *Notes) Linef(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.Status != nil {
		n.Status.print(fmt.Sprintf(format+"\n", args...))
		return
	}
	fmt.Fprintf(n.W, format+"\n", args...)
}

// Warnf prints a warning.
func (n *Notes) Warnf(format string, args ...any) { n.Linef("warning: "+format, args...) }

// A Warner is a slog.Handler that prints the warnings of a client. The others are reported by the
// commands: what a result lacks, and the output of the server that is not a message.
type Warner struct{ Notes *Notes }

// Enabled implements [slog.Handler].
func (w Warner) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle implements [slog.Handler].
func (w Warner) Handle(_ context.Context, r slog.Record) error {
	text, reported := r.Message, strings.HasPrefix(r.Message, "invalid ") || r.Message == "connection lost"
	r.Attrs(func(a slog.Attr) bool {
		text += fmt.Sprintf(", %s: %v", a.Key, a.Value)
		reported = reported || a.Key == "method" && !strings.HasSuffix(a.Value.String(), "/list")
		return true
	})
	if !reported {
		w.Notes.Warnf("%s", safe.Clip(text, 500))
	}
	return nil
}

// WithAttrs implements [slog.Handler].
func (w Warner) WithAttrs([]slog.Attr) slog.Handler { return w }

// WithGroup implements [slog.Handler].
func (w Warner) WithGroup(string) slog.Handler { return w }

// Clear removes progress and the current step from the terminal.
func (n *Notes) Clear() { n.Status.Clear() }

// Progress shows the progress of a call.
func (n *Notes) Progress(p *mcp.ProgressNotificationParams) {
	n.mu.Lock()
	defer n.mu.Unlock()
	text := progressText(p.Progress, p.Total, p.Message)
	if n.Status == nil {
		fmt.Fprintf(n.W, "progress %s\n", text)
		return
	}
	n.Status.show(progressBar(p.Progress, p.Total) + text)
}

func progressText(done float64, total *float64, message string) string {
	text := strconv.FormatFloat(done, 'g', -1, 64)
	if total != nil {
		text += "/" + strconv.FormatFloat(*total, 'g', -1, 64)
	}
	if message != "" {
		text += " " + safe.Clip(message, 200)
	}
	return text
}

const barWidth = 24

// progressBar draws the bar. It returns "" if the total is unknown.
func progressBar(done float64, total *float64) string {
	if total == nil || *total <= 0 || done < 0 {
		return ""
	}
	full := int(min(done / *total, 1) * barWidth)
	return "[" + strings.Repeat("#", full) + strings.Repeat("-", barWidth-full) + "] "
}

// LogParams shows the log message in the parameters of a notification.
func (n *Notes) LogParams(params json.RawMessage) {
	var p mcp.LoggingMessageNotificationParams
	if p.UnmarshalJSON(params) == nil && n.shows(p.Level) {
		n.log(p)
	}
}

// log shows a log message of the server.
func (n *Notes) log(p mcp.LoggingMessageNotificationParams) {
	text := string(p.Data)
	if len(text) > 0 && text[0] == '"' {
		text = jsonwire.Text(p.Data)
	} else {
		text = string(jsonwire.AppendCompact(nil, p.Data))
	}
	if p.Logger != "" {
		text = p.Logger + ": " + text
	}
	n.Linef("[%v] %s", p.Level, safe.Clip(text, 4000))
}

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
