// Package traceparent parses the traceparent of a W3C trace context
// (https://www.w3.org/TR/trace-context/#traceparent-header).
package traceparent

import "strings"

// Parse returns the ids of the trace and of the parent span, and the flags, in lower-case
// hexadecimal digits. It reports false if the text is invalid.
func Parse(text string) (trace, span, flags string, ok bool) {
	version, rest, _ := strings.Cut(text, "-")
	trace, rest, _ = strings.Cut(rest, "-")
	span, rest, _ = strings.Cut(rest, "-")
	flags, _, more := strings.Cut(rest, "-")
	if !isHex(version, 2) || version == "ff" || version == "00" && more || !isHex(flags, 2) ||
		!isHex(trace, 32) || isZero(trace) || !isHex(span, 16) || isZero(span) {
		return "", "", "", false
	}
	return trace, span, flags, true
}

// isHex reports if s has n lower-case hexadecimal digits.
func isHex(s string, n int) bool { return len(s) == n && strings.Trim(s, "0123456789abcdef") == "" }

func isZero(s string) bool { return strings.Trim(s, "0") == "" }
