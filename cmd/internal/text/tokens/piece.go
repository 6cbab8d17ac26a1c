package tokens

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// pieceLen returns the length of the first piece of a text. No token crosses the end of a piece.
// tiktoken describes pieces by this pattern, for which package regexp lacks the look-ahead; C is
// (?i:'s|'t|'re|'ve|'m|'ll|'d):
//
//	[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+C?
//	|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*C?
//	|\p{N}{1,3}
//	| ?[^\s\p{L}\p{N}]+[\r\n/]*
//	|\s*[\r\n]+
//	|\s+(?!\S)
//	|\s+
func pieceLen(text string) int {
	first, size := classAt(text, 0)
	start := 0
	if first&(upper|lower|other|number) == 0 && text[0] != '\r' && text[0] != '\n' {
		start = size
	}
	end, lowercase := wordEnd(text, start)
	if !lowercase && first == mark { // the mark is the word, and not what precedes it
		end, _ = wordEnd(text, 0)
	}
	if end > 0 {
		return end + contractionLen(text[end:])
	}
	if first == number {
		return skip(text, 0, 3, number)
	}
	start = 0
	if text[0] == ' ' {
		start = 1
	}
	if end = skip(text, start, len(text), symbol|mark); end > start {
		return len(text) - len(strings.TrimLeft(text[end:], "\r\n/"))
	}
	end = skip(text, 0, len(text), space)
	if i := strings.LastIndexAny(text[:end], "\r\n"); i >= 0 {
		return i + 1
	}
	if _, last := utf8.DecodeLastRuneInString(text[:end]); end < len(text) && last < end {
		return end - last
	}
	return end
}

// wordEnd returns the end of the word that begins at start, or 0 if none does. lowercase reports
// whether the word matches the first line of the pattern; otherwise it has capitals only.
func wordEnd(text string, start int) (end int, lowercase bool) {
	end, uncased := start, 0
	for end < len(text) {
		c, size := classAt(text, end)
		if c == lower {
			return skip(text, end, len(text), lower|other|mark), true
		}
		if c&(upper|other|mark) == 0 {
			break
		}
		end += size
		if c != upper {
			uncased = end
		}
	}
	switch {
	case uncased > 0:
		return uncased, true
	case end > start:
		return end, false
	}
	return 0, false
}

// contractionLen returns the length of 's, 'll and the like at the beginning of a text. The letter
// ſ (U+017F) is a lowercase form of S.
func contractionLen(text string) int {
	for _, c := range []string{"'s", "'ſ", "'t", "'re", "'ve", "'m", "'ll", "'d"} {
		if len(text) >= len(c) && strings.EqualFold(text[:len(c)], c) {
			return len(c)
		}
	}
	return 0
}

// skip returns the end of at most limit characters at i that all are of the given classes.
func skip(text string, i, limit int, set class) int {
	for ; i < len(text) && limit > 0; limit-- {
		c, size := classAt(text, i)
		if c&set == 0 {
			break
		}
		i += size
	}
	return i
}

// A class is a class of characters, or a set of classes.
type class uint8

// The classes: each character is in one of them. Titlecase letters count as upper, and other has
// the letters without case.
const (
	upper class = 1 << iota
	lower
	other
	mark
	number
	space
	symbol
)

// classAt returns the class and length of the character at i. A byte that is not part of valid
// UTF-8 is a symbol.
func classAt(text string, i int) (class, int) {
	if c := text[i]; c < utf8.RuneSelf {
		switch {
		case 'a' <= c && c <= 'z':
			return lower, 1
		case 'A' <= c && c <= 'Z':
			return upper, 1
		case '0' <= c && c <= '9':
			return number, 1
		case c == ' ', '\t' <= c && c <= '\r':
			return space, 1
		}
		return symbol, 1
	}
	r, size := utf8.DecodeRuneInString(text[i:])
	return classOf(r), size
}

func classOf(r rune) class {
	switch {
	case unicode.Is(unicode.Ll, r):
		return lower
	case unicode.In(r, unicode.Lo, unicode.Lm):
		return other
	case unicode.In(r, unicode.Lu, unicode.Lt):
		return upper
	case unicode.IsMark(r):
		return mark
	case unicode.IsNumber(r):
		return number
	case unicode.IsSpace(r):
		return space
	}
	for _, n := range newer {
		if n.first <= r && r <= n.last {
			return n.class
		}
	}
	return symbol
}

// newer are the characters of Unicode 16, which tiktoken 0.14.0 uses, that version 15 lacks, which
// package unicode has, except symbols.
var newer = [...]struct {
	first, last rune
	class       class
}{
	{0x897, 0x897, mark}, {0x1c89, 0x1c89, upper}, {0x1c8a, 0x1c8a, lower},
	{0xa7cb, 0xa7cc, upper}, {0xa7cd, 0xa7cd, lower}, {0xa7da, 0xa7da, upper},
	{0xa7db, 0xa7db, lower}, {0xa7dc, 0xa7dc, upper}, {0x105c0, 0x105f3, other},
	{0x10d40, 0x10d49, number}, {0x10d4a, 0x10d4f, other}, {0x10d50, 0x10d65, upper},
	{0x10d69, 0x10d6d, mark}, {0x10d6f, 0x10d6f, other}, {0x10d70, 0x10d85, lower},
	{0x10ec2, 0x10ec4, other}, {0x10efc, 0x10efc, mark}, {0x11380, 0x11389, other},
	{0x1138b, 0x1138b, other}, {0x1138e, 0x1138e, other}, {0x11390, 0x113b5, other},
	{0x113b7, 0x113b7, other}, {0x113b8, 0x113c0, mark}, {0x113c2, 0x113c2, mark},
	{0x113c5, 0x113c5, mark}, {0x113c7, 0x113ca, mark}, {0x113cc, 0x113d0, mark},
	{0x113d1, 0x113d1, other}, {0x113d2, 0x113d2, mark}, {0x113d3, 0x113d3, other},
	{0x113e1, 0x113e2, mark}, {0x116d0, 0x116e3, number}, {0x11bc0, 0x11be0, other},
	{0x11bf0, 0x11bf9, number}, {0x11f5a, 0x11f5a, mark}, {0x13460, 0x143fa, other},
	{0x16100, 0x1611d, other}, {0x1611e, 0x1612f, mark}, {0x16130, 0x16139, number},
	{0x16d40, 0x16d6c, other}, {0x16d70, 0x16d79, number}, {0x18cff, 0x18cff, other},
	{0x1ccf0, 0x1ccf9, number}, {0x1e5d0, 0x1e5ed, other}, {0x1e5ee, 0x1e5ef, mark},
	{0x1e5f0, 0x1e5f0, other}, {0x1e5f1, 0x1e5fa, number}, {0x2ebf0, 0x2ee5d, other},
}
