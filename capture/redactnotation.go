package capture

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"html"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"mcpwire/internal/text/lazyregexp"
)

// Some notations mark a value by more than a name and a separator: attributes of a tag, columns of
// a table, parts of a form, lines of netrc, commands, SQL. Others encode the characters that mark
// it.

// notation hides a value that the word text[start:end] marks. name is its class, and sep is the
// index of a separator or -1. It returns the index from which the scan continues, or end.
func (s *scanner) notation(start, end, sep int, name *secretName) int {
	text := s.text
	word := text[start:end]
	switch c := word[0] | 0x20; {
	case c == '-'|0x20:
		return s.credentialFlag(start, end)
	case c == 'b' && string(word) == "base64" && start > 0 && text[start-1] == ';' && end < len(text) && text[end] == ',':
		to := end + 1
		for to < len(text) && base64Byte[text[to]] {
			to++
		}
		if s.depth < maxEncodings && s.r.secretIn(text[end+1:to], s.depth) {
			s.hide(end+1, to, "blob")
		}
		return to
	case c == 'b' && len(word) == 2 && s.isIdentified(start): // BY '…' of SQL
		return s.token(end, ";")
	}
	if sep >= 0 && text[sep] == '=' && slices.Contains(nameAttributes, string(bytes.ToLower(word))) {
		from, to := token(text[:min(len(text), sep+128)], sep+1, " />;")
		if named := s.r.classify(text[from:to], true); named != nil {
			s.attribute(start, to, named)
		}
		return end
	}
	if sep < 0 && bytes.EqualFold(word, []byte("password")) {
		i := skipSpace(text, end)
		if i < len(text) && text[i] == '(' { // PASSWORD('…') of SQL
			i++
		}
		if i > end && (i < len(text) && text[i] == '\'' || netrcPattern().Match(text[max(0, start-256):start])) {
			return s.token(i, "")
		}
	}
	if name != nil && start >= s.tableTo {
		s.table(start, end)
	}
	return end
}

// isIdentified reports whether IDENTIFIED of SQL is before the word at i.
func (s *scanner) isIdentified(i int) bool {
	before := s.text[max(0, i-64):i]
	return bytes.Contains(before, []byte("IDENTIFIED ")) || bytes.Contains(before, []byte("identified "))
}

// netrcPattern matches what is before a password in a file of netrc.
var netrcPattern = lazyregexp.New(`\b(?:machine\s+\S+|default)\s+(?:(?:login|user|account)\s+\S+\s+)*$`)

// skipSpace returns the index after at most 64 spaces.
func skipSpace(text []byte, i int) int {
	rest := text[i:min(len(text), i+64)]
	return i + len(rest) - len(bytes.TrimLeft(rest, " \t\r\n"))
}

// token returns the bounds of the next token, without its quotes. It ends at a space or a byte of
// stop.
func token(text []byte, i int, stop string) (from, to int) {
	from = skipSpace(text, i)
	if from < len(text) && (text[from] == '"' || text[from] == '\'') {
		return from + 1, quoteEnd(text, from+1, text[from], 0)
	}
	for to = from; to < len(text) && text[to] > ' ' && text[to] != '"' && text[to] != '\'' && strings.IndexByte(stop, text[to]) < 0; to++ {
	}
	return from, to
}

// token hides the next token, a password. It returns its end.
func (s *scanner) token(i int, stop string) int {
	from, to := token(s.text, i, stop)
	if bytes.ContainsFunc(s.text[from:to], unicode.IsLetter) || hasDigit(s.text[from:to]) {
		s.hide(from, to, "password")
	}
	return to
}

// credentialFlag hides the credentials after -u of curl, or after -p of mysql in the same word. The
// flag is text[start:end].
func (s *scanner) credentialFlag(start, end int) int {
	before := s.text[max(0, start-1024):start]
	before = before[bytes.LastIndexByte(before, '\n')+1:]
	word := s.text[start:end]
	if len(word) > 2 && word[1] == 'p' && isMySQL(before) {
		return s.token(start+2, "")
	}
	at := end
	if w := string(word); w != "--user" && w != "--proxy-user" {
		if at = start + 2; len(w) < 2 || w[1]|0x20 != 'u' {
			return end
		}
	} else if end < len(s.text) && s.text[end] == '=' {
		at++
	}
	from, to := token(s.text, at, "")
	if _, password, ok := bytes.Cut(s.text[from:to], []byte{':'}); !ok || standIn(password) == len(password) || !bytes.Contains(before, []byte("curl")) {
		return end
	}
	s.hide(from, to, "userinfo")
	return to
}

