package jsonwire

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// AppendQuote appends s as a JSON string with its quotes. It escapes the quote, the backslash and
// control characters and nothing else (not <, >, & nor U+2028), the common ones in the short form.
// A byte that is not part of valid UTF-8 becomes U+FFFD. s must not overlap dst's free capacity,
// which AppendQuote may write to beyond the end of its result.
func AppendQuote[T ~string | ~[]byte](dst []byte, s T) []byte {
	return appendQuote(dst, []byte(s)) // no copy: appendQuote neither keeps nor changes it
}

// appendQuote copies src as if there were nothing to escape, which is the usual case, and then
// checks the copy. A clean string needs no more room than its length and two quotes.
func appendQuote(dst, src []byte) []byte {
	// Grow clears the memory that it adds, append only what it does not overwrite. For a large
	// string append allocates whole pages, so that there is nearly always room for what follows.
	if len(src) < 64<<10 {
		dst = slices.Grow(dst, len(src)+2)
	}
	dst = append(dst, '"')
	n := len(dst)
	dst = append(dst, src...)
	if k := cleanEnd(dst, n); k < len(dst) {
		dst = appendEscaped(dst[:k], src[k-n:])
	}
	return append(dst, '"')
}

// cleanEnd returns the index of the first byte from i on that a JSON string cannot contain
// literally, either special or invalid UTF-8, or len(b).
func cleanEnd(b []byte, i int) int {
	mark := i
	for i >= 0 && i <= len(b)-16 {
		m, n := special(load64(b, i)), special(load64(b, i+8))
		if m|n == 0 {
			i += 16
			if i-mark >= longRun {
				return longCleanEnd(b, i)
			}
			continue
		}
		if m == 0 {
			m = n
			i += 8
		}
		i += firstByte(m)
		if b[i] < 0x80 {
			return i
		}
		if i = utf8End(b, i); i < 0 {
			return ^i
		}
		mark = i
	}
	for i < len(b) {
		switch c := b[i]; {
		case c >= 0x80:
			if i = utf8End(b, i); i < 0 {
				return ^i
			}
		case c < 0x20 || c == '"' || c == '\\':
			return i
		default:
			i++
		}
	}
	return i
}

// longCleanEnd is cleanEnd for long plain text: bytes.IndexByte finds the first quote and
// backslash, so that it checks only for the rest.
func longCleanEnd(b []byte, i int) int {
	if k := bytes.IndexByte(b[i:], '"'); k >= 0 {
		b = b[:i+k]
	}
	if k := bytes.IndexByte(b[i:], '\\'); k >= 0 {
		b = b[:i+k]
	}
	for {
		i = asciiEnd(b, i)
		if i == len(b) || b[i] < 0x20 {
			return i
		}
		if i = utf8End(b, i); i < 0 {
			return ^i
		}
	}
}

// appendEscaped appends the content of a JSON string, without quotes. After a run of plain bytes,
// it copies as many bytes at once and then checks them, so that few are copied for nothing.
func appendEscaped(dst, src []byte) []byte {
	i, mark := 0, 0 // mark: start of the run of plain bytes
	for i <= len(src)-16 {
		dst, i, mark = appendWords(dst, src, i, mark)
		if run := i - mark; run >= longRun {
			n := len(dst)
			dst = append(dst, src[i:min(i+run, len(src))]...)
			end := cleanEnd(dst, n)
			i += end - n
			if end < len(dst) {
				dst = dst[:end]
				mark = i
			}
		} else if i < len(src) && src[i] >= 0x80 {
			dst, i = appendRunes(dst, src, i)
			mark = i
		}
	}
	for i < len(src) {
		c := src[i]
		if c >= 0x80 {
			dst, i = appendRunes(dst, src, i)
			continue
		}
		if e := escapes[c]; e != 0 {
			var buf [8]byte
			binary.LittleEndian.PutUint64(buf[:], e)
			dst = append(dst, buf[:e>>56]...)
		} else {
			dst = append(dst, c)
		}
		i++
	}
	return dst
}

