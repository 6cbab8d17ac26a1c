package stdio

import (
	"log/slog"
	"strconv"
	"time"
	"unicode/utf8"
)

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