// isMySQL reports whether a command is one of MySQL's, whose flag -p has the password.
func isMySQL(command []byte) bool {
	return bytes.Contains(command, []byte("mysql")) || bytes.Contains(command, []byte("mariadb"))
}

// nameAttributes are the attributes that name a value. tagPattern matches the rest of a tag whose
// text may be the value, and valuePattern an attribute with the value.
var (
	nameAttributes = []string{"key", "name", "id", "property", "field", "variable"}
	valuePattern   = lazyregexp.New(`(?i)\b(?:value|val|content)\s*=\s*(?:"([^"]*)|'([^']*)|([^\s"'/]+))`)
	tagPattern     = lazyregexp.New(`(?i)^(?:entry|string|property|item|add|setting|param|variable|env|data|prop|config)\b[^/]*$`)
	blankLine      = lazyregexp.New(`\n\r?\n`)
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
		i := max(m[2], m[4], m[6])
		hide(open+i, open+max(m[3], m[5], m[7]))
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
				plain, from = append(plain, window[i]), append(from, int32(i))
				i++
				continue
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
	if c := text[0]; !blob && (c < 'A' || c > 'f' || c > 'Z' && c < 'a') {
		return false // It does not encode ASCII text. This test excludes most words.
	}
	for _, c := range text[:minBase64] {
		if !base64Byte[c] {
			return false
		}
	}
	var first [minBase64 / 4 * 3]byte
	if n, err := decodeBase64(first[:], text[:minBase64]); !blob && (err != nil || !isText(first[:n]) || bytes.ContainsAny(first[:n], "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x0e\x0f\x7f")) {
		return false
	}
	for _, c := range text {
		if !base64Byte[c] && c != '\r' && c != '\n' {
			return false
		}
	}
	if bytes.IndexByte(text, '\n') >= 0 {
		text = bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("\r"), nil), []byte("\n"), nil)
	}
	return r.secretIn(text, depth)
}

// decodeBase64 decodes either alphabet, padded or not, into dst, which must have room.
func decodeBase64(dst, src []byte) (int, error) {
	enc := base64.RawStdEncoding
	if bytes.ContainsAny(src, "-_") {
		enc = base64.RawURLEncoding
	}
	return enc.Decode(dst, bytes.TrimRight(src, "=\r\n"))
}

// secretIn reports whether the text in base64 contains a secret. It decodes piece by piece. In data
// that is not text it looks only for shapes, since enough noise contains every name.
func (r *Redactor) secretIn(b64 []byte, depth int) bool {
	const piece = 64 << 10
	plain := r.plain // nil inside nested base64
	r.plain = nil
	if cap(plain) < min(len(b64), piece)+maxSecret {
		plain = make([]byte, 0, min(len(b64), piece)+maxSecret)
	}
	defer func() { r.plain = plain[:0] }()
	var e edits
	// kept is the size of the overlap with the next piece, since a secret may span both.
	kept := 0
	for at := 0; at < len(b64); at += piece {
		n, err := decodeBase64(plain[kept:cap(plain)], b64[at:min(len(b64), at+piece)])
		if err != nil && n == 0 {
			return false
		}
		plain = plain[:kept+n]
		how := textMode{depth: depth + 1}
		if !isText(plain) {
			how = textMode{depth: maxEncodings, prose: true}
		}
		if r.scan(&e, plain, how); len(e.list) > 0 {
			return true
		}
		kept = copy(plain[:cap(plain)], plain[max(0, len(plain)-maxSecret/4):])
	}
	return false
}

// isText reports whether a text, other than at its ends, is UTF-8.
func isText(text []byte) bool {
	return utf8.Valid(bytes.TrimFunc(text, func(c rune) bool { return c >= utf8.RuneSelf }))
}