// appendWords appends src from i on until there is a long run of plain bytes, a run of characters
// that are not ASCII, invalid UTF-8, or too little left of src. It returns how far it came and
// where the last plain run started. It appends eight bytes at a time before it knows how many of
// them are right, and takes the others back.
func appendWords(dst, src []byte, i, mark int) ([]byte, int, int) {
	const slack = 24 // up to 15 plain bytes, then 8 of which some stay
	if cap(dst)-len(dst) < slack {
		dst = slices.Grow(dst, len(src)-i+(len(src)-i)>>3+slack)
	}
	for i >= 0 && i <= len(src)-16 {
		w := load64(src, i)
		dst = binary.LittleEndian.AppendUint64(dst, w)
		m := special(w)
		if m == 0 {
			w = load64(src, i+8)
			dst = binary.LittleEndian.AppendUint64(dst, w)
			i += 8
			if m = special(w); m == 0 {
				i += 8
				if i-mark >= longRun {
					break
				}
				continue
			}
		}
		k := firstByte(m)
		i += k
		dst = dst[:len(dst)-8+k]
		if src[i] >= 0x80 {
			c := load32(src, i)
			size := sequenceLen(c)
			if size == 0 || i+size >= len(src) || src[i+size] >= 0x80 {
				break
			}
			dst = binary.LittleEndian.AppendUint32(dst, c)
			dst = dst[:len(dst)-4+size]
			i += size
			mark = i
			continue
		}
		for e := escapes[src[i]]; e != 0; e = escapes[src[i]] { // they tend to come in groups
			dst = binary.LittleEndian.AppendUint64(dst, e)
			dst = dst[:len(dst)-8+int(e>>56)]
			if i++; i >= len(src) {
				break
			}
		}
		mark = i
	}
	return dst, i, mark
}

// appendRunes appends the non-ASCII bytes that start at src[i], up to the first invalid one, which
// it replaces. It returns the index after them.
func appendRunes(dst, src []byte, i int) ([]byte, int) {
	end := utf8End(src, i)
	if end >= 0 {
		return append(dst, src[i:end]...), end
	}
	dst = append(dst, src[i:^end]...)
	return append(dst, "\ufffd"...), ^end + 1
}

// Escapes as words: up to six characters, the first lowest, and their number in the top byte.
const (
	short = '\\' | 2<<56
	long0 = '\\' | 'u'<<8 | '0'<<16 | '0'<<24 | '0'<<32 | 6<<56
	long1 = '\\' | 'u'<<8 | '0'<<16 | '0'<<24 | '1'<<32 | 6<<56
)

// escapes holds the escape of each character, or 0 for those that need none and bytes that are not
// ASCII.
var escapes = [256]uint64{
	0x00: long0 | '0'<<40, 0x01: long0 | '1'<<40, 0x02: long0 | '2'<<40, 0x03: long0 | '3'<<40,
	0x04: long0 | '4'<<40, 0x05: long0 | '5'<<40, 0x06: long0 | '6'<<40, 0x07: long0 | '7'<<40,
	'\b': short | 'b'<<8, '\t': short | 't'<<8, '\n': short | 'n'<<8, 0x0b: long0 | 'b'<<40,
	'\f': short | 'f'<<8, '\r': short | 'r'<<8, 0x0e: long0 | 'e'<<40, 0x0f: long0 | 'f'<<40,
	0x10: long1 | '0'<<40, 0x11: long1 | '1'<<40, 0x12: long1 | '2'<<40, 0x13: long1 | '3'<<40,
	0x14: long1 | '4'<<40, 0x15: long1 | '5'<<40, 0x16: long1 | '6'<<40, 0x17: long1 | '7'<<40,
	0x18: long1 | '8'<<40, 0x19: long1 | '9'<<40, 0x1a: long1 | 'a'<<40, 0x1b: long1 | 'b'<<40,
	0x1c: long1 | 'c'<<40, 0x1d: long1 | 'd'<<40, 0x1e: long1 | 'e'<<40, 0x1f: long1 | 'f'<<40,
	'"': short | '"'<<8, '\\': short | '\\'<<8,
}

// AppendUnquote appends the value of a string to dst. raw is the validated content between the
// quotes, as [Scanner.String] returns it, and must not overlap dst. dst grows at most once.
// AppendUnquote may write to the capacity after the result, but no further than len(raw) bytes
// after len(dst).
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

// UnquoteString returns the value of a string, given the validated content between its quotes. It
// allocates once, for the string; a long one with escapes keeps len(raw) bytes in memory.
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

// unquote decodes raw into dst until raw is used up or dst, of at least 4 bytes or as long as raw,
// is nearly full. It returns how many bytes it wrote and read.
func unquote(dst, raw []byte) (n, i int) {
	mark := 0 // start of the run of bytes without a backslash
	for i >= 0 && i <= len(raw)-16 && n >= 0 && n <= len(dst)-16 {
		w := load64(raw, i)
		binary.LittleEndian.PutUint64(dst[n:], w)
		m := equals(w, '\\'*ones)
		if m == 0 {
			w = load64(raw, i+8)
			binary.LittleEndian.PutUint64(dst[n+8:], w)
			m = equals(w, '\\'*ones)
			i += 8
			n += 8
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

// copyRun copies raw up to its first backslash or the end of dst.
func copyRun(dst, raw []byte) int {
	raw = raw[:min(len(dst), len(raw))]
	if k := bytes.IndexByte(raw, '\\'); k >= 0 {
		raw = raw[:k]
	}
	return copy(dst, raw)
}

// unescape decodes the escape at the start of raw; it decodes a pair of surrogates together. It
// returns the bytes written and read, or zeros if dst is too short.
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
