package jsonwire

// sequenceLen is the length, 2 to 4, of the well-formed UTF-8 sequence in the
// low bytes of w, whose lowest byte is 0x80 or more; 0 if there is none.
// Bytes beyond the end of the text must be 0 in w.
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

// load32 is b[i:] as a word, zero beyond the end. i < len(b).
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

// utf8End passes over UTF-8 text from i, where b[i] is not ASCII, and over
// plain ASCII in between as far as that is cheap. It returns an index behind i
// where the next sequence, a plain run or a special character starts, or
// len(b); or ^k if the bytes at k are not UTF-8.
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

// mixedEnd passes over plain ASCII mixed with sequences of two and three, eight
// bytes at a time wherever the sequences lie: words with accents, Cyrillic with
// spaces, CJK with digits. It returns an index where a sequence or an ASCII
// character starts, i if the first eight bytes are not of that kind.
func mixedEnd(b []byte, i int) int {
	// Only the top bit of each byte counts in the words below; what is in the
	// others is rubbish that shifts and additions keep away from it.
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
		// ASCII must not be special, see there. The rest must be leads and
		// the continuations that are due. c0 and c1 would be overlong.
		bad := (((w^0x02*ones)-0x21*ones)|((w^'\\'*ones)-ones))&^w |
			(w ^ lead ^ next) |
			(lead^three)&^(w&(0x1e*ones)+0x7f*ones)
		if (three|set|zero)&highs != 0 {
			// f0 and above start longer sequences. Behind e0, 80..9f would be
			// overlong; behind ed, a0..bf surrogates: bit 5 tells them apart.
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
