package stdio

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"
	"unicode/utf8"
)

// LevelTrace is the level of records that show raw messages; it lies below slog.LevelDebug.
const LevelTrace = slog.LevelDebug - 4

// LogOptions are the options of NewLogHandler. The zero value is ready to use.
type LogOptions struct {
	Level    slog.Leveler // lowest level that is written; nil is slog.LevelInfo
	JSON     bool         // write each record as a JSON object, as slog.JSONHandler does
	Time     bool         // begin text with the time; hosts usually stamp the lines themselves. JSON always has it
	MaxLine  int          // bytes of a line; 0 is 8 KiB. What is longer is cut
	MaxQueue int          // bytes that wait while nobody reads; 0 is 256 KiB. Records beyond it are dropped and counted
}

const (
	defaultMaxLine    = 8 << 10
	minMaxLine        = 256
	closeFlushTimeout = time.Second
)

// A LogHandler is a slog.Handler for a server's standard error: one line for each record, of bounded length, with control characters
// escaped, and never blocking for a reader that does not read.
//
// As text, errors begin with "Error: ", records below slog.LevelDebug with "[TRACE] ", the others with "Warning: ", "Info: " or "Debug: ".
// Attributes follow the message as key=value, quoted where they need it.
//
// It may be used by many goroutines at once. Handlers made by WithAttrs and WithGroup share the queue. On Windows, and for writers that are not
// files, lines are written by a goroutine, so call Flush or Close before the process exits.
type LogHandler struct {
	level   slog.Leveler
	time    bool
	maxLine int
	queue   *queue

	prefix  string // of attribute keys: the open groups, each with a dot
	attrs   string // formatted already
	json    slog.Handler
	jsonBuf *lineBuffer // what json writes to
}

// NewLogHandler returns a handler that writes to w, normally os.Stderr. nil options are the defaults.
func NewLogHandler(w io.Writer, opts *LogOptions) *LogHandler {
	var o LogOptions
	if opts != nil {
		o = *opts
	}
	h := &LogHandler{level: o.Level, time: o.Time, maxLine: o.MaxLine}
	if h.level == nil {
		h.level = slog.LevelInfo
	}
	if h.maxLine <= 0 {
		h.maxLine = defaultMaxLine
	}
	h.maxLine = max(h.maxLine, minMaxLine)
	if o.JSON {
		h.jsonBuf = new(lineBuffer)
		h.json = slog.NewJSONHandler(h.jsonBuf, &slog.HandlerOptions{Level: LevelTrace, ReplaceAttr: h.replaceJSON})
	}
	notice := &LogHandler{time: h.time, maxLine: h.maxLine, json: h.json, jsonBuf: h.jsonBuf}
	h.queue = newQueue(w, o.MaxQueue, notice.dropNotice)
	return h
}

// Enabled implements slog.Handler.
func (h *LogHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.level.Level()
}

// Handle implements slog.Handler. It always returns nil: nobody could do anything about a log that cannot be written.
func (h *LogHandler) Handle(_ context.Context, r slog.Record) error {
	buf := linePool.Get().(*[]byte)
	*buf = h.append((*buf)[:0], r)
	h.queue.Write(*buf)
	if cap(*buf) <= 4*defaultMaxLine {
		linePool.Put(buf)
	}
	return nil
}

var linePool = sync.Pool{New: func() any { return new([]byte) }}

// append appends the record's line, newline included.
func (h *LogHandler) append(dst []byte, r slog.Record) []byte {
	start := len(dst)
	if h.json != nil {
		return append(dst, h.jsonLine(r)...)
	}
	dst = h.appendText(dst, r)
	return append(truncate(dst, start, h.maxLine-1), '\n')
}

// WithAttrs implements slog.Handler.
func (h *LogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	if h.json != nil {
		c.json = h.json.WithAttrs(attrs)
		return &c
	}
	var b []byte
	for _, a := range attrs {
		b = appendAttr(b, h.prefix, a, h.maxLine)
	}
	c.attrs += string(b)
	return &c
}

// WithGroup implements slog.Handler.
func (h *LogHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	c := *h
	c.prefix += name + "."
	if h.json != nil {
		c.json = h.json.WithGroup(name)
	}
	return &c
}

// Flush waits until everything was written or ctx ends, which it then returns the cause of.
func (h *LogHandler) Flush(ctx context.Context) error { return h.queue.flush(ctx) }

// Dropped returns how many records were dropped because nobody read the log, or because writing it failed.
func (h *LogHandler) Dropped() int { return h.queue.dropCount() }

// Close waits up to a second for everything to be written, and gives up what is left then. Later records are dropped. It does not close the
// writer that NewLogHandler was given.
func (h *LogHandler) Close() error { return h.queue.closeWithin(closeFlushTimeout) }

func (h *LogHandler) dropNotice(n int) []byte {
	return h.append(nil, slog.NewRecord(time.Now(), slog.LevelWarn, fmt.Sprintf("%d log records were dropped because nobody read the log", n), 0))
}

// A lineBuffer collects what slog.JSONHandler writes, a line at a time.
type lineBuffer struct {
	mu sync.Mutex
	b  []byte
}

// Write is called with the lock held.
func (l *lineBuffer) Write(p []byte) (int, error) {
	l.b = append(l.b, p...)
	return len(p), nil
}

// jsonLine returns a copy of the record's line. One that is too long in spite of cut strings loses its attributes; an escaped
// byte takes six.
func (h *LogHandler) jsonLine(r slog.Record) []byte {
	l := h.jsonBuf
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b = l.b[:0]
	h.json.Handle(context.Background(), r)
	if len(l.b) > h.maxLine {
		size := len(l.b)
		l.b = l.b[:0]
		short := slog.NewRecord(r.Time, r.Level, string(truncate([]byte(r.Message), 0, h.maxLine/8)), 0)
		short.AddAttrs(slog.Int("cut", size))
		slog.NewJSONHandler(l, &slog.HandlerOptions{Level: LevelTrace, ReplaceAttr: h.replaceJSON}).Handle(context.Background(), short)
	}
	line := append([]byte(nil), l.b...)
	if cap(l.b) > 4*defaultMaxLine {
		l.b = nil
	}
	return line
}

// replaceJSON names our level and cuts long strings.
func (h *LogHandler) replaceJSON(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.LevelKey {
		if level, ok := a.Value.Any().(slog.Level); ok && level < slog.LevelDebug {
			return slog.String(slog.LevelKey, "TRACE")
		}
	}
	limit := h.maxLine / 2
	if a.Value.Kind() == slog.KindString && len(a.Value.String()) > limit {
		return slog.String(a.Key, string(truncate([]byte(a.Value.String()), 0, limit)))
	}
	return a
}

// truncate shortens dst[start:] to at most limit bytes and says so in them. It does not split a character.
func truncate(dst []byte, start, limit int) []byte {
	const mark = "… (cut)"
	if len(dst)-start <= limit {
		return dst
	}
	end := start + limit - len(mark)
	for end > start && !utf8.RuneStart(dst[end]) {
		end--
	}
	return append(dst[:end], mark...)
}
