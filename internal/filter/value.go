package filter

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// fieldPattern reads what stands behind "field:".
func (p *parser) fieldPattern(f Field) (pattern, error) {
	start := p.pos
	if p.pos < len(p.src) {
		switch p.src[p.pos] {
		case '/':
			return p.regex()
		case '"':
			s, err := p.quoted()
			return pattern{str: strings.ToLower(s)}, err
		}
	}
	s := p.unquoted()
	if s == "" {
		return pattern{}, p.errorAt(start, "a value is missing behind %s:, such as %s:%s", f, f, example(f))
	}
	if err := p.expectEnd(); err != nil {
		return pattern{}, err
	}
	s = strings.ToLower(s)
	return pattern{str: s, glob: strings.Contains(s, "*")}, nil
}

// regex reads a regular expression between slashes. A slash in it has a backslash before it, and "i" behind it tells that case does not count.
func (p *parser) regex() (pattern, error) {
	start := p.pos
	var b strings.Builder
	i := p.pos + 1
	for ; i < len(p.src) && p.src[i] != '/'; i++ {
		if p.src[i] == '\\' && i+1 < len(p.src) {
			if p.src[i+1] != '/' {
				b.WriteByte('\\')
			}
			i++
		}
		b.WriteByte(p.src[i])
	}
	if i >= len(p.src) {
		return pattern{}, p.errorAt(start, `the regular expression has no "/" at its end: to look for the text itself, put it in quotes`)
	}
	p.pos = i + 1
	source, flags := b.String(), ""
	if strings.HasPrefix(p.src[p.pos:], "i") {
		flags = "(?i)"
		p.pos++
	}
	if err := p.expectEnd(); err != nil {
		return pattern{}, err
	}
	if source == "" {
		return pattern{}, p.errorAt(start, "the regular expression is empty")
	}
	re, err := regexp.Compile(flags + source)
	if err != nil {
		return pattern{}, p.errorAt(start, "%v", err)
	}
	return pattern{re: re, source: p.src[start:p.pos]}, nil
}

// fieldValues are the values of the fields that have a list of them.
func fieldValues(f Field) []string {
	switch f {
	case Dir:
		return []string{"c2s", "s2c"}
	case Era:
		return []string{"legacy", "modern"}
	case Side:
		return []string{"near", "far"}
	case Kind:
		return []string{"request", "notification", "response", "invalid", "progress", "log", "stdout", "stderr", "start", "exit", "eof", "http", "sse", "body", "gap", "note", "xlate"}
	case Status:
		return []string{"ok", "error", "iserror", "input_required", "task", "cancelled", "pending", "unanswered", "http", "failed"}
	}
	return nil
}

func example(f Field) string {
	switch f {
	case ID, Session:
		return "1"
	case Tool, Target, Server:
		return "search"
	case Method:
		return "tools/call"
	case Task:
		return "*"
	case Revision:
		return "2025*"
	case Finding:
		return "error"
	}
	return fieldValues(f)[0]
}

// checkValue says what is wrong with a value that cannot match. Statuses are also numbers, of errors and of HTTP.
func checkValue(f Field, v pattern) string {
	list := fieldValues(f)
	if v.re != nil || v.glob || list == nil || slices.Contains(list, v.str) {
		return ""
	}
	also := ""
	if f == Status {
		if _, err := strconv.Atoi(v.str); err == nil {
			return ""
		}
		also = ", a code of an error such as -32602, or a status of HTTP such as 401"
	}
	return fmt.Sprintf("%s: has no value %q; there are %s%s", f, v.str, strings.Join(list, ", "), also)
}

// comparisonTerm reads what stands behind dur or size.
func (p *parser) comparisonTerm(name, op string) (node, error) {
	start := p.pos
	s := strings.ToLower(p.unquoted())
	var v int64
	var ok bool
	want := "a duration such as 500ms, 2s or 1m30s"
	if name == "dur" {
		v, ok = parseDuration(s)
	} else {
		v, ok = parseSize(s)
		want = "a size such as 100, 10kB, 1MB or 4MiB"
	}
	if !ok {
		return nil, p.errorAt(start, "%s%s needs %s, not %q", name, op, want, s)
	}
	return comparison{name, op, v, s}, p.expectEnd()
}

func parseDuration(s string) (int64, bool) {
	d, err := time.ParseDuration(s)
	return int64(d), err == nil && d >= 0
}

// parseSize reads a number of bytes.
func parseSize(s string) (int64, bool) {
	unit := strings.TrimLeft(s, "0123456789.")
	n, err := strconv.ParseFloat(s[:len(s)-len(unit)], 64)
	if err != nil {
		return 0, false
	}
	factors := map[string]float64{
		"": 1, "b": 1, "k": 1e3, "kb": 1e3, "m": 1e6, "mb": 1e6, "g": 1e9, "gb": 1e9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30,
	}
	n *= factors[unit]
	return int64(n), factors[unit] > 0 && n < 1<<62
}

// rangeTerm reads a range of numbers of events.
func (p *parser) rangeTerm() (node, error) {
	start := p.pos
	s := p.unquoted()
	from, to, ok := ParseRange(s)
	if !ok {
		return nil, p.errorAt(start, "n: needs a number, or a range such as 12-20 or 12-, not %q", s)
	}
	return eventRange{from, to, s}, p.expectEnd()
}

// ParseRange reads "12", "12-20" or "12-", a range of numbers.
func ParseRange(s string) (from, to uint64, ok bool) {
	first, last, isRange := strings.Cut(s, "-")
	from, err := strconv.ParseUint(first, 10, 64)
	if err != nil {
		return 0, 0, false
	}
	switch {
	case !isRange:
		return from, from, true
	case last == "":
		return from, ^uint64(0), true
	}
	to, err = strconv.ParseUint(last, 10, 64)
	return from, to, err == nil && from <= to
}
