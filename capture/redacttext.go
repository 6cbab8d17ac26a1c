package capture

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"math/bits"
	"strings"
	"unicode/utf8"
)

// Text is scanned in one pass over its words. A secret is recognized by its shape (prefixes of key
// issuers, the three parts of a JWT, a PEM block), by the word before it ("Bearer"), or by its name
// ("password: …", "?token=…", "--api-key …").

// wordByte marks the bytes of names and keys.
var wordByte = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.'
	}
	return t
}()

// wordEnd returns the end of the word that continues at i. It looks at eight letters at once.
func wordEnd(text []byte, i int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for {
		for i+8 <= len(text) {
			w := binary.LittleEndian.Uint64(text[i:])
			lower := (w | 0x20*ones) &^ highs
			// The high bit of a byte is set in w if it is not ASCII, in the first sum if it is at
			// least 'a', and in the second if it is greater than 'z'.
			others := (w | ^(lower + (0x80-'a')*ones) | (lower + (0x7f-'z')*ones)) & highs
			if others != 0 {
				i += bits.TrailingZeros64(others) / 8
				break
			}
			i += 8
		}
		if i == len(text) || !wordByte[text[i]] {
			return i
		}
		i++
	}
}

// A keyShape is the prefix of an issuer's keys and the minimum length of the rest.
type keyShape struct {
	prefix string
	tail   int
	// digit requires a digit after the prefix, since prose could begin with it.
	digit bool
}

var keyShapes = []keyShape{
	{"sk-", 16, true}, {"sk_live_", 8, false}, {"sk_test_", 8, false}, {"rk_live_", 8, false}, {"rk_test_", 8, false}, {"pk_live_", 8, false},
	{"whsec_", 8, false}, {"ghp_", 8, false}, {"gho_", 8, false}, {"ghu_", 8, false}, {"ghs_", 8, false}, {"ghr_", 8, false},
	{"github_pat_", 8, false}, {"glpat-", 8, false}, {"gldt-", 8, false}, {"glrt-", 8, false}, {"glptt-", 8, false},
	{"xoxb-", 8, false}, {"xoxa-", 8, false}, {"xoxp-", 8, false}, {"xoxr-", 8, false}, {"xoxs-", 8, false}, {"xoxe-", 8, false}, {"xoxe.", 8, false}, {"xoxc-", 8, false}, {"xoxd-", 8, false}, {"xapp-", 8, false},
	{"AKIA", 16, false}, {"ASIA", 16, false}, {"AIza", 30, false}, {"ya29.", 12, false}, {"GOCSPX-", 8, false}, {"1//", 20, false},
	{"npm_", 20, true}, {"pypi-", 30, false}, {"dop_v1_", 16, false}, {"SG.", 20, false}, {"hf_", 20, false}, {"gsk_", 20, false},
	{"shpat_", 16, false}, {"shpss_", 16, false}, {"lin_api_", 16, false}, {"ntn_", 20, false}, {"secret_", 30, true}, {"figd_", 16, false}, {"pplx-", 20, true}, {"r8_", 20, true},
	{"xai-", 20, true}, {"tvly-", 16, false}, {"nvapi-", 16, false}, {"sntrys_", 16, false}, {"sbp_", 20, true}, {"PMAK-", 16, false}, {"rnd_", 16, true}, {"vercel_", 20, true}, {"dckr_pat_", 8, false},
	{"hvs.", 20, false}, {"hvb.", 20, false}, {"AGE-SECRET-KEY-", 8, false}, {"atlasv1.", 20, false}, {"ATATT", 30, false}, {"sq0atp-", 8, false}, {"sq0csp-", 8, false}, {"EAAA", 40, true}, {"key-", 32, true},
}

// keyShapesByFirst indexes the shapes by their first byte.
var keyShapesByFirst = func() (t [256][]keyShape) {
	for _, s := range keyShapes {
		t[s.prefix[0]] = append(t[s.prefix[0]], s)
	}
	return t
}()

