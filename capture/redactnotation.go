package capture

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"html"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"mcpwire/internal/text/lazyregexp"
)

// Some notations have a name and its value in two places: attributes of a tag, columns of a table,
// parts of a form. Others encode the characters between a name and its value.

// nameAttributes are the attributes that name a value, and attributePattern matches the name.
// tagPattern matches the rest of a tag whose text may be the value, and valuePattern an attribute
// with the value.
var (
	nameAttributes   = []string{"key", "name", "id", "property", "field", "variable"}
	attributePattern = lazyregexp.New(`^\s*(?:"([^"]*)|'([^']*)|([^\s"'/>;]+))`)
	valuePattern     = lazyregexp.New(`(?i)\b(?:value|val|content)\s*=\s*(?:"([^"]*)|'([^']*)|([^\s"'/]+))`)
	tagPattern       = lazyregexp.New(`(?i)^(?:entry|string|property|item|add|setting|param|variable|env|data|prop|config)\b[^/]*$`)
	blankLine        = lazyregexp.New(`\n\r?\n`)
)

// attribute hides the value that belongs to an attribute with the name of a secret, from start to
// end, as in <add key="password" value="…"/> and <entry key="password">…</entry>, and in the
// parts of multipart/form-data.
func (s *scanner) attribute(start, end int, name *secretName) {
	const maxTag = 1 << 10
	text := s.text
	hide := func(from, to int) {
		if name.hides(bytes.TrimSpace(text[from:to])) {
			s.hide(from, to, name.label)
		}
	}
	open := max(0, start-maxTag)
	before := text[open:start]
	if line := before[bytes.LastIndexByte(before, '\n')+1:]; bytes.Contains(line, []byte("form-data;")) {
		if m := blankLine().FindIndex(text[end:min(len(text), end+maxTag)]); m != nil {
			from := end + m[1]
			value, _, _ := bytes.Cut(text[from:min(len(text), from+maxSecret)], []byte("\n--"))
			hide(from, from+len(bytes.TrimSuffix(value, []byte("\r"))))
		}
		return
	}
	k := bytes.LastIndexByte(before, '<')
	if k < 0 || bytes.IndexByte(before[k:], '>') >= 0 {
		return
	}
	open += k + 1
	tag := text[open:min(len(text), end+maxTag)]
	if k := bytes.IndexAny(tag, "<>"); k >= 0 {
		tag = tag[:k]
	}
	if m := valuePattern().FindSubmatchIndex(tag); m != nil {
		from, to := group(m)
		hide(open+from, open+to)
	} else if from := open + len(tag) + 1; from < len(text) && text[from-1] == '>' && tagPattern().Match(tag) {
		if k := bytes.IndexByte(text[from:min(len(text), from+maxSecret)], '<'); k > 0 {
			hide(from, from+k)
		}
	}
}

// table hides the columns with names of secrets if the name text[start:end] is in the first line of
// a table. CSV, with a comma, a semicolon or a tab between cells, is distinguished from prose by
// the number of cells in the next line; Markdown and the output of database shells by a line of
// dashes.
func (s *scanner) table(start, end int) {
	const maxLine = 4 << 10
	text := s.text
	next := bytes.IndexFunc(text[end:min(len(text), end+64)], func(c rune) bool { return c != ' ' && c != '"' && c != '\'' })
	if next < 0 || strings.IndexByte(",;\t|\r\n", text[end+next]) < 0 {
		return
	}
	head := max(0, start-maxLine)
	head += bytes.LastIndexByte(text[head:start], '\n') + 1
	line, rest, _ := bytes.Cut(text[head:], []byte{'\n'})
	s.tableTo = head + len(line)
	delim := text[end+next]
	if k := bytes.LastIndexAny(line[:start-head], ",;\t|"); delim <= '\r' && delim != '\t' && k >= 0 {
		delim = line[k]
	}
	columns := cells(line, delim)
	if len(columns) < 2 || len(line) > maxLine {
		return
	}
	names := make([]*secretName, len(columns))
	for i, c := range columns {
		if !columnPattern().Match(line[c[0]:c[1]]) {
			return
		}
		names[i] = s.r.classify(line[c[0]:c[1]], false)
	}
	if delim == '|' {
		line, rest, _ = bytes.Cut(rest, []byte{'\n'})
		if len(bytes.Trim(line, "-+|: \t\r")) > 0 || !bytes.Contains(line, []byte("-")) {
			return
		}
	} else if before := bytes.TrimSuffix(text[:head], []byte{'\n'}); len(cells(before[bytes.LastIndexByte(before, '\n')+1:], delim)) == len(columns) {
		return // it is itself a row
	}
	for len(rest) > 0 {
		at := len(text) - len(rest)
		line, rest, _ = bytes.Cut(rest, []byte{'\n'})
		// A cell may have several lines.
		for len(rest) > 0 && len(line) < maxLine && bytes.Count(line, []byte{'"'})%2 > 0 {
			more, behind, _ := bytes.Cut(rest, []byte{'\n'})
			line, rest = text[at:at+len(line)+1+len(more)], behind
		}
		row := cells(line, delim)
		if len(row) != len(columns) {
			return
		}
		for i, c := range row {
			if value := line[c[0]:c[1]]; names[i].hides(value) {
				s.hide(at+c[0], at+c[1], names[i].label)
			}
		}
	}
}

