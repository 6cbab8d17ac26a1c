package stdio

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"mcpwire/internal/base/defaults"
	"mcpwire/internal/text/clip"
)

// LevelTrace is the level of records with raw messages. It is below slog.LevelDebug.
const LevelTrace = slog.LevelDebug - 4

// LogOptions are the options of NewLogHandler. The zero value is ready to use.
type LogOptions struct {
	// Level is the lowest level that is written. Nil means slog.LevelInfo.
	Level slog.Leveler
	// JSON writes each record as a JSON object, like slog.JSONHandler.
	JSON bool
	// Time begins each line of text with the time, which hosts usually add themselves. JSON always
	// has it.
	Time bool
	// MaxLine limits a line, in bytes. Longer lines are cut. Zero means 8 KiB.
	MaxLine int
	// MaxQueue limits the bytes that wait for a reader. Records beyond it are dropped and counted.
	// Zero means 256 KiB.
	MaxQueue int
}

const (
	defaultMaxLine    = 8 << 10
	minMaxLine        = 256
	closeFlushTimeout = time.Second
)

// A LogHandler is a slog.Handler for a server's standard error. It writes one line of limited
// length for each record, escapes control characters, and never blocks if nobody reads.
//
// In text, errors begin with "Error: ", records below slog.LevelDebug with "[TRACE] ", and others
// with "Warning: ", "Info: " or "Debug: ". Attributes follow the message as key=value, quoted if
// necessary.
//
// Multiple goroutines may use a LogHandler at once. Handlers from WithAttrs and WithGroup share its
// queue. On Windows, and for writers that are not files, a goroutine writes the lines, so call
// Flush or Close before the process exits.
type LogHandler struct {
	level   slog.Leveler
	time    bool
	maxLine int
	queue   *queue

	// prefix is the prefix of attribute keys: the open groups, each with a dot.
	prefix string
	// attrs are formatted attributes.
	attrs string
	json  slog.Handler
	// jsonBuf receives the output of json.
	jsonBuf *lineBuffer
}

// NewLogHandler returns a handler that writes to w, normally os.Stderr. opts may be nil for the
// defaults.
func NewLogHandler(w io.Writer, opts *LogOptions) *LogHandler {
	var o LogOptions
	if opts != nil {
		o = *opts
	}
	h := &LogHandler{level: o.Level, time: o.Time, maxLine: o.MaxLine}
	if h.level == nil {
		h.level = slog.LevelInfo
	}
	defaults.IfNotPositive(&h.maxLine, defaultMaxLine)
	h.maxLine = max(h.maxLine, minMaxLine)
	if o.JSON {
		h.jsonBuf = new(lineBuffer)
		h.json = slog.NewJSONHandler(h.jsonBuf, &slog.HandlerOptions{Level: LevelTrace, ReplaceAttr: h.replaceJSON})
	}
	h.queue = newQueue(w, o.MaxQueue, h.dropNotice)
	return h
}

// Enabled implements slog.Handler.
func (h *LogHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.level.Level()
}

// Handle implements slog.Handler. It always returns nil, because callers cannot handle a failing
// log.
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

// append appends the record's line with its newline.
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

// Flush waits until everything is written. If ctx ends first, it returns the cause.
func (h *LogHandler) Flush(ctx context.Context) error { return h.queue.flush(ctx) }

// Close waits up to a second until everything is written and discards the rest. Later records are
// dropped. Close does not close the writer of NewLogHandler.
func (h *LogHandler) Close() error { return h.queue.closeWithin(closeFlushTimeout) }

func (h *LogHandler) dropNotice(n int) []byte {
	return h.append(nil, slog.NewRecord(time.Now(), slog.LevelWarn, fmt.Sprintf("%d log records were dropped because nobody read the log", n), 0))
}

// A lineBuffer collects the output of slog.JSONHandler, one line at a time.
type lineBuffer struct {
	mu sync.Mutex
	// Buffer is guarded by mu.
	bytes.Buffer
}

// jsonLine returns a copy of the record's line. Cut strings can still exceed the limit, because an
// escaped byte takes six. The line then loses its attributes.
func (h *LogHandler) jsonLine(r slog.Record) []byte {
	l := h.jsonBuf
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Reset()
	h.json.Handle(context.Background(), r)
	if size := l.Len(); size > h.maxLine {
		l.Reset()
		short := slog.NewRecord(r.Time, r.Level, string(truncate([]byte(r.Message), 0, h.maxLine/8)), 0)
		short.AddAttrs(slog.Int("cut", size))
		slog.NewJSONHandler(l, &slog.HandlerOptions{Level: LevelTrace, ReplaceAttr: h.replaceJSON}).Handle(context.Background(), short)
	}
	line := bytes.Clone(l.Bytes())
	if l.Cap() > 4*defaultMaxLine {
		l.Buffer = bytes.Buffer{}
	}
	return line
}

// replaceJSON names LevelTrace and cuts long strings.
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

// truncate cuts dst[start:] to at most limit bytes, including a mark. It does not split a
// character.
func truncate(dst []byte, start, limit int) []byte {
	const mark = "… (cut)"
	if len(dst)-start <= limit {
		return dst
	}
	end := start + len(clip.Prefix(dst[start:], limit-len(mark)))
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
		return len(dst) < 2*h.maxLine // the rest would be cut
	})
	return dst
}

// levelPrefix returns the prefix of a line.
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

// appendAttr appends " key=value", or one of these for each member of a group. limit bounds the
// bytes of a text that it reads.
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

// appendValue appends a value as text. If a method of the value panics, it appends a mark, like
// package fmt.
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
	s = beginning(s, limit)
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

// appendEscaped appends s and escapes line ends, terminal controls, invalid UTF-8, and characters
// that reorder text.
func appendEscaped(dst []byte, s string, limit int) []byte {
	s = beginning(s, limit)
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

// beginning cuts s to limit+1 bytes, so that a line with a cut text exceeds its limit and is
// marked.
func beginning(s string, limit int) string { return s[:min(len(s), limit+1)] }