// A textMode says how to scan a text.
type textMode struct {
	// prose ignores names with values, which the text only describes. Shapes and credentials still
	// count.
	prose bool
	// noKnown reports that the text contains no known secret verbatim.
	noKnown bool
	// depth counts the encodings that were removed.
	depth int
}

// scanText adds to e the edits that hide the secrets in a text, normalized. It leaves earlier edits
// unchanged.
func (r *Redactor) scanText(e *edits, text []byte) { r.scan(e, text, textMode{}) }

func (r *Redactor) scan(e *edits, text []byte, how textMode) {
	from := len(e.list)
	if !how.noKnown {
		r.scanKnown(e, text)
	}
	r.scanPEM(e, text)
	// encoded reports that the text has an encoded character.
	encoded := false
	// triedTo is the end of the names with letters beyond ASCII that were examined.
	triedTo := 0
	// tablesTo is the index up to which first lines of tables were looked for.
	tablesTo := 0
	for i := 0; i < len(text); {
		if c := text[i]; !wordByte[c] {
			if specialByte[c] {
				encoded = encoded || isEncoded(text[i:])
				switch {
				case c == '~':
					if end := placeholderEnd(text, i); end > i {
						i = end
						continue
					}
				case how.prose:
				case c == '<':
					r.scanTag(e, text, i)
				case c >= 0x80 && i >= triedTo:
					if end := nameEnd(text, i); end > i {
						triedTo = end
						i = max(i+1, r.scanNonASCII(e, text, i, end))
						continue
					}
				}
			}
			i++
			continue
		}
		start := i
		i = wordEnd(text, i+1)
		if n := i - start; n < minShape && announcing[text[start]]>>n&1 == 0 {
			if i+1 < len(text) && text[i] == ' ' && wordByte[text[i+1]] {
				i++ // in front of another word, as most words of prose
				continue
			}
			if r.isOrdinary(text, start, i) {
				continue
			}
		}
		r.scanWord(e, text, start, i)
		if how.prose {
			r.scanProse(e, text, start, i)
			continue
		}
		if end := r.scanValue(e, text, start, i); end > i {
			i = end
		} else if end := r.scanPhrase(e, text, start, i, how); end > i {
			i = end
		} else if i < len(text) && text[i] >= 0x80 && i >= triedTo {
			if end := nameEnd(text, i); end > i {
				triedTo = end
				i = max(i, r.scanNonASCII(e, text, start, end))
			}
		} else if i >= tablesTo && i < len(text) && cellEndByte[text[i]] {
			tablesTo = r.scanTable(e, text, start, i)
		}
	}
	if encoded && how.depth < maxEncodings {
		r.scanEncoded(e, text, how)
	}
	if len(e.list) > from {
		e.normalize(from)
	}
}

// scanKnown hides known secrets.
func (r *Redactor) scanKnown(e *edits, text []byte) {
	for s := range r.known.all {
		for at := 0; ; {
			k := bytes.Index(text[at:], []byte(s))
			if k < 0 {
				break
			}
			at += k
			r.hide(e, at, at+len(s), "known", text[at:at+len(s)])
			at += len(s)
		}
	}
}

// hasKnown reports whether the text contains a known secret verbatim.
func (r *Redactor) hasKnown(text []byte) bool {
	for s := range r.known.all {
		if bytes.Contains(text, []byte(s)) {
			return true
		}
	}
	return false
}

var (
	pemBegin = []byte("-----BEGIN")
	pemEnd   = []byte("-----END")
	pemKey   = []byte("PRIVATE KEY")
	dashes   = []byte("-----")
)

// scanPEM hides private keys. It reports whether the last one has no end in the text.
func (r *Redactor) scanPEM(e *edits, text []byte) (open bool) {
	for at := 0; ; {
		k := bytes.Index(text[at:], pemBegin)
		if k < 0 {
			return false
		}
		start := at + k
		at = start + len(pemBegin)
		if head := text[at:min(at+64, len(text))]; !bytes.Contains(head, pemKey) {
			continue
		}
		end := len(text)
		if k := bytes.Index(text[at:], pemEnd); k >= 0 {
			end = pemEndOf(text, at+k)
		} else {
			open = true
		}
		r.hide(e, start, end, "pem", text[start:end])
		if at = end; open {
			return true
		}
	}
}

