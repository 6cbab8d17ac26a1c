package capture

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Some notations mark a value by more than a name and a separator: attributes of a tag, parts of a
// form, lines of netrc, commands, SQL statements. Others encode the characters that mark it. Cheap
// tests guard the search for both, since nearly all text has neither.

// specialByte marks the bytes, other than those of words, that need a closer look: tags, encoded
// characters, placeholders, and letters beyond ASCII.
var specialByte = func() (t [256]bool) {
	for c := range t {
		t[c] = c == '<' || c == '%' || c == '&' || c == '~' || c >= 0x80
	}
	return t
}()

// nameEnd returns the end of the name that continues at i with a letter beyond ASCII, or i.
func nameEnd(text []byte, i int) int {
	for i < len(text) {
		if wordByte[text[i]] {
			i++
			continue
		}
		if text[i] < utf8.RuneSelf {
			break
		}
		c, n := utf8.DecodeRune(text[i:])
		if !unicode.IsLetter(c) && !unicode.IsMark(c) {
			break
		}
		i += n
	}
	return i
}

// scanNonASCII is scanValue for a name with letters beyond ASCII. It returns 0 if it hides nothing.
func (r *Redactor) scanNonASCII(e *edits, text []byte, start, end int) int {
	if next := r.scanValue(e, text, start, end); next > end {
		return next
	}
	return 0
}

// scanProse hides credentials that follow text[start:end], a word of a description: those of a
// scheme or in a URL. It skips those that look like words.
func (r *Redactor) scanProse(e *edits, text []byte, start, end int) {
	from := len(e.list)
	if bytes.HasPrefix(text[end:], []byte("://")) {
		r.scanAuthority(e, text, start, end+3)
	} else {
		r.scanScheme(e, text, start, end)
	}
	kept := slices.DeleteFunc(e.list[from:], func(d edit) bool {
		secret := text[d.start:d.end]
		if k := bytes.LastIndexByte(secret, ':'); k >= 0 && k+1 < len(secret) {
			secret = secret[k+1:]
		}
		return !isToken(string(bytes.Trim(secret, "/"))) && !isOpaque(secret, "")
	})
	e.list = e.list[:from+len(kept)]
}

// scanPhrase hides a value that the word text[start:end] announces without being its name. It
// returns the index up to which the text needs no further scan, or end.
func (r *Redactor) scanPhrase(e *edits, text []byte, start, end int, how textMode) int {
	w := text[start:end]
	switch w[0] | 0x20 {
	case 'b':
		switch {
		case string(w) == "base64" && start > 0 && text[start-1] == ';' && end < len(text) && text[end] == ',':
			return r.scanDataURL(e, text, end+1, how)
		case bytes.EqualFold(w, []byte("by")):
			return r.scanIdentified(e, text, start, end)
		}
	case 'd':
		if string(w) == "default" {
			return r.scanNetrc(e, text, end, false)
		}
	case 'f':
		if bytes.EqualFold(w, []byte("form-data")) {
			return r.scanPart(e, text, end)
		}
	case 'm':
		if string(w) == "machine" {
			return r.scanNetrc(e, text, end, true)
		}
	case 'p':
		// This is SQL: WITH PASSWORD '…' or PASSWORD('…').
		if bytes.EqualFold(w, []byte("password")) {
			i := skipSpace(text, end, 8)
			if i < len(text) && text[i] == '(' {
				i++
			}
			if i > end && i < len(text) && text[i] == '\'' {
				return r.hideQuoted(e, text, i, end, "password")
			}
		}
	case '-' | 0x20:
		return r.scanUserFlag(e, text, start, end)
	}
	return end
}

// hideQuoted hides the text after the quote at i. It returns the end of that text, or end.
func (r *Redactor) hideQuoted(e *edits, text []byte, i, end int, kind string) int {
	to := quoteEnd(text, i+1, text[i], 0)
	if to == i+1 {
		return end
	}
	r.hide(e, i+1, to, kind, text[i+1:to])
	return to
}

