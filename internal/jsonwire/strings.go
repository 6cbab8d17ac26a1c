package jsonwire

import "bytes"

// longRun is how many plain bytes in a row make stringEnd expect many more and
// ask bytes.IndexByte, which is vectorised but dear to call.
const longRun = 128

// stringEnd validates the content of a string from i, behind its opening
// quote. It returns the index of the closing quote and whether there are
// escapes; or ^k if the string is wrong at k (k is len(b) if it does not end).
func stringEnd(b []byte, i int) (end int, escaped bool) {
	mark := i // start of the run of plain bytes
	for i >= 0 && i <= len(b)-16 {
		m := special(load64(b, i))
		if m == 0 {
			m = special(load64(b, i+8))
			i += 8
			if m == 0 {
				i += 8
				if i-mark >= longRun {
					return longStringEnd(b, i, escaped)
				}
				continue
			}
		}
		i += firstByte(m)
		c := b[i]
		if c == '"' {
			return i, escaped
		}
		if c == '\\' {
			for escaped = true; i < len(b) && b[i] == '\\'; {
				k := escapeLen(b, i)
				if k == 0 {
					return ^i, true
				}
				i += k
			}
		} else if c >= 0x80 {
			if i = utf8End(b, i); i < 0 {
				return i, escaped
			}
		} else {
			return ^i, escaped
		}
		mark = i
	}
	return stringTail(b, i, escaped)
}

// longStringEnd is stringEnd for a string that has long plain runs. It knows
// where the next quote and the next backslash are and looks only for control
// and non-ASCII characters before them. The two positions outlive every
// interruption of a run, so that each byte is searched once.
func longStringEnd(b []byte, i int, escaped bool) (int, bool) {
	quote, slash := -1, -1
	for {
		if quote < i {
			if quote = bytes.IndexByte(b[i:], '"'); quote < 0 {
				quote = len(b)
			} else {
				quote += i
			}
			slash = -1
		}
		if slash < i {
			if slash = bytes.IndexByte(b[i:quote], '\\'); slash < 0 {
				slash = quote
			} else {
				slash += i
			}
		}
		i = asciiEnd(b[:slash], i)
		switch {
		case i == len(b):
			return ^i, escaped
		case i == quote:
			return i, escaped
		case i == slash:
			k := escapeLen(b, i)
			if k == 0 {
				return ^i, true
			}
			escaped = true
			i += k
		case b[i] >= 0x80:
			if i = utf8End(b, i); i < 0 {
				return i, escaped
			}
		default:
			return ^i, escaped
		}
	}
}

// asciiEnd returns the index of the first control or non-ASCII character from
// i on, or len(b).
func asciiEnd(b []byte, i int) int {
	for i >= 0 && i <= len(b)-32 {
		p := b[i : i+32]
		if uneven(load64(p, 0))|uneven(load64(p, 8))|uneven(load64(p, 16))|uneven(load64(p, 24)) != 0 {
			break
		}
		i += 32
	}
	for i >= 0 && i <= len(b)-8 {
		if m := uneven(load64(b, i)); m != 0 {
			return i + firstByte(m)
		}
		i += 8
	}
	for i < len(b) && b[i] >= 0x20 && b[i] < 0x80 {
		i++
	}
	return i
}

// stringTail is stringEnd for the last bytes of a text.
func stringTail(b []byte, i int, escaped bool) (int, bool) {
	for i < len(b) {
		c := b[i]
		switch {
		case c == '"':
			return i, escaped
		case c == '\\':
			k := escapeLen(b, i)
			if k == 0 {
				return ^i, true
			}
			escaped = true
			i += k
		case c >= 0x80:
			n := sequenceLen(load32(b, i))
			if n == 0 {
				return ^i, escaped
			}
			i += n
		case c < 0x20:
			return ^i, escaped
		default:
			i++
		}
	}
	return ^i, escaped
}

// escapeLen is the length of the escape sequence at b[i], a backslash; 0 if it
// is not one. Whether surrogates are paired is not its business.
func escapeLen(b []byte, i int) int {
	if len(b)-i < 2 {
		return 0
	}
	switch b[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(b)-i >= 6 && hexDigit[b[i+2]]&hexDigit[b[i+3]]&hexDigit[b[i+4]]&hexDigit[b[i+5]] != 0 {
			return 6
		}
	}
	return 0
}

// hexDigit is a hexadecimal digit's value with bit 4 set, 0 for other bytes.
var hexDigit = [256]uint8{
	'0': 0x10, '1': 0x11, '2': 0x12, '3': 0x13, '4': 0x14, '5': 0x15, '6': 0x16, '7': 0x17, '8': 0x18, '9': 0x19,
	'a': 0x1a, 'b': 0x1b, 'c': 0x1c, 'd': 0x1d, 'e': 0x1e, 'f': 0x1f,
	'A': 0x1a, 'B': 0x1b, 'C': 0x1c, 'D': 0x1d, 'E': 0x1e, 'F': 0x1f,
}