// pemEndOf returns the index after the line that begins with "-----END" at i.
func pemEndOf(text []byte, i int) int {
	i += len(pemEnd)
	if k := bytes.Index(text[i:], dashes); k >= 0 && k < 64 {
		return i + k + len(dashes)
	}
	return len(text)
}

// minShape is the least length of a word with the shape of a key.
const minShape = 12

// announcing has, for the first byte of a word, a bit for each length of the words that may
// announce a value without a separator: those of scanScheme and scanPhrase, and flags.
var announcing = func() (t [256]uint16) {
	for _, w := range []string{"bearer", "dpop", "basic", "base64", "by", "default", "form-data", "machine", "password"} {
		t[w[0]] |= 1 << len(w)
		t[w[0]-'a'+'A'] |= 1 << len(w)
	}
	t['-'] = 1<<minShape - 1
	return t
}()

// isOrdinary reports whether the word text[start:end], which is too short for a key and announces
// no value, is certainly not the name of a secret.
func (r *Redactor) isOrdinary(text []byte, start, end int) bool {
	if end == len(text) {
		return true
	}
	if c := text[end]; c >= utf8.RuneSelf || c == ':' && end+1 < len(text) && text[end+1] == '/' {
		return false
	}
	return r.endings.exclude(text[start:end])
}

// scanWord hides keys that are recognizable by their shape.
func (r *Redactor) scanWord(e *edits, text []byte, start, end int) {
	if end-start < minShape {
		return
	}
	w := text[start:end]
	in := wordParts{digit: start + bytes.LastIndexAny(w, "0123456789")}
	if k := bytes.LastIndexByte(w, '.'); k >= 0 {
		in.dot = start + bytes.LastIndexByte(w[:k], '.')
	}
	// After a backslash the first letter may end an escape, in JSON that is quoted twice.
	if start > 0 && text[start-1] == '\\' && r.shapeAt(e, text, start+1, end, in) {
		return
	}
	for i := start; i < end; i++ {
		if (i == start || !alnum(text[i-1])) && r.shapeAt(e, text, i, end, in) {
			return
		}
		for i+1 < end && alnum(text[i]) { // skip to the next separator
			i++
		}
	}
}

// wordParts are facts about a word that shapes need, computed once so that long words take linear
// time.
type wordParts struct {
	// digit is the index of the last digit.
	digit int
	// dot is the index of the last dot but one.
	dot int
}

func alnum(c byte) bool { return wordByte[c] && c != '_' && c != '-' && c != '.' }

// shapeAt hides the key that begins at i, if there is one. The word ends at end.
func (r *Redactor) shapeAt(e *edits, text []byte, i, end int, in wordParts) bool {
	tok := text[i:end]
	for _, s := range keyShapesByFirst[text[i]] {
		if len(tok) >= len(s.prefix)+s.tail && string(tok[:len(s.prefix)]) == s.prefix && (!s.digit || in.digit >= i+len(s.prefix)) {
			r.hide(e, i, end, "key", tok)
			return true
		}
	}
	if len(tok) >= 20 && string(tok[:3]) == "eyJ" && in.dot > i {
		r.hide(e, i, end, "jwt", tok)
		return true
	}
	return false
}

func hasDigit(b []byte) bool {
	return bytes.ContainsAny(b, "0123456789")
}