// columnPattern matches the name of a column.
var columnPattern = lazyregexp.New(`^[\pL\pM\w .-]{1,64}$`)

// cells returns the bounds of the cells of a line of a table, without quotes. It returns nil if
// there are too many.
func cells(line []byte, delim byte) (list [][2]int) {
	const maxCells = 128
	quoted, from := false, 0
	for i := 0; i <= len(line); i++ {
		if i < len(line) && (quoted || line[i] != delim || i > 0 && line[i-1] == '\\') {
			quoted = quoted != (line[i] == '"' && delim != '|')
			continue
		}
		cell := bytes.TrimRight(line[from:i], " \t\r\"")
		list = append(list, [2]int{from + len(cell) - len(bytes.TrimLeft(cell, " \t\"")), from + len(cell)})
		if from = i + 1; len(list) > maxCells {
			return nil
		}
	}
	// Markdown may begin and end the line with a bar.
	for _, k := range [2]int{len(list) - 1, 0} {
		if c := list[k]; delim == '|' && c[0] == c[1] && len(list) > 1 {
			list = slices.Delete(list, k, k+1)
		}
	}
	return list
}

const (
	// maxEncodings limits the encodings removed from a text, one after the other.
	maxEncodings = 2
	// codeWindow is the number of bytes of a text that are decoded at once.
	codeWindow = 256 << 10
)

// decodeOne decodes the beginning of a text: a percent-encoded character, a character reference of
// HTML, an escape of JSON for one byte, or a letter, space or separator with another width. It
// returns the character and the length of its encoding, or length 0 if the text is not encoded.
func decodeOne(text []byte) (plain string, n int) {
	switch text[0] {
	case '%', '\\':
		digits, ok := bytes.CutPrefix(text, []byte(`\u00`))
		if !ok {
			digits, ok = bytes.CutPrefix(text, []byte{'%'})
		}
		var b [1]byte
		if ok && len(digits) >= 2 {
			if _, err := hex.Decode(b[:], digits[:2]); err == nil {
				return string(b[:]), len(text) - len(digits) + 2
			}
		}
	case '&':
		if k := bytes.IndexByte(text[:min(len(text), 10)], ';'); k > 1 {
			if plain = html.UnescapeString(string(text[:k+1])); plain != string(text[:k+1]) {
				return strings.ReplaceAll(plain, "\u00a0", " "), k + 1
			}
		}
	case 0xC2, 0xE2, 0xE3, 0xEF:
		switch c, n := utf8.DecodeRune(text); {
		case c > '\uff00' && c < '\uff5f':
			return string(c - 0xfee0), n
		case c >= '\u200b' && c <= '\u200f', c == '\u2060', c == '\ufeff':
			return "", n // no width
		case c != utf8.RuneError && unicode.Is(unicode.Zs, c):
			return " ", n
		}
	}
	return "", 0
}

func isEncoded(text []byte) bool {
	_, n := decodeOne(text)
	return n > 0
}

