package jsonwire

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// AppendUnquote appends the value of a string to dst. raw is the validated
// content between the quotes, as [Scanner.String] returns it, and must not
// overlap dst. dst grows at most once. It may write to the capacity behind the
// result, but no further than len(raw) bytes behind len(dst).
func AppendUnquote(dst, raw []byte) []byte {
	k := bytes.IndexByte(raw, '\\')
	if k < 0 {
		return append(dst, raw...)
	}
	dst = append(slices.Grow(dst, len(raw)), raw[:k]...)
	raw = raw[k:]
	n := len(dst)
	k, _ = unquote(dst[n:n+len(raw)], raw)
	return dst[:n+k]
}

// UnquoteString returns the value of a string, given the validated content
// between its quotes. It allocates once, for the string; a long one with
// escapes keeps len(raw) bytes in memory.
func UnquoteString(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw)
	}
	if len(raw) <= 256 {
		var buf [256]byte
		k, _ := unquote(buf[:], raw)
		return string(buf[:k])
	}
	var buf [1024]byte
	var s strings.Builder
	s.Grow(len(raw))
	for len(raw) > 0 {
		n := bytes.IndexByte(raw, '\\')
		if n < 0 {
			n = len(raw)
		}
		if n < len(buf) {
			var k int
			k, n = unquote(buf[:], raw)
			s.Write(buf[:k])
		} else {
			s.Write(raw[:n])
		}
		raw = raw[n:]
	}
	return s.String()
}

// RawEqual reports whether the validated string content raw, its escapes
// decoded, is s. It does not allocate.
func RawEqual(raw []byte, s string) bool {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw) == s
	}
	var buf [64]byte
	for len(raw) > 0 {
		k, n := unquote(buf[:], raw)
		if len(s) < k || string(buf[:k]) != s[:k] {
			return false
		}
		raw, s = raw[n:], s[k:]
	}
	return s == ""
}

// unquote decodes raw into dst until raw is used up or dst, of at least 4
// bytes or as long as raw, is nearly full. It returns how many bytes it wrote
// and read.
func unquote(dst, raw []byte) (n, i int) {
	mark := 0 // start of the run of bytes without a backslash
	for i >= 0 && i <= len(raw)-8 && n >= 0 && n <= len(dst)-8 {
		w := load64(raw, i)
		binary.LittleEndian.PutUint64(dst[n:], w)
		m := equals(w, '\\'*ones)
		if m == 0 {
			i += 8
			n += 8
			if i-mark >= 64 {
				k := copyRun(dst[n:], raw[i:])
				i += k
				n += k
				mark = i
			}
			continue
		}
		k := firstByte(m)
		i += k
		n += k
		for i < len(raw) && raw[i] == '\\' {
			if i+1 < len(raw) && unescaped[raw[i+1]] != 0 && n < len(dst) {
				dst[n] = unescaped[raw[i+1]]
				n++
				i += 2
				continue
			}
			written, read := unescape(dst[n:], raw[i:])
			if read == 0 {
				return n, i
			}
			n += written
			i += read
		}
		mark = i
	}
	for i < len(raw) && n < len(dst) {
		if c := raw[i]; c != '\\' {
			dst[n] = c
			n++
			i++
			continue
		}
		k, l := unescape(dst[n:], raw[i:])
		if l == 0 {
			break
		}
		n += k
		i += l
	}
	return n, i
}

// copyRun copies raw up to its first backslash, as far as there is room.
func copyRun(dst, raw []byte) int {
	raw = raw[:min(len(dst), len(raw))]
	if k := bytes.IndexByte(raw, '\\'); k >= 0 {
		raw = raw[:k]
	}
	return copy(dst, raw)
}

// unescape decodes the escape at the start of raw, pairs of surrogates
// together. It returns the bytes written and read, or zeros if dst is too
// short.
func unescape(dst, raw []byte) (n, i int) {
	if len(raw) < 2 || raw[1] != 'u' || len(raw) < 6 {
		if len(dst) < 1 {
			return 0, 0
		}
		if len(raw) < 2 {
			dst[0] = '\\'
			return 1, 1
		}
		dst[0] = unescaped[raw[1]]
		return 1, 2
	}
	r := hex4(raw[2:6])
	i = 6
	if utf16.IsSurrogate(r) {
		low := rune(0)
		if len(raw) >= 12 && raw[6] == '\\' && raw[7] == 'u' {
			low = hex4(raw[8:12])
		}
		if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
			i = 12
		}
	}
	if len(dst) >= utf8.UTFMax {
		return utf8.EncodeRune(dst, r), i
	}
	var buf [utf8.UTFMax]byte
	if n = utf8.EncodeRune(buf[:], r); n > len(dst) {
		return 0, 0
	}
	return copy(dst, buf[:n]), i
}

func hex4(b []byte) rune {
	return rune(hexDigit[b[0]]&15)<<12 | rune(hexDigit[b[1]]&15)<<8 | rune(hexDigit[b[2]]&15)<<4 | rune(hexDigit[b[3]]&15)
}

// unescaped maps the second character of a short escape to its meaning.
var unescaped = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}