// scanScheme hides the credentials after the name of an HTTP authentication scheme, which is
// text[start:end]. It returns their end, or end.
func (r *Redactor) scanScheme(e *edits, text []byte, start, end int) int {
	var basic bool
	if c := text[start] | 0x20; c != 'b' && c != 'd' {
		return end
	}
	switch name := text[start:end]; {
	case bytes.EqualFold(name, []byte("bearer")), bytes.EqualFold(name, []byte("dpop")):
	case bytes.EqualFold(name, []byte("basic")):
		basic = true
	default:
		return end
	}
	from := end
	for from < len(text) && (text[from] == ' ' || text[from] == '\t') {
		from++
	}
	if from == end {
		return end
	}
	to := from
	for to < len(text) && (wordByte[text[to]] || text[to] == '~' || text[to] == '+' || text[to] == '/' || text[to] == '=') {
		to++
	}
	cred := text[from:to]
	if k := bytes.IndexByte(cred, '='); k >= 0 && (len(bytes.Trim(cred[k:], "=")) > 0 || to < len(text) && text[to] == '"') {
		return end // a parameter of a challenge
	}
	if basic {
		plain, err := base64.RawStdEncoding.AppendDecode(nil, bytes.TrimRight(cred[:min(len(cred), 4096)], "="))
		if len(cred) < 4 || err != nil || !bytes.Contains(plain, []byte{':'}) {
			return end
		}
		r.hide(e, from, to, "basic", cred)
		return to
	}
	if len(cred) < 8 || len(cred) < 16 && !hasDigit(cred) && !mixedCase(cred) {
		return end
	}
	r.hide(e, from, to, "bearer", cred)
	return to
}

func mixedCase(b []byte) bool {
	return !bytes.Equal(b, bytes.ToLower(b)) && !bytes.Equal(b, bytes.ToUpper(b))
}

// placeholderEnd returns the end of the placeholder that begins at i, or i.
func placeholderEnd(text []byte, i int) int {
	const longest = 64
	rest := text[i+1 : min(len(text), i+longest)]
	if k := bytes.IndexByte(rest, '~'); k >= 0 && isPlaceholder(text[i:i+k+2]) {
		return i + k + 2
	}
	return i
}

// isPlaceholder reports whether the whole text is a placeholder.
func isPlaceholder[T string | []byte](s T) bool {
	const head = "~redacted:"
	if len(s) > 64 || len(s) < len(head)+16 || string(s[:len(head)]) != head || s[len(s)-1] != '~' {
		return false
	}
	kind, rest, _ := strings.Cut(string(s[len(head):len(s)-1]), ":")
	sum, size, ok := strings.Cut(rest, ":")
	return ok && len(sum) == 12 && strings.Trim(sum, "0123456789abcdef") == "" && strings.Trim(kind, lowercase) == "" &&
		size != "" && strings.Trim(size, "0123456789") == ""
}

const lowercase = "abcdefghijklmnopqrstuvwxyz"

// scanValue hides the value of the name text[start:end]. It returns the index up to which the text
// needs no further scan, or end.
func (r *Redactor) scanValue(e *edits, text []byte, start, end int) int {
	if bytes.HasPrefix(text[end:], []byte("://")) {
		r.scanAuthority(e, text, start, end+3)
		return end + 3
	}
	if next := r.scanScheme(e, text, start, end); next > end {
		return next
	}
	sep, quoted := separator(text, start, end)
	if sep < 0 {
		return end
	}
	query := text[sep] == '=' && (start == 0 || bytes.IndexByte([]byte("?&#;"), text[start-1]) >= 0)
	name := r.classify(text[start:end], query)
	if name == nil && end-start == 3 && bytes.EqualFold(text[start:end], []byte("key")) {
		name = r.classify(twoWords(text, start, end), false)
	}
	if name == nil {
		return end
	}
	from, to := valueSpan(text, start, sep, valueForm{
		quotedName: quoted, query: query, line: name.kind == "auth" || name.kind == "cookie", tag: text[sep] == '>',
	})
	if !quoted && text[sep] == ':' {
		if f, t := indented(text, start, from, to); t > f {
			from, to = f, t
		}
	}
	if value := text[from:to]; !harmless(value, name) && name.hides(value) {
		r.hide(e, from, to, name.kind, value)
		return to
	}
	return end
}