// skipSpace returns the index after at most n spaces.
func skipSpace(text []byte, i, n int) int {
	for n += i; i < len(text) && i < n && (text[i] == ' ' || text[i] == '\t' || text[i] == '\n' || text[i] == '\r'); {
		i++
	}
	return i
}

// token returns the bounds of the next token, without its quotes.
func token(text []byte, i int) (from, to int) {
	from = skipSpace(text, i, 64)
	if from < len(text) && (text[from] == '"' || text[from] == '\'') {
		return from + 1, quoteEnd(text, from+1, text[from], 0)
	}
	for to = from; to < len(text) && text[to] > ' ' && text[to] != '"' && text[to] != '\''; to++ {
	}
	return from, to
}

// scanIdentified hides the password in the SQL clause IDENTIFIED BY '…'. BY is text[start:end].
func (r *Redactor) scanIdentified(e *edits, text []byte, start, end int) int {
	before := text[max(0, start-64):start]
	if !mayContainIdentified(before) || !bytes.Contains(bytes.ToUpper(before), []byte("IDENTIFIED ")) {
		return end
	}
	i := skipSpace(text, end, 8)
	if i == end || i == len(text) {
		return end
	}
	if text[i] == '\'' || text[i] == '"' {
		return r.hideQuoted(e, text, i, end, "password")
	}
	to := i
	for to < len(text) && text[to] > ' ' && text[to] != ';' {
		to++
	}
	if to > i {
		r.hide(e, i, to, "password", text[i:to])
	}
	return max(to, end)
}

// mayContainIdentified reports whether a text may contain the word IDENTIFIED, in any case. It
// looks for four of its letters, and allocates nothing.
func mayContainIdentified(text []byte) bool {
	for i := 0; i+4 <= len(text); i++ {
		if text[i]|0x20 == 'd' && text[i+1]|0x20 == 'e' && text[i+2]|0x20 == 'n' && text[i+3]|0x20 == 't' {
			return true
		}
	}
	return false
}

// scanNetrc hides the passwords of a netrc entry, whose first word ends at end.
func (r *Redactor) scanNetrc(e *edits, text []byte, end int, named bool) int {
	i := end
	if named {
		if _, i = token(text, end); i == end {
			return end
		}
	}
	done := end
	for {
		from, to := token(text, i)
		value, stop := token(text, to)
		switch string(text[from:to]) {
		case "password":
			if stop > value {
				r.hide(e, value, stop, "password", text[value:stop])
				done = stop
			}
		case "login", "user", "account":
		default:
			return done
		}
		i = stop
	}
}

// scanUserFlag hides the user and password after -u or --user of curl, which is text[start:end].
func (r *Redactor) scanUserFlag(e *edits, text []byte, start, end int) int {
	from, to := end, end
	switch w := string(text[start:end]); {
	case w == "-u" || w == "--user" || w == "--proxy-user" || w == "-U":
		if end < len(text) && text[end] == '=' {
			to++
		}
		from, to = token(text, to)
	case len(w) > 2 && (w[:2] == "-u" || w[:2] == "-U"):
		from, to = token(text, start+2)
	}
	cred := text[from:to]
	k := bytes.IndexByte(cred, ':')
	if k < 0 || k+1 == len(cred) || !bytes.Contains(text[max(0, start-1024):start], []byte("curl")) {
		return end
	}
	r.hide(e, from, to, "userinfo", cred)
	return to
}

