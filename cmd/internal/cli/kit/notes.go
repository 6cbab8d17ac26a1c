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

	"mcpwire/cmd/internal/text/safe"
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