// separator returns the index of the byte between a name and its value, or -1, and whether the name
// is quoted.
func separator(text []byte, start, end int) (i int, quoted bool) {
	i = end
	for i < len(text) && i < end+4 && text[i] == '\\' { // JSON in JSON
		i++
	}
	if i < len(text) && (text[i] == '"' || text[i] == '\'' || text[i] == '`') {
		quoted = true
		if i++; i < len(text) && text[i] == ']' { // environ['NAME'] = …
			i++
		}
	} else {
		i = end
	}
	if !quoted && i < len(text) && text[i] == '>' && start > 0 && text[start-1] == '<' {
		return i, false
	}
	for i < len(text) && i < end+8 && (text[i] == ' ' || text[i] == '\t') {
		i++
	}
	switch {
	case i == len(text):
		return -1, false
	case text[i] == ':' || text[i] == '=':
		return i, quoted
	case i > end && !quoted && text[start] == '-' && end-start > 3 && text[start+1] == '-' && text[i] != '-':
		return i - 1, false // --token abc
	}
	return -1, false
}

// twoWords returns text[start:end] together with the word before it, as in "api key".
func twoWords(text []byte, start, end int) []byte {
	i := start
	for i > 0 && text[i-1] == ' ' && i > start-2 {
		i--
	}
	for i > 0 && wordByte[text[i-1]] && i > start-16 {
		i--
	}
	return text[i:end]
}

// A valueForm describes the syntax of a value.
type valueForm struct {
	// quotedName reports that the name is quoted, as in JSON.
	quotedName bool
	// query marks a parameter of a URL or a form.
	query bool
	// line lets the value have spaces, up to the end of the line.
	line bool
	// tag ends the value at the next tag.
	tag bool
}

// valueSpan returns the bounds of the value after the separator.
func valueSpan(text []byte, start, sep int, form valueForm) (from, to int) {
	from = sep + 1
	// Skip the rest of := and =>.
	for text[sep] != ' ' && from < len(text) && (text[from] == '=' || text[from] == '>') {
		from++
	}
	for from < len(text) && (text[from] == ' ' || text[from] == '\t') {
		from++
	}
	if form.quotedName {
		from = quoteBelow(text, from)
	}
	if i := from; i < len(text) {
		for i < len(text) && i < from+4 && text[i] == '\\' {
			i++
		}
		if i < len(text) && (text[i] == '"' || text[i] == '\'' || text[i] == '`') {
			return i + 1, quoteEnd(text, i+1, text[i], i-from)
		}
	}
	if structural(text[from:]) {
		return from, bracketEnd(text, from)
	}
	var open byte // the quote before the name
	if start > 0 && !form.quotedName && (text[start-1] == '"' || text[start-1] == '\'') {
		open = text[start-1]
	}
	for to = from; to < len(text); to++ {
		c := text[to]
		switch {
		case c == '\n', c == '\r', c == open && open != 0:
			return from, to
		case form.tag:
			if c == '<' {
				return from, to
			}
		case form.line:
		case c == ' ', c == '\t',
			form.quotedName && (c == ',' || c == '}' || c == ']'),
			form.query && (c == '&' || c == '#' || c == '"' || c == '\'' || c == '<' || c == '>'):
			return from, to
		}
	}
	return from, to
}

// quoteBelow returns the index of the quote that begins the value on the next line, or i.
func quoteBelow(text []byte, i int) int {
	if i == len(text) || text[i] != '\n' && text[i] != '\r' {
		return i
	}
	for k := i; k < len(text) && k < i+256; k++ {
		switch text[k] {
		case ' ', '\t', '\r', '\n':
		case '"', '\'':
			return k
		default:
			return i
		}
	}
	return i
}