// scanPart hides the value of a part of multipart/form-data that has the name of a secret. The word
// form-data in the header of the part ends at end.
func (r *Redactor) scanPart(e *edits, text []byte, end int) int {
	const maxHeader = 8 << 10
	header := text[end:min(len(text), end+maxHeader)]
	blank, size := bytes.Index(header, []byte("\n\r\n")), 3
	if k := bytes.Index(header, []byte("\n\n")); k >= 0 && (blank < 0 || k < blank) {
		blank, size = k, 2
	}
	if blank < 0 {
		return end
	}
	header = header[:blank]
	var rest []byte
	for at := 0; rest == nil; {
		k := bytes.Index(header[at:], []byte("name="))
		if k < 0 {
			return end
		}
		if at += k + len("name="); at == k+len("name=") && k == 0 || !wordByte[header[at-len("name=")-1]] {
			rest = header[at:]
		}
	}
	nameFrom, nameTo := token(rest, 0)
	s := r.classify(bytes.TrimRight(rest[nameFrom:nameTo], ";"), true)
	if s == nil {
		return end
	}
	from := end + blank + size
	to := len(text)
	if k := bytes.Index(text[from:], []byte("\n--")); k >= 0 {
		to = from + k
		if to > from && text[to-1] == '\r' {
			to--
		}
	}
	if to == from || !s.hides(text[from:to]) {
		return end
	}
	r.hide(e, from, to, s.kind, text[from:to])
	return to
}

// valueElements are the tags whose text is the value of the name in an attribute.
var valueElements = []string{"entry", "string", "property", "item", "add", "setting", "param", "variable", "env", "data", "prop", "config"}

// scanTag hides the value of the tag at i if one of its attributes has the name of a secret, as in
// <add key="password" value="…"/> and <entry key="password">…</entry>.
func (r *Redactor) scanTag(e *edits, text []byte, i int) {
	const maxTag = 4 << 10
	end := i + 1
	for end < len(text) && end < i+maxTag && text[end] != '<' && text[end] != '>' {
		end++
	}
	tag := text[i+1 : end]
	var name *secretName
	var value [2]int
	for at := 0; ; {
		k := bytes.IndexByte(tag[at:], '=')
		if k < 0 {
			break
		}
		k += at
		first := k
		for first > at && wordByte[tag[first-1]] {
			first--
		}
		from, to := attribute(tag, k+1)
		switch strings.ToLower(string(tag[first:k])) {
		case "key", "name", "id", "property", "field", "variable":
			if s := r.classify(tag[from:to], false); s != nil {
				name = s
			}
		case "value", "val", "content":
			value = [2]int{i + 1 + from, i + 1 + to}
		}
		at = max(to, k+1)
	}
	if name == nil {
		return
	}
	if value[1] == 0 && end < len(text) && text[end] == '>' && tag[len(tag)-1] != '/' {
		kind := tag
		if k := bytes.IndexAny(tag, " \t\r\n"); k >= 0 {
			kind = tag[:k]
		}
		if slices.Contains(valueElements, strings.ToLower(string(kind))) {
			value = [2]int{end + 1, end + 1}
			if k := bytes.IndexByte(text[end+1:min(len(text), end+1+maxSecret)], '<'); k > 0 {
				value[1] += k
			}
		}
	}
	if v := text[value[0]:value[1]]; !harmless(bytes.TrimSpace(v), name) && name.hides(v) {
		r.hide(e, value[0], value[1], name.kind, v)
	}
}

// attribute returns the bounds of an attribute's value. The = before it ends at i.
func attribute(tag []byte, i int) (from, to int) {
	for i < len(tag) && (tag[i] == ' ' || tag[i] == '\\') {
		i++
	}
	if i < len(tag) && (tag[i] == '"' || tag[i] == '\'') {
		k := bytes.IndexByte(tag[i+1:], tag[i])
		if k < 0 {
			return i + 1, len(tag)
		}
		return i + 1, i + 1 + len(bytes.TrimRight(tag[i+1:i+1+k], "\\"))
	}
	for to = i; to < len(tag) && tag[to] > ' ' && tag[to] != '/'; to++ {
	}
	return i, to
}

const (
	// maxEncodings limits the encodings removed from a text, one after the other.
	maxEncodings = 2
	// codeWindow is the number of bytes of a text that are decoded at once.
	codeWindow = 1 << 20
	codeMargin = maxSecret
)

