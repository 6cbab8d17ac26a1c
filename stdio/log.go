package stdio

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
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

// appendText appends a record as text, without the newline.
func (h *LogHandler) appendText(dst []byte, r slog.Record) []byte {
	dst = append(dst, levelPrefix(r.Level)...)
	if h.time && !r.Time.IsZero() {
		dst = append(r.Time.AppendFormat(dst, "2006-01-02T15:04:05.000Z07:00"), ' ')
	}
	dst = appendEscaped(dst, r.Message, h.maxLine)
	dst = append(dst, h.attrs...)
	r.Attrs(func(a slog.Attr) bool {
		dst = appendAttr(dst, h.prefix, a, h.maxLine)
		return len(dst) < 2*h.maxLine // the rest would be cut anyway
	})
	return dst
}

// levelPrefix is what a line begins with.
func levelPrefix(l slog.Level) string {
	switch {
	case l < slog.LevelDebug:
		return "[TRACE] "
	case l < slog.LevelInfo:
		return "Debug: "
	case l < slog.LevelWarn:
		return "Info: "
	case l < slog.LevelError:
		return "Warning: "
	default:
		return "Error: "
	}
}

// appendAttr appends " key=value", for a group one of them for each member. limit bounds how much of a text is looked at.
func appendAttr(dst []byte, prefix string, a slog.Attr, limit int) []byte {
	a.Value = a.Value.Resolve()
	if a.Equal(slog.Attr{}) {
		return dst
	}
	if a.Value.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, m := range a.Value.Group() {
			dst = appendAttr(dst, prefix, m, limit)
		}
		return dst
	}
	dst = append(dst, ' ')
	dst = appendEscaped(dst, prefix, limit)
	dst = appendEscaped(dst, a.Key, limit)
	dst = append(dst, '=')
	return appendValue(dst, a.Value, limit)
}

// appendValue appends a value as text. A value whose own method panics says so, as in package fmt.
func appendValue(dst []byte, v slog.Value, limit int) (out []byte) {
	defer func() {
		if p := recover(); p != nil {
			out = append(dst, "!PANIC"...)
		}
	}()
	switch v.Kind() {
	case slog.KindString:
		return appendQuoted(dst, v.String(), limit)
	case slog.KindInt64:
		return strconv.AppendInt(dst, v.Int64(), 10)
	case slog.KindUint64:
		return strconv.AppendUint(dst, v.Uint64(), 10)
	case slog.KindBool:
		return strconv.AppendBool(dst, v.Bool())
	case slog.KindTime:
		return v.Time().AppendFormat(dst, time.RFC3339Nano)
	}
	switch x := v.Any().(type) {
	case []byte:
		return appendQuoted(dst, string(x[:min(len(x), limit+1)]), limit)
	case error:
		return appendQuoted(dst, x.Error(), limit)
	default:
		return appendQuoted(dst, v.String(), limit)
	}
}

// appendQuoted appends s, quoted unless it is a plain word.
func appendQuoted(dst []byte, s string, limit int) []byte {
	s = clip(s, limit)
	for i := 0; i < len(s); i++ {
		if c := s[i]; c <= ' ' || c == '=' || c == '"' || c >= 0x7f {
			return strconv.AppendQuote(dst, s)
		}
	}
	if s == "" {
		return append(dst, `""`...)
	}
	return append(dst, s...)
}

// appendEscaped appends s with whatever is not printable escaped: line ends, terminal controls, bytes that are not UTF-8, and marks that
// reorder text.
func appendEscaped(dst []byte, s string, limit int) []byte {
	s = clip(s, limit)
	for len(s) > 0 {
		if c := s[0]; c >= ' ' && c < 0x7f {
			dst = append(dst, c)
			s = s[1:]
			continue
		}
		r, n := utf8.DecodeRuneInString(s)
		if strconv.IsPrint(r) && (r != utf8.RuneError || n > 1) {
			dst = append(dst, s[:n]...)
		} else {
			quoted := strconv.AppendQuote(nil, s[:n])
			dst = append(dst, quoted[1:len(quoted)-1]...)
		}
		s = s[n:]
	}
	return dst
}

// clip bounds s to a little more than limit bytes, so that a line made of it is known to be too long and cut.
func clip(s string, limit int) string { return s[:min(len(s), limit+1)] }
