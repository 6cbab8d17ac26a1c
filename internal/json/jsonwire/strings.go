package jsonwire

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// longRun is the number of consecutive plain bytes after which stringEnd expects many more and
// calls bytes.IndexByte, which is vectorized but expensive to call.
const longRun = 128

// stringEnd validates the content of a string from i, after its opening quote. It returns the index
// of the closing quote and whether there are escapes, or ^k if the string is invalid at k (k is
// len(b) if it does not end).
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
					return longStringEnd(b, i, false)
				}
				continue
			}
		}
		i += firstByte(m)
		c := b[i]
		if c == '"' {
			return i, false
		}
		if c == '\\' {
			return escapedEnd(b, i), true
		}
		if c < 0x80 {
			return ^i, false
		}
		if i = utf8End(b, i); i < 0 {
			return i, false
		}
		mark = i
	}
	return stringTail(b, i, false)
}

// escapedEnd is stringEnd for a string with escapes, from the first one on. Such strings tend to
// have many, often more than one in eight bytes. The index of the next word is independent of where
// the escapes in a word are, so that the processor begins with the next word before it knows them.
func escapedEnd(b []byte, i int) int {
	mark := i
	for i >= 0 && i <= len(b)-17 {
		w := load64(b, i)
		m := special(w)
		i += 8
		if m == 0 {
			w = load64(b, i)
			m = special(w)
			i += 8
			if m == 0 {
				if i-mark >= longRun {
					i, _ = longStringEnd(b, i, true)
					return i
				}
				continue
			}
		}
		for m != 0 {
			k := firstByte(m)
			at := i - 8 + k
			if c := b[at]; c != '\\' {
				if c == '"' {
					return at
				}
				if c < 0x80 {
					return ^at
				}
				n := sequenceLen(load32(b, at))
				if n == 0 {
					return ^at
				}
				if end := at + n; end >= i || b[end] >= 0x80 {
					if i = utf8End(b, end); i < 0 {
						return i
					}
					break
				}
				m = specials(w) & (^uint64(0) << (8 * (k + n) & 63))
				continue
			}
			if unescaped[b[at+1]] == 0 {
				for i = at; i < len(b) && b[i] == '\\'; {
					n := escapeLen(b, i)
					if n == 0 {
						return ^i
					}
					i += n
				}
				break
			}
			if k == 7 {
				i++
				break
			}
			m = specials(w) & (^uint64(0x7fffff) << (8 * k & 63)) // neither this byte nor the next
		}
		mark = i
	}
	i, _ = stringTail(b, i, true)
	return i
}

// longStringEnd is stringEnd for a string with long plain runs. It knows the next quote and the
// next backslash and checks only for control and non-ASCII characters before them. The two
// positions survive every interruption of a run, so that each byte is searched once.
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

// asciiEnd returns the index of the first control or non-ASCII character from i on, or len(b).
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

// escapeLen returns the length of the escape sequence at b[i], a backslash, or 0 if it is invalid.
// It does not check whether surrogates are paired.
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

// hexDigit holds a hexadecimal digit's value with bit 4 set, and 0 for other bytes.
var hexDigit = [256]uint8{
	'0': 0x10, '1': 0x11, '2': 0x12, '3': 0x13, '4': 0x14, '5': 0x15, '6': 0x16, '7': 0x17, '8': 0x18, '9': 0x19,
	'a': 0x1a, 'b': 0x1b, 'c': 0x1c, 'd': 0x1d, 'e': 0x1e, 'f': 0x1f,
	'A': 0x1a, 'B': 0x1b, 'C': 0x1c, 'D': 0x1d, 'E': 0x1e, 'F': 0x1f,
}

// sequenceLen returns the length, 2 to 4, of the well-formed UTF-8 sequence in the low bytes of w,
// whose lowest byte is 0x80 or more, or 0 if it is invalid. Bytes beyond the end of the text must
// be 0 in w.
func sequenceLen(w uint32) int {
	switch {
	case w&0xc0c0f0 == 0x8080e0:
		// The lead's low four bits and the bit that separates 80..9f from
		// a0..bf: 0 is overlong, 0x200d a surrogate.
		if t := w & 0x200f; t != 0 && t != 0x200d {
			return 3
		}
	case w&0xc0e0 == 0x80c0:
		if w&0x1e != 0 { // c0 and c1 would be overlong
			return 2
		}
	case w&0xc0c0c0f8 == 0x808080f0:
		// The top five bits of the rune: 0 is overlong, above 16 too large.
		if t := w&7<<2 | w>>12&3; t-1 < 16 {
			return 4
		}
	}
	return 0
}

// load32 returns b[i:] as a word, zero beyond the end. i < len(b).
func load32(b []byte, i int) uint32 {
	b = b[i:]
	if len(b) >= 4 {
		return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
	}
	var w uint32
	for k, c := range b {
		w |= uint32(c) << (8 * k)
	}
	return w
}