// isEncoded reports whether a text begins with a percent-encoded character, a character reference
// of HTML, or a space or separator beyond ASCII.
func isEncoded(text []byte) bool {
	_, n := decodeOne(text)
	return n > 0
}

// references are the relevant character references of HTML.
var references = map[string]string{"quot": `"`, "apos": "'", "amp": "&", "lt": "<", "gt": ">", "nbsp": " ", "colon": ":", "equals": "=", "NewLine": "\n"}

// decodeOne decodes the beginning of a text. It returns the character and the length of its
// encoding, or length 0 if the text is not encoded.
func decodeOne(text []byte) (plain string, n int) {
	switch text[0] {
	case '%':
		if len(text) > 2 {
			hi, lo := unhex(text[1]), unhex(text[2])
			if hi >= 0 && lo >= 0 {
				return string([]byte{byte(hi<<4 | lo)}), 3
			}
		}
	case '&':
		k := bytes.IndexByte(text[:min(len(text), 10)], ';')
		if k < 2 {
			return "", 0
		}
		name := string(text[1:k])
		if digits, ok := strings.CutPrefix(name, "#"); ok {
			base := 10
			if rest, ok := strings.CutPrefix(strings.ToLower(digits), "x"); ok {
				digits, base = rest, 16
			}
			if c, err := strconv.ParseUint(digits, base, 21); err == nil {
				return string(rune(c)), k + 1
			}
		}
		if plain, ok := references[name]; ok {
			return plain, k + 1
		}
	case 0xC2, 0xE2, 0xE3, 0xEF:
		switch c, n := utf8.DecodeRune(text); {
		case c == '：':
			return ":", n
		case c == '＝':
			return "=", n
		case c >= '\u200b' && c <= '\u200f', c == '\u2060', c == '\ufeff':
			return "", n // no width
		case c != utf8.RuneError && unicode.Is(unicode.Zs, c):
			return " ", n
		}
	}
	return "", 0
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}

// An origin maps the index at of a decoded text to the index from of the original.
type origin struct{ at, from int }

// A decodedText keeps the origins of its bytes.
type decodedText struct {
	text    []byte
	origins []origin
}

// skip notes that the decoded text continues with the original byte at from.
func (d *decodedText) skip(from int) { d.origins = append(d.origins, origin{len(d.text), from}) }

// index returns the index in the original of the decoded byte i.
func (d *decodedText) index(i int) int {
	k, found := slices.BinarySearchFunc(d.origins, i, func(o origin, i int) int { return o.at - i })
	if found {
		for k+1 < len(d.origins) && d.origins[k+1].at == i { // after a character without width
			k++
		}
		return d.origins[k].from + i - d.origins[k].at
	}
	if k == 0 {
		return i
	}
	return d.origins[k-1].from + i - d.origins[k-1].at
}

// scanEncoded looks for secrets in the decoded text.
func (r *Redactor) scanEncoded(e *edits, text []byte, how textMode) {
	how.noKnown = false // before it is decoded
	how.depth++
	for at := 0; at < len(text); at += codeWindow {
		window := text[at:min(len(text), at+codeWindow+codeMargin)]
		var d decodedText
		d.text = make([]byte, 0, len(window))
		for i := 0; i < len(window); {
			if specialByte[window[i]] {
				if plain, n := decodeOne(window[i:]); n > 0 {
					d.text = append(d.text, plain...)
					i += n
					d.skip(i)
					continue
				}
			}
			d.text = append(d.text, window[i])
			i++
		}
		if len(d.origins) > 0 {
			r.scanDecoded(e, &d, at, how)
		}
	}
}

// scanDecoded hides in the text, from at on, the secrets of the decoded text.
func (r *Redactor) scanDecoded(e *edits, d *decodedText, at int, how textMode) {
	var inner edits
	r.scan(&inner, d.text, how)
	for _, x := range inner.list {
		from := len(e.arena)
		e.arena = append(e.arena, inner.arena[x.from:x.to]...)
		e.list = append(e.list, edit{at + d.index(x.start), at + d.index(x.end), from, len(e.arena)})
	}
}