// decoded hides the secrets of the decoded text.
func (s *scanner) decoded(decode func([]byte) (string, int)) {
	for at := 0; at < len(s.text); at += codeWindow {
		window := s.text[at:min(len(s.text), at+codeWindow+maxSecret)]
		plain := make([]byte, 0, len(window))
		from := make([]int32, 0, len(window)+1) // of each byte of plain
		for i := 0; i < len(window); {
			text, n := "", 0
			if c := window[i]; specialByte[c] || c < ' ' {
				text, n = decode(window[i:])
			}
			if n == 0 {
				text, n = string(window[i:i+1]), 1
			}
			for k := range len(text) {
				plain, from = append(plain, text[k]), append(from, int32(i))
			}
			i += n
		}
		if len(plain) == len(window) && bytes.Equal(plain, window) {
			continue
		}
		from = append(from, int32(len(window)))
		var inner edits
		s.r.scan(&inner, plain, textMode{prose: s.prose, depth: s.depth + 1})
		for _, x := range inner.list {
			s.e.list = append(s.e.list, edit{at + int(from[x.start]), at + int(from[x.end]), x.text})
		}
	}
}

var streamLine = []byte("\ndata:")

// scanJoined hides secrets that span lines of an event of an event stream: its data lines or, in a
// transcript of a stream, the lines that begin with "data:".
func (r *Redactor) scanJoined(e *edits, text []byte, event bool) {
	if !bytes.Contains(text, streamLine) && !(event && bytes.IndexByte(text, '\n') >= 0) {
		return
	}
	s := scanner{r: r, e: e, text: text}
	s.decoded(func(text []byte) (string, int) {
		m := linePattern().FindSubmatchIndex(text[:min(len(text), 8)])
		if m == nil || m[2] < 0 && !event {
			return "", 0
		}
		return "", m[1]
	})
	e.normalize(0)
}

// linePattern matches the end of a line and the beginning of one with data.
var linePattern = lazyregexp.New(`^\r?\n(data: ?)?`)

const (
	// minBase64 is the length from which a string is examined as base64, and maxUnnamedBase64 that
	// up to which it is because it looks like it.
	minBase64        = 12
	maxUnnamedBase64 = 1 << 20
)

// secretBase64 reports whether a string is base64 of a text with a secret. blob means that the
// protocol has base64 there, which may encode other data than text.
func (r *Redactor) secretBase64(text []byte, blob bool, depth int) bool {
	if len(text) < minBase64 || depth >= maxNested || !blob && len(text) > maxUnnamedBase64 {
		return false
	}
	for _, c := range text {
		if !base64Byte[c] && c != '\r' && c != '\n' {
			return false
		}
	}
	var first [minBase64]byte
	if n, err := encodingOf(text).Decode(first[:], text[:minBase64]); !blob && (err != nil || !isText(first[:n]) || controlPattern().Match(first[:n])) {
		return false
	}
	return r.secretIn(text, depth)
}

// controlPattern matches a control character that text does not contain.
var controlPattern = lazyregexp.New(`[\x00-\x08\x0e\x0f\x7f]`)

// encodingOf returns the alphabet of a text in base64, without padding.
func encodingOf(text []byte) *base64.Encoding {
	if bytes.ContainsAny(text, "-_") {
		return base64.RawURLEncoding
	}
	return base64.RawStdEncoding
}

// secretIn reports whether the text in base64 contains a secret. It decodes piece by piece, with an
// overlap, since a secret may span two pieces. In data that is not text it looks only for shapes,
// since enough noise contains every name.
func (r *Redactor) secretIn(b64 []byte, depth int) bool {
	const piece, overlap = 64 << 10, maxSecret / 4
	b64 = bytes.TrimRight(b64, "=\r\n")
	in := base64.NewDecoder(encodingOf(b64), bytes.NewReader(b64))
	plain, kept := make([]byte, min(len(b64), piece)+overlap), 0
	var e edits
	for {
		n, err := io.ReadFull(in, plain[kept:])
		if n == 0 {
			return false
		}
		text, how := plain[:kept+n], textMode{depth: depth + 1}
		if !isText(text) {
			how = textMode{depth: maxEncodings, prose: true}
		}
		if r.scan(&e, text, how); len(e.list) > 0 || err != nil {
			return len(e.list) > 0
		}
		kept = copy(plain, text[max(0, len(text)-overlap):])
	}
}

// isText reports whether a text, other than at its ends, is UTF-8.
func isText(text []byte) bool {
	return utf8.Valid(bytes.TrimFunc(text, func(c rune) bool { return c >= utf8.RuneSelf }))
}