// utf8End skips UTF-8 text from i, where b[i] is not ASCII, and plain ASCII in between as far as
// that is cheap. It returns an index after i where the next sequence, a plain run or a special
// character starts, or len(b); or ^k if the bytes at k are not UTF-8.
func utf8End(b []byte, i int) int {
	for i >= 0 && i <= len(b)-8 {
		w := load64(b, i)
		// Two sequences of three: most of CJK text.
		if w&0xc0c0f0c0c0f0 == 0x8080e08080e0 {
			t, u := w&0x200f, w>>24&0x200f
			if t == 0 || t == 0x200d {
				return ^i
			}
			if u == 0 || u == 0x200d {
				return ^(i + 3)
			}
			i += 6
			continue
		}
		if w&0x80 == 0 {
			return i
		}
		if w&0xf8 != 0xf0 {
			if k := mixedEnd(b, i); k != i {
				i = k
				continue
			}
		}
		n := sequenceLen(uint32(w))
		if n == 0 {
			return ^i
		}
		i += n
	}
	for i < len(b) && b[i] >= 0x80 {
		n := sequenceLen(load32(b, i))
		if n == 0 {
			return ^i
		}
		i += n
	}
	return i
}

// mixedEnd skips plain ASCII mixed with sequences of two and three, eight bytes at a time wherever
// the sequences are: words with accents, Cyrillic with spaces, CJK with digits. It returns an index
// where a sequence or an ASCII character starts, or i if the first eight bytes are not of that
// kind.
func mixedEnd(b []byte, i int) int {
	// Only the top bit of each byte counts in the words below. Shifts and additions keep the
	// garbage in the other bits away from it.
	var (
		due       uint64 // continuation bytes the last word needs in this one
		set, zero uint64 // those of them that must, must not have bit 5 set
		plain     int    // words of ASCII in a row
	)
	for i >= 0 && i <= len(b)-8 && plain < 4 {
		w := load64(b, i)
		lead := w << 1 & w     // 11xxxxxx
		three := w << 2 & lead // 111xxxxx
		next := due | lead<<8 | three<<16
		// ASCII must not be special; see special. The rest must be leads and the continuations that
		// are due. c0 and c1 would be overlong.
		bad := (((w^0x02*ones)-0x21*ones)|((w^'\\'*ones)-ones))&^w |
			(w ^ lead ^ next) |
			(lead^three)&^(w&(0x1e*ones)+0x7f*ones)
		if (three|set|zero)&highs != 0 {
			// f0 and above start longer sequences. After e0, 80..9f would be overlong; after ed,
			// a0..bf surrogates: bit 5 tells them apart.
			low, bit5 := w&(0x0f*ones), w<<2
			e0 := three &^ (low + 0x7f*ones)
			ed := three &^ ((low ^ 0x0d*ones) + 0x7f*ones)
			bad |= w<<3&three | (set|e0<<8)&^bit5 | (zero|ed<<8)&bit5
			set, zero = e0>>56, ed>>56
		}
		if bad&highs != 0 {
			break
		}
		i += 8
		due = lead>>56 | three>>48
		if plain++; w&highs != 0 {
			plain = 0
		}
	}
	if due&highs != 0 { // go back to where the cut sequence starts
		if i--; b[i] < 0xc0 {
			i--
		}
	}
	return i
}

// Eight bytes of text are checked in one 64-bit word, the first byte lowest. A mask has the top bit
// of a byte set where that byte is of the wanted kind. A borrow in the subtractions below may set
// bits above the lowest set one by mistake, never below it: only the lowest may be used, and zero
// is exact.
const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// load64 returns b[i:i+8] as a word. i+8 <= len(b).
func load64(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[i:]) }

// special marks the bytes that a string cannot contain literally: '"', '\\', control characters,
// and bytes that are not ASCII. Flipping bit 1 moves '"' directly above the control characters and
// moves nothing else across that border, so one comparison finds both.
func special(w uint64) uint64 {
	return (((w ^ 0x02*ones) - 0x21*ones) | ((w ^ '\\'*ones) - ones) | w) & highs
}

// specials is special, exact for every byte.
func specials(w uint64) uint64 {
	a := w &^ highs
	return highs &^ (((a ^ 0x02*ones) + 0x5f*ones) & ((a ^ '\\'*ones) + 0x7f*ones) &^ w)
}

// uneven marks control characters and bytes that are not ASCII.
func uneven(w uint64) uint64 { return ((w - 0x20*ones) | w) & highs }

// equals marks the bytes equal to c, given as c*ones.
func equals(w, c uint64) uint64 {
	x := w ^ c
	return (x - ones) &^ x & highs
}

// firstByte returns the index, 0 to 7, of the lowest byte marked in m, which is not 0.
func firstByte(m uint64) int { return bits.TrailingZeros64(m) >> 3 }