// scanJoined looks for secrets that span lines of an event of an event stream: its data lines or,
// in a transcript of a stream, the lines that begin with "data:".
func (r *Redactor) scanJoined(e *edits, text []byte, event bool) {
	var d decodedText
	for i := 0; i < len(text); {
		k := bytes.IndexByte(text[i:], '\n')
		if k < 0 {
			d.text = append(d.text, text[i:]...)
			break
		}
		end := i + k
		next := end + 1
		if rest, ok := bytes.CutPrefix(text[next:], []byte("data:")); ok {
			next = len(text) - len(bytes.TrimPrefix(rest, []byte(" ")))
		} else if !event {
			d.text = append(d.text, text[i:next]...)
			i = next
			continue
		}
		if end > i && text[end-1] == '\r' {
			end--
		}
		d.text = append(d.text, text[i:end]...)
		d.skip(next)
		i = next
	}
	if len(d.origins) > 0 {
		r.scanDecoded(e, &d, 0, textMode{})
		e.normalize(0)
	}
}

// scanDataURL hides the data of a data URL, which begins at i, if it contains a secret. It returns
// the end of the data.
func (r *Redactor) scanDataURL(e *edits, text []byte, i int, how textMode) int {
	end := i
	for end < len(text) && base64Byte[text[end]] {
		end++
	}
	if how.depth < maxEncodings && r.secretIn(text[i:end], how.depth) {
		r.hide(e, i, end, "blob", text[i:end])
	}
	return end
}

var base64Byte = func() (t [256]bool) {
	for c := range t {
		t[c] = alnum(byte(c)) || c == '+' || c == '/' || c == '=' || c == '-' || c == '_'
	}
	return t
}()

// minBase64 is the length from which a string is examined as base64.
const minBase64 = 12

// maxUnnamedBase64 is the length up to which a string is examined because it looks like base64.
const maxUnnamedBase64 = 1 << 20

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
	if n, err := decodeBase64(first[:], text[:minBase64]); !blob && (err != nil || !printable(first[:n])) {
		return false
	}
	breaks := false
	for _, c := range text {
		if !base64Byte[c] {
			if breaks = c == '\r' || c == '\n'; !breaks {
				return false
			}
		}
	}
	if breaks = breaks || bytes.IndexByte(text, '\n') >= 0; breaks {
		text = bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("\r"), nil), []byte("\n"), nil)
	}
	return r.secretIn(text, depth)
}

// printable reports whether text may be the beginning of a text: UTF-8 without control characters.
func printable(text []byte) bool {
	for _, c := range text {
		if c < ' ' && c != '\n' && c != '\r' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return utf8.Valid(wholeRunes(text))
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
	if cap(plain) < min(len(b64), piece)+codeMargin {
		plain = make([]byte, 0, min(len(b64), piece)+codeMargin)
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
		e.reset()
		if utf8.Valid(wholeRunes(plain)) {
			r.scan(&e, plain, textMode{depth: depth + 1})
		} else {
			r.scan(&e, plain, textMode{depth: maxEncodings, prose: true})
		}
		if len(e.list) > 0 {
			return true
		}
		kept = copy(plain[:cap(plain)], plain[max(0, len(plain)-codeMargin/4):])
		plain = plain[:kept]
	}
	return false
}

// wholeRunes returns a text without incomplete characters at both ends.
func wholeRunes(text []byte) []byte {
	for i := 0; i < utf8.UTFMax-1 && len(text) > 0 && !utf8.RuneStart(text[0]); i++ {
		text = text[1:]
	}
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if c := text[len(text)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(text[len(text)-i:]) {
				text = text[:len(text)-i]
			}
			break
		}
	}
	return text
}
