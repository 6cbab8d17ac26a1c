package filter

import (
	"bytes"
	"context"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A regexScan looks for a regular expression in the bytes of a payload.
type regexScan struct{ re *regexp.Regexp }

func (s regexScan) match(_ context.Context, payload []byte) bool { return s.re.Match(payload) }

// A wordScan looks for text in a payload, as its bytes are, and as JSON strings mean it. Case does not count.
type wordScan struct {
	word   string         // in lower case
	re     *regexp.Regexp // for words beyond ASCII
	escape bool           // JSON may spell it with a backslash, and usually does
}

func newWordScan(s string) *wordScan {
	w := &wordScan{word: strings.ToLower(s), escape: strings.ContainsAny(s, "\"\\/<>&'\t\r\n")}
	if strings.ContainsFunc(w.word, func(r rune) bool { return r >= utf8.RuneSelf }) {
		w.re = regexp.MustCompile("(?i)" + regexp.QuoteMeta(w.word))
		w.escape = true
	}
	return w
}

func (w *wordScan) match(_ context.Context, payload []byte) bool {
	if w.find(payload) {
		return true
	}
	return w.escape && bytes.IndexByte(payload, '\\') >= 0 && w.find(unescape(payload[:min(len(payload), maxUnescaped)]))
}

func (w *wordScan) find(text []byte) bool {
	if w.re != nil {
		return w.re.Match(text)
	}
	word := []byte(w.word)
	var buf [4 << 10]byte
	if len(word) > len(buf)/2 {
		return bytes.Contains(bytes.ToLower(text), word)
	}
	for len(text) >= len(word) {
		n := copy(buf[:], text)
		for i, c := range buf[:n] {
			if c >= 'A' && c <= 'Z' {
				buf[i] = c + 'a' - 'A'
			}
		}
		if bytes.Contains(buf[:n], word) {
			return true
		}
		if n == len(text) {
			return false
		}
		text = text[n-len(word)+1:]
	}
	return false
}

const maxUnescaped = 8 << 20 // bytes of a payload that escapes are looked for in

// unescape returns a text with the escapes of JSON strings replaced, wherever they stand.
func unescape(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			out = append(out, text[i])
			continue
		}
		i++
		switch c := text[i]; c {
		case 'b', 'f', 'n', 'r', 't':
			out = append(out, "\b\f\n\r\t"[strings.IndexByte("bfnrt", c)])
		case 'u':
			if i+5 > len(text) {
				continue
			}
			v, err := strconv.ParseUint(string(text[i+1:i+5]), 16, 16)
			if err != nil {
				continue
			}
			i += 4
			r := rune(v)
			if r >= 0xd800 && r < 0xdc00 && i+7 <= len(text) && text[i+1] == '\\' && text[i+2] == 'u' {
				if low, err := strconv.ParseUint(string(text[i+3:i+7]), 16, 16); err == nil && low >= 0xdc00 && low < 0xe000 {
					r = (r-0xd800)<<10 + rune(low) - 0xdc00 + 0x10000
					i += 6
				}
			}
			out = utf8.AppendRune(out, r)
		default:
			out = append(out, c)
		}
	}
	return out
}