// indented returns the bounds of a YAML value on the lines below its name: one word or, if
// text[from:to] announces a block, all lines with a deeper indent. The name begins at start.
func indented(text []byte, start, from, to int) (int, int) {
	block := false
	if head := text[from:to]; len(head) > 0 {
		if head[0] != '|' && head[0] != '>' || len(bytes.Trim(head[1:], "+-"+digits)) > 0 {
			return 0, 0
		}
		block = true
	}
	for to < len(text) && (text[to] == ' ' || text[to] == '\t' || text[to] == '\r') {
		to++
	}
	if to == len(text) || text[to] != '\n' {
		return 0, 0
	}
	base := indent(text[bytes.LastIndexByte(text[:start], '\n')+1:])
	end := to
	for end < len(text) {
		line := text[end+1:]
		if k := bytes.IndexByte(line, '\n'); k >= 0 {
			line = line[:k]
		}
		if blank := len(bytes.TrimSpace(line)) == 0; !blank && indent(line) <= base || blank && !block {
			break
		}
		if !block {
			value := bytes.TrimSpace(line)
			value = bytes.TrimSpace(bytes.TrimPrefix(value, []byte("- ")))
			if quoted := value[0] == '"' || value[0] == '\''; !quoted && bytes.ContainsAny(value, " \t") || value[len(value)-1] == ':' {
				break
			}
		}
		end += 1 + len(line)
	}
	from = to
	for from < end && (text[from] == '\n' || text[from] == '\r' || text[from] == ' ' || text[from] == '\t') {
		from++
	}
	for end > from && (text[end-1] == '\n' || text[end-1] == '\r') {
		end--
	}
	return from, end
}

// indent returns the indent of a line, including the dash of a list element.
func indent(line []byte) int {
	n := 0
	for n < len(line) && (line[n] == ' ' || line[n] == '\t' || line[n] == '-' && n+1 < len(line) && line[n+1] == ' ') {
		n++
	}
	return n
}

// quoteEnd returns the end of the quoted text that begins at i: the next quote with no more
// backslashes before it than the opening one, or the end of the text.
func quoteEnd(text []byte, i int, quote byte, slashes int) int {
	for k := i; k < len(text); k++ {
		if text[k] != quote {
			continue
		}
		n := 0
		for k-n-1 >= i && text[k-n-1] == '\\' {
			n++
		}
		if n <= slashes {
			return k - n
		}
		if slashes == 0 && n%2 == 0 {
			return k
		}
	}
	return len(text)
}

// structural reports whether the text begins with an object or an array.
func structural(text []byte) bool {
	return len(text) > 0 && (text[0] == '{' || text[0] == '[') &&
		(len(text) == 1 || bytes.IndexByte([]byte("\"'{}[]\\\r\n\t "), text[1]) >= 0)
}

// bracketEnd returns the end of the object or array at i, or of the text. It may be JSON in JSON.
func bracketEnd(text []byte, i int) int {
	depth, quoted := 0, false
	// slashes is the number of backslashes before the first quote.
	slashes := -1
	for run := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\':
			run++
			continue
		case c == '"':
			if slashes < 0 {
				slashes = run
			}
			if run <= slashes || !quoted {
				quoted = !quoted
			}
		case quoted:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		run = 0
	}
	return i
}

// harmless reports whether a value is certainly not a secret.
func harmless(v []byte, name *secretName) bool {
	if len(v) == 0 || isPlaceholder(v) {
		return true
	}
	switch string(v) {
	case "null", "true", "false", "undefined", "None", "|", "|-", "|+", ">", ">-", ">+", "null,", "true,", "false,":
		return true
	}
	if len(v) > 3 && v[0] == '$' && v[1] == '{' && v[len(v)-1] == '}' && len(bytes.TrimFunc(v[2:len(v)-1], func(c rune) bool { return c < 128 && wordByte[c] || c == ':' })) == 0 {
		return true // the name of a variable
	}
	return !name.number && len(v) < 6 && len(bytes.Trim(v, "0123456789")) == 0
}

