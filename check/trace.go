package check

import "strings"

// traceField reports whether a value is a valid traceparent or tracestate (https://www.w3.org/TR/trace-context/), or baggage (https://www.w3.org/TR/baggage/).
func traceField(name, value string) bool {
	switch name {
	case "traceparent":
		return traceParent(value)
	case "tracestate":
		return traceState(value)
	}
	return baggage(value)
}

func traceParent(s string) bool {
	parts := strings.Split(s, "-")
	if len(parts) < 4 || !hex(parts[0], 2) || parts[0] == "ff" || parts[0] == "00" && len(parts) != 4 {
		return false
	}
	return hex(parts[1], 32) && strings.Trim(parts[1], "0") != "" && hex(parts[2], 16) && strings.Trim(parts[2], "0") != "" && hex(parts[3], 2)
}

func hex(s string, n int) bool {
	return len(s) == n && strings.Trim(s, "0123456789abcdef") == ""
}

func traceState(s string) bool {
	n := 0
	for entry := range strings.SplitSeq(s, ",") {
		entry = strings.Trim(entry, " \t")
		if entry == "" {
			continue
		}
		key, value, ok := strings.Cut(entry, "=")
		if n++; !ok || n > 32 || key == "" || len(key) > 256 || len(value) == 0 || len(value) > 256 {
			return false
		}
		for i := range len(key) {
			if c := key[i]; !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.IndexByte("_-*/@", c) >= 0) {
				return false
			}
		}
		for i := range len(value) {
			if c := value[i]; c < ' ' || c > '~' || c == ',' || c == '=' {
				return false
			}
		}
	}
	return true
}

// baggage looks at the keys, which are tokens, and at the characters of the values.
func baggage(s string) bool {
	if strings.Trim(s, " \t") == "" {
		return false
	}
	for entry := range strings.SplitSeq(s, ",") {
		entry, _, _ = strings.Cut(entry, ";")
		key, value, ok := strings.Cut(entry, "=")
		key, value = strings.Trim(key, " \t"), strings.Trim(value, " \t")
		if !ok || key == "" {
			return false
		}
		for i := range len(key) {
			if c := key[i]; c <= ' ' || c > '~' || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
				return false
			}
		}
		for i := range len(value) {
			if c := value[i]; c <= ' ' || c > '~' || c == '"' || c == '\\' {
				return false
			}
		}
	}
	return true
}