// scanAuthority hides the user and password of a URL, and the path of one that is itself a secret.
// The scheme begins at start; i is after "://".
func (r *Redactor) scanAuthority(e *edits, text []byte, start, i int) {
	stop := " \t\r\n\"'<>`"
	scheme := string(bytes.ToLower(text[start : i-3]))
	if scheme == "http" || scheme == "https" || i < len(text) && text[i] == '/' {
		stop += "/?#\\" // other schemes allow these in passwords
	}
	end := i
	for end < len(text) && end < i+4096 && strings.IndexByte(stop, text[end]) < 0 {
		end++
	}
	host := i
	if at := bytes.LastIndexByte(text[i:end], '@'); at > 0 {
		host = i + at + 1
		user := text[i : i+at]
		// With HTTP, the user alone may be a token. Elsewhere, it is a name or part of a path, such
		// as in ssh://git@host and docs://readme/@scope/name.
		if secret := strings.Contains(scheme, "http") || bytes.IndexByte(user, ':') >= 0 || isToken(string(user)); secret && !isPlaceholder(user) {
			r.hide(e, i, i+at, "userinfo", user)
		}
	}
	for _, hook := range secretPaths {
		if bytes.HasPrefix(text[host:], []byte(hook)) {
			from := host + len(hook)
			to := from
			for to < len(text) && (wordByte[text[to]] || text[to] == '/') {
				to++
			}
			if to > from {
				r.hide(e, from, to, "hook", text[from:to])
			}
		}
	}
}

// secretPaths are the addresses of webhooks with a secret path.
var secretPaths = []string{"hooks.slack.com/services/", "discord.com/api/webhooks/", "discordapp.com/api/webhooks/", "mcp.zapier.com/api/mcp/s/", "hooks.zapier.com/hooks/catch/"}

// A table names its values in its first line. CSV, with a comma, a semicolon or a tab between
// cells, is distinguished from prose by following lines with the same number of cells; Markdown and
// the output of database shells by a line of dashes.

const (
	maxTableHead = 2 << 10 // bytes of a first line
	maxTableRow  = 64 << 10
	maxColumns   = 128
)

// separators are the bytes between the cells of tables.
const separators = ",;\t|"

// cellEndByte marks the bytes that may follow a name in the first line.
var cellEndByte = func() (t [256]bool) {
	for _, c := range []byte(separators + "\"' \r\n") {
		t[c] = true
	}
	return t
}()

// scanTable hides the columns with names of secrets, if the word text[start:end] ends such a name
// in the first line of a table. It returns the index before which no other word belongs to that
// line.
func (r *Redactor) scanTable(e *edits, text []byte, start, end int) int {
	if r.endings.exclude(text[start:end]) {
		return end
	}
	from, to, delim := cellAround(text, start, end)
	if delim == 0 {
		return end
	}
	if r.classify(text[from:to], false) == nil {
		return end
	}
	head := bytes.LastIndexByte(text[max(0, start-maxTableHead):start], '\n') + 1 + max(0, start-maxTableHead)
	if start-head >= maxTableHead {
		return end
	}
	names, at := tableRow(text, head, delim)
	if len(names) < 2 || at == len(text) {
		return max(at, end)
	}
	secrets := make([]*secretName, len(names))
	for i, cell := range names {
		if cell.from == cell.to || cell.to-cell.from > 64 {
			return at
		}
		secrets[i] = r.classify(text[cell.from:cell.to], false)
	}
	first := at
	if delim == '|' {
		if first = skipDashes(text, at); first == at {
			return at
		}
	} else if before, _ := tableRow(text, prevLineStart(text, head), delim); head > 0 && len(before) == len(names) {
		return at // it is itself a row
	}
	for next := first; next < len(text); {
		cells, behind := tableRow(text, next, delim)
		if len(cells) != len(names) {
			break
		}
		for i, cell := range cells {
			if value := text[cell.from:cell.to]; secrets[i] != nil && !harmless(value, secrets[i]) && secrets[i].hides(value) {
				r.hide(e, cell.from, cell.to, secrets[i].kind, value)
			}
		}
		next = behind
	}
	return at
}

// cellAround returns the bounds of the table cell that ends with the word text[start:end], and the
// byte between cells, or 0 without one.
func cellAround(text []byte, start, end int) (from, to int, delim byte) {
	const maxName = 40
	i := end
	if i < len(text) && (text[i] == '"' || text[i] == '\'') {
		i++
	}
	for i < len(text) && i < end+maxName && text[i] == ' ' {
		i++
	}
	if i == len(text) || bytes.IndexByte([]byte(separators+"\r\n"), text[i]) < 0 {
		return 0, 0, 0
	}
	if bytes.IndexByte([]byte(separators), text[i]) >= 0 {
		delim = text[i]
	}
	from = start
	for from > 0 && from > start-maxName && (wordByte[text[from-1]] || text[from-1] == ' ') {
		from--
	}
	k := from
	if k > 0 && (text[k-1] == '"' || text[k-1] == '\'') {
		k--
	}
	if k > 0 && text[k-1] != '\n' {
		before := text[k-1]
		if bytes.IndexByte([]byte(separators), before) < 0 || delim != 0 && delim != before {
			return 0, 0, 0
		}
		delim = before
	}
	for from < start && text[from] == ' ' {
		from++
	}
	return from, end, delim
}

// A tableCell has the bounds of a cell's text, without its quotes.
type tableCell struct{ from, to int }

// tableRow returns the cells of the line that begins at i, and the start of the next line. It
// returns no cells if the line or a quoted cell is too long.
func tableRow(text []byte, i int, delim byte) (cells []tableCell, next int) {
	limit := min(len(text), i+maxTableRow)
	if delim == '|' {
		for i < limit && (text[i] == ' ' || text[i] == '|') {
			if i++; text[i-1] == '|' {
				break
			}
		}
	}
	for {
		for i < limit && text[i] == ' ' {
			i++
		}
		cell := tableCell{i, i}
		if delim != '|' && i < limit && text[i] == '"' {
			cell.from = i + 1
			for i++; i < limit && text[i] != '"' || i+1 < limit && text[i+1] == '"'; i++ {
				if text[i] == '"' {
					i++ // a doubled quote
				}
			}
			cell.to = min(i, limit)
			if i < limit {
				i++
			}
			for i < limit && (text[i] == ' ' || text[i] == '\r') {
				i++
			}
			if i < limit && text[i] != delim && text[i] != '\n' {
				return nil, nextLineStart(text, i)
			}
		} else {
			for i < limit && text[i] != delim && text[i] != '\n' {
				if delim == '|' && text[i] == '\\' && i+1 < limit && text[i+1] == '|' {
					i++
				}
				i++
			}
			cell.to = cell.from + len(bytes.TrimRight(text[cell.from:i], " \t\r"))
		}
		if i >= limit && limit < len(text) {
			return nil, nextLineStart(text, limit)
		}
		over := i >= limit || text[i] == '\n'
		// Markdown may end the line with a bar.
		if !over || delim != '|' || cell.from < cell.to {
			if cells = append(cells, cell); len(cells) > maxColumns {
				return nil, nextLineStart(text, i)
			}
		}
		if over {
			return cells, min(i+1, len(text))
		}
		i++
	}
}

// nextLineStart returns the start of the line after the one with text[i].
func nextLineStart(text []byte, i int) int {
	if k := bytes.IndexByte(text[i:], '\n'); k >= 0 {
		return i + k + 1
	}
	return len(text)
}

// prevLineStart returns the start of the line before the one at i, or i if that line is too long.
func prevLineStart(text []byte, i int) int {
	if i == 0 {
		return 0
	}
	from := max(0, i-1-maxTableHead)
	k := bytes.LastIndexByte(text[from:i-1], '\n')
	if k < 0 && from > 0 {
		return i
	}
	return from + k + 1
}

// skipDashes returns the start of the line after a line of dashes at i, or i
// for another line.
func skipDashes(text []byte, i int) int {
	next := nextLineStart(text, i)
	line := bytes.TrimSpace(text[i:next])
	if next-i > maxTableRow || !bytes.Contains(line, []byte("--")) && !bytes.Contains(line, []byte("-|")) || len(bytes.Trim(line, "-+|: \t")) > 0 {
		return i
	}
	return next
}
