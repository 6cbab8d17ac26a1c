package capture

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/lazyregexp"
)

// A scanner looks for secrets in a text, in one pass over its words. It recognizes a secret by
//
//   - its shape: the prefix of a key, the three parts of a JWT, a private key in PEM;
//   - a URL around it: user and password;
//   - the words around it: "Bearer …", "curl -u …", see [secretPlaces];
//   - its name: "password: …", "?token=…", "--api-key …", `<password>…`, and the lines below;
//   - the columns of a table, or the attributes of a tag, see redactnotation.go.
//
// A text with encoded characters is decoded and scanned again.
type scanner struct {
	r    *Redactor
	e    *edits
	text []byte
	textMode
	// open says what continues behind the end of the text.
	open openText
	// tableTo is the end of the last line that was examined as the first of a table.
	tableTo int
}

// An openText is a secret that continues in the next line of a stream of text.
type openText struct {
	// pem is the number of lines of a private key that may still come.
	pem int
	// name announces a value on the lines below it, or is nil.
	name *secretName
	// indent is that of the line with the name, and block marks a value of several lines.
	indent int
	block  bool
}

var wordByte, base64Byte, specialByte = func() (word, b64, special [256]bool) {
	for c := range word {
		wide := c == 0xC2 || c == 0xE2 || c == 0xE3 || c == 0xEF // begin signs more than letters
		word[c] = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.' || c >= 0x80 && !wide
		b64[c] = word[c] && c < 0x80 && c != '.' || c == '+' || c == '/' || c == '='
		special[c] = wide || c == '~' || c == '%' || c == '&' || c == '\\'
	}
	return
}()

func alnum(c byte) bool { return wordByte[c] && c < 0x80 && c != '_' && c != '-' && c != '.' }

// A textMode says how to scan a text.
type textMode struct {
	// prose ignores names with values, which the text only describes. Shapes and credentials still
	// count.
	prose bool
	// noKnown reports that the text contains no known secret.
	noKnown bool
	// depth counts the encodings that were removed.
	depth int
}

// scan adds to e the edits that hide the secrets in a text, normalized. It leaves earlier edits
// unchanged. It returns what continues behind the text, if that is a line of a stream.
func (r *Redactor) scan(e *edits, text []byte, how textMode) openText {
	s := scanner{r: r, e: e, text: text, textMode: how}
	from := len(e.list)
	if !how.noKnown {
		r.scanKnown(e, text)
	}
	s.privateKeys()
	s.words()
	if len(e.list) > from {
		e.normalize(from)
	}
	return s.open
}

func (s *scanner) hide(from, to int, label string) {
	s.e.hide(s.r, from, to, label, s.text[from:to])
}

// scanKnown hides known secrets.
func (r *Redactor) scanKnown(e *edits, text []byte) {
	for _, secret := range r.known {
		for at := 0; ; at += len(secret) {
			k := bytes.Index(text[at:], []byte(secret))
			if k < 0 {
				break
			}
			at += k
			e.hide(r, at, at+len(secret), "known", text[at:at+len(secret)])
		}
	}
}

// minShape is the least length of a word with the shape of a key.
const minShape = 12

// words scans the words.
func (s *scanner) words() {
	text, ends, encoded := s.text, s.r.ends, false
	for i := 0; i < len(text); {
		c := text[i]
		if c == '~' {
			i = max(i+1, placeholderEnd(text, i))
			continue
		}
		if specialByte[c] && isEncoded(text[i:]) {
			encoded = true
			i++
			continue
		}
		if !wordByte[c] && c < 0xE3 { // Others are letters.
			_, n := utf8.DecodeRune(text[i:])
			i += n
			continue
		}
		start, next := i, byte(0)
		for ; i < len(text); i++ {
			if next = text[i]; !wordByte[next] && (next < 0xE3 || !specialByte[next] || isEncoded(text[i:])) {
				break
			}
		}
		word := text[start:i]
		if len(word) >= minShape {
			s.shapes(start, i)
		}
		if !ends[endOf(word)] && c != '-' && (next != ':' || !bytes.HasPrefix(text[i:], []byte("://"))) {
			continue
		}
		i = s.word(start, i)
	}
	if encoded && s.depth < maxEncodings {
		s.decoded(decodeOne)
	}
}

// word hides what the word text[start:end] announces. It returns the index from which the scan
// continues.
func (s *scanner) word(start, end int) int {
	text := s.text
	if bytes.HasPrefix(text[end:], []byte("://")) {
		s.authority(start, end+3)
		return end + 3
	}
	if to := s.place(start, end); to > end || s.prose {
		return to
	}
	if end < len(text) && text[end] == ',' && start > 0 && text[start-1] == ';' && string(text[start:end]) == "base64" {
		to := end + 1
		for to < len(text) && base64Byte[text[to]] {
			to++
		}
		if s.depth < maxEncodings && s.r.secretIn(text[end+1:to], s.depth) {
			s.hide(end+1, to, "blob")
		}
		return to
	}
	if text[start] != '-' && end+1 < len(text) && text[end] == ' ' && wordByte[text[end+1]] {
		return end // before another word, as most words of prose
	}
	sep, quoted := separator(text, start, end)
	param := sep >= 0 && text[sep] == '=' && (start == 0 || bytes.IndexByte([]byte("?&#;"), text[start-1]) >= 0)
	query := param
	if param && start == 0 { // a form has several
		k := bytes.IndexAny(text[sep:], "& \n\"'")
		param = k >= 0 && text[sep+k] == '&'
	}
	name := s.r.classify(text[start:end], param)
	// This may be "api key".
	if end-start == 3 && name != nil && name.proof == provenIfRandom && start > 0 && text[start-1] == ' ' {
		two := text[wordBefore(text, start-1):end]
		if s := s.r.classify(two, false); s != nil || bytes.EqualFold(two, []byte("public key")) {
			name = s
		}
	}
	if sep >= 0 && name != nil {
		if to := s.value(start, end, sep, name, quoted, query); to > end {
			return to
		}
	}
	if sep >= 0 && text[sep] == '=' && slices.Contains(nameAttributes, string(bytes.ToLower(text[start:end]))) {
		if m := attributePattern().FindSubmatchIndex(text[sep+1 : min(len(text), sep+128)]); m != nil {
			from, to := group(m)
			if named := s.r.classify(text[sep+1+from:sep+1+to], true); named != nil {
				s.attribute(start, sep+1+to, named)
			}
		}
	} else if name != nil && start >= s.tableTo {
		s.table(start, end)
	}
	return end
}

// place hides a value that the word text[start:end] announces, see [secretPlaces]. It returns the
// end of the value, or end.
func (s *scanner) place(start, end int) int {
	const maxBefore = 1 << 10
	for _, p := range secretPlaces {
		for _, word := range p.words {
			at := start + len(word)
			flag := word[0] == '-'
			if at > end || at < end && !(flag && len(word) == 2) || !bytes.EqualFold(s.text[start:at], []byte(word)) || flag && string(s.text[start:at]) != word {
				continue
			}
			m := p.value().FindSubmatchIndex(s.text[at:min(len(s.text), at+maxSecret)])
			if m == nil || p.before != nil && !p.before().Match(s.text[max(0, start-maxBefore):start]) {
				continue
			}
			from, to := group(m)
			from, to = at+from, at+to
			if value := s.text[from:to]; p.isSecret(value) && (!s.prose || p.before == nil && (isToken(value) || isOpaque(value, ""))) {
				s.hide(from, to, p.label)
				return to
			}
		}
	}
	return end
}

// group returns the bounds of the first group that takes part in a match.
func group(m []int) (from, to int) {
	for m = m[2:]; m[0] < 0; m = m[2:] {
	}
	return m[0], m[1]
}

// random hides a word that looks random if the name of a secret is near it in the line, as in "the
// password of the user is …".
func (s *scanner) random(start, end int) {
	const near = 64
	around := s.text[max(0, start-near):min(len(s.text), end+near)]
	from := start - max(0, start-near)
	from = 1 + bytes.LastIndexByte(around[:from], '\n')
	around, _, _ = bytes.Cut(around[from:], []byte{'\n'})
	words := bytes.FieldsFunc(around, func(c rune) bool { return c < 0x80 && !wordByte[c] || c == '.' })
	for i, word := range words {
		// "API" and "key" are one name.
		for _, w := range [2][]byte{word, slices.Concat(words[max(0, i-1)], word)} {
			if name := s.r.classify(w, false); name != nil && name.proof <= provenAlways {
				s.hide(start, end, name.label)
				return
			}
		}
	}
}

// wordBefore returns the start of the word that ends at i, or i.
func wordBefore(text []byte, i int) int {
	least := max(0, i-64)
	for i > least && wordByte[text[i-1]] {
		i--
	}
	return i
}

// shapes hides keys with a recognizable shape in the word text[start:end].
func (s *scanner) shapes(start, end int) {
	from := start
	if start > 0 && s.text[start-1] == '\\' && shape(s.text[start+1:end]) != "" {
		from++ // The first letter ends an escape, in JSON that is quoted twice.
	}
	for i := from; i < end; i++ {
		if key := s.text[i:end]; i == from || !alnum(s.text[i-1]) {
			if label := shape(key); label != "" {
				s.hide(i, end, label)
				return
			}
		}
	}
	if word := bytes.TrimRight(s.text[start:end], "."); !s.prose && isRandom(word) {
		s.random(start, start+len(word))
	}
}

// shape returns the label of a key by its beginning, or "". It takes the same time for all lengths.
func shape(key []byte) string {
	const most = 1 << 10
	for _, p := range keyPrefixes[key[0]] {
		if len(key) >= len(p.text)+p.rest && string(key[:len(p.text)]) == p.text && (!p.digit || hasDigit(key[len(p.text):min(len(key), most)])) {
			return "key"
		}
	}
	if len(key) >= 20 && string(key[:3]) == "eyJ" && bytes.Count(key[:min(len(key), 8*most)], []byte{'.'}) > 1 {
		return "jwt"
	}
	return ""
}

// authority hides the user and password of a URL. The scheme begins at start; i is after "://".
func (s *scanner) authority(start, i int) {
	text := s.text
	scheme, user := string(bytes.ToLower(text[start:i-3])), userPattern
	if scheme == "http" || scheme == "https" || i < len(text) && text[i] == '/' {
		user = webUserPattern
	}
	if m := user().FindIndex(text[i:min(len(text), i+4096)]); m != nil {
		to := i + m[1] - 1
		user := text[i:to]
		_, password, named := bytes.Cut(user, []byte{':'})
		if !named {
			password = user
		}
		// With HTTP, the user alone may be a token. Elsewhere, it is a name or part of a path, such
		// as in ssh://git@host and docs://readme/@scope/name.
		secret := strings.Contains(scheme, "http") || named || isToken(user)
		if secret && standIn(password) < len(password) && (!s.prose || isToken(password) || isOpaque(password, "")) {
			s.hide(i, to, "userinfo")
		}
	}
}

// userPattern matches the user and password of a URL. In a URL of the web, some characters end them
// that other schemes allow in passwords.
var (
	userPattern    = lazyregexp.New("^[^ \t\r\n\"'<>`]+@")
	webUserPattern = lazyregexp.New("^[^ \t\r\n\"'<>`/?#\\\\]+@")
)

// separatorPattern matches what is between a name and its value, such as ": ", `": ` and `'] = `.
// JSON in JSON has backslashes.
var separatorPattern = lazyregexp.New("^(\\\\{0,4}[\"'`]\\]?)?[ \t]{0,8}[:=]")

// separator returns the index of the byte between a name and its value, or -1, and whether the name
// is quoted.
func separator(text []byte, start, end int) (i int, quoted bool) {
	rest := text[end:min(len(text), end+16)]
	if m := separatorPattern().FindSubmatchIndex(rest); m != nil {
		return end + m[1] - 1, m[2] >= 0
	}
	value := bytes.TrimLeft(rest, " \t")
	switch {
	case len(value) == 0:
	case value[0] == '>' && len(value) == len(rest) && start > 0 && text[start-1] == '<':
		return end, false
	case value[0] != '-' && len(value) < len(rest) && end-start > 3 && string(text[start:start+2]) == "--":
		return end + len(rest) - len(value) - 1, false // --token abc
	}
	return -1, false
}

// value hides the value after the separator, if it is a secret. The name is text[start:end]. quoted
// reports that it is quoted, as in JSON, and query that it looks like a parameter of a URL or a
// form. It returns the index from which the scan continues, or end.
func (s *scanner) value(start, end, sep int, name *secretName, quoted, query bool) int {
	text := s.text
	from, to, bare := valueSpan(text, start, sep, name, quoted, query)
	value := text[from:to]
	if len(value) == 1 && (value[0] == '{' || value[0] == '[') { // The next lines have names.
		return end
	}
	if text[sep] == ':' && bare && (len(value) == 0 || (value[0] == '|' || value[0] == '>') && len(bytes.Trim(value[1:], "+-"+digits)) == 0) {
		line, _, _ := bytes.Cut(text[to:], []byte{'\n'})
		if len(bytes.TrimSpace(line)) == 0 {
			head := max(0, start-maxIndent)
			head += bytes.LastIndexByte(text[head:start], '\n') + 1
			return max(end, s.below(to+len(line)+1, openText{name: name, indent: indent(text[head:start]), block: to > from}))
		}
	}
	if bare && name.hidesCode(value, text[from:]) || !bare && name.hides(value) {
		s.hide(from, to, name.label)
		return to
	}
	n := standIn(text[from:])
	if n == 0 && bare && isCode(value) { // a call with a secret
		line, _, _ := bytes.Cut(text[from:min(len(text), from+256)], []byte{'\n'})
		for _, m := range literalPattern().FindAllSubmatchIndex(line, -1) {
			if isOpaque(line[m[2]:m[3]], "") && name.hides(line[m[2]:m[3]]) {
				s.hide(from+m[2], from+m[3], name.label)
			}
		}
	}
	if n > 0 && (bare || n == len(value)) {
		return from + n
	}
	return end
}

// literalPattern matches a string in the source of a program.
var literalPattern = lazyregexp.New(`["'](\S*?)["']`)

const (
	// maxOpaque is the length up to which a value is examined that must look opaque or random.
	maxOpaque = 512
	// maxIndent is the length up to which the beginning of a line is looked for.
	maxIndent = 4 << 10
)

// valueSpan returns the bounds of the value after the separator. bare reports that it has neither
// quotes nor brackets.
func valueSpan(text []byte, start, sep int, name *secretName, quoted, query bool) (from, to int, bare bool) {
	from = sep + 1
	// Skip the rest of := and =>.
	for text[sep] != ' ' && from < len(text) && (text[from] == '=' || text[from] == '>') {
		from++
	}
	for from < len(text) && (text[from] == ' ' || text[from] == '\t') {
		from++
	}
	if name.proof > provenAlways {
		text = text[:min(len(text), from+maxOpaque)]
	}
	i := from
	for i < len(text) && i < from+4 && text[i] == '\\' {
		i++
	}
	if tag := text[sep] == '>'; !tag && i < len(text) && (text[i] == '"' || text[i] == '\'' || text[i] == '`') {
		return i + 1, quoteEnd(text, i+1, text[i], i-from), false
	}
	if to = structural(text, from); to > from {
		return from, to, false
	}
	var open byte // the quote before the name
	if start > 0 && !quoted && (text[start-1] == '"' || text[start-1] == '\'') {
		open = text[start-1]
	}
	stop := " \t\r\n"
	switch {
	case text[sep] == '>': // a tag
		stop = "<\r\n"
	case name.label == "auth" || name.label == "cookie": // in the head of a request
		stop = "\r\n"
	case quoted:
		stop += ",}]"
	case query:
		stop += "&#\"'<>"
	}
	for to = from; to < len(text) && strings.IndexByte(stop, text[to]) < 0 && (text[to] != open || open == 0); to++ {
	}
	return from, to, true
}

// below hides the value of a name on the lines below it, from the line at i on: one word, a list of
// words, or all lines of a block, which have a deeper indent. It returns the end of the value.
func (s *scanner) below(i int, o openText) int {
	text, from, to := s.text, -1, 0
	next := openText{}
	if o.name.proof <= provenAlways {
		next = o
	}
	if i > len(text) {
		s.open = next
	}
	for i < len(text) {
		line := text[i:]
		if k := bytes.IndexByte(line, '\n'); k >= 0 {
			line = line[:k]
		}
		value := bytes.TrimSpace(line)
		item := bytes.TrimSpace(bytes.TrimPrefix(value, []byte("- ")))
		if len(item) == 0 {
			if !o.block && from >= 0 {
				break
			}
		} else if word := !bytes.ContainsAny(item, " \t") && item[len(item)-1] != ':'; indent(line) <= o.indent {
			if from < 0 && word && isRandom(item) {
				from, to = i, i+len(line)
			}
			break
		} else if quote := item[0] == '"' || item[0] == '\''; !o.block && quote && from < 0 {
			from = i + bytes.IndexByte(line, item[0]) + 1
			to = quoteEnd(text, from, item[0], 0)
			break
		} else if !o.block && !word {
			break
		} else {
			if to = i + len(bytes.TrimRight(line, " \t\r")); from < 0 {
				from = i + bytes.Index(line, value)
			}
		}
		if i += len(line) + 1; i >= len(text) {
			s.open = next
		}
	}
	if from >= 0 && o.name.hides(text[from:to]) {
		s.hide(from, to, o.name.label)
		return to
	}
	return 0
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

// structural returns the end of the object or array at i, of the line if it is not JSON, or i for
// another text.
func structural(text []byte, i int) int {
	rest := text[i:]
	if len(rest) == 0 || rest[0] != '{' && rest[0] != '[' || len(rest) > 1 && bytes.IndexByte([]byte("\"'{}[]\\\r\n\t "), rest[1]) < 0 {
		return i
	}
	var s jsonwire.Scanner
	if s.Reset(rest, 0); s.Skip() == nil {
		return i + s.Pos()
	}
	line, _, _ := bytes.Cut(rest, []byte{'\n'})
	return i + len(line)
}

var (
	pemPattern = lazyregexp.New(`-----BEGIN[ A-Z0-9]{0,48}PRIVATE KEY(?s:.*?)(?:-----END(?:[^-]{0,64}-----)?|$)`)
	// pemLine matches a line that may belong to a private key, after any prefix of a logger.
	pemLine = lazyregexp.New(`^(?:(?:Proc-Type|DEK-Info):.*|(?:.*[^A-Za-z0-9+/=])?[A-Za-z0-9+/=]{16,}|[A-Za-z0-9+/=]*)["',;\\\s]*$`)
	pemEnd  = lazyregexp.New(`-----END(?:[^-]{0,64}-----)?`)
)

const (
	maxPEMLines = 400
	maxStreams  = 256
)

// privateKeys hides private keys in PEM.
func (s *scanner) privateKeys() {
	if !bytes.Contains(s.text, []byte("-----BEGIN")) {
		return
	}
	for _, m := range pemPattern().FindAllIndex(s.text, -1) {
		s.hide(m[0], m[1], "pem")
		if !pemEnd().Match(s.text[m[0]:m[1]]) {
			s.open.pem = maxPEMLines
		}
	}
}

// scanLine is scan for text that may be a line of a stream, which continues what is open.
func (r *Redactor) scanLine(e *edits, text []byte, open openText) openText {
	s := scanner{r: r, e: e, text: text}
	if open.pem > 0 {
		open.pem--
		if m := pemEnd().FindIndex(text); m != nil {
			s.hide(0, m[1], "pem")
			open.pem = 0
		} else if len(text) > 0 && pemLine().Match(text) {
			s.hide(0, len(text), "pem")
			return open
		} // Otherwise, another text came in between.
	}
	if open.name != nil {
		if len(bytes.TrimSpace(text)) == 0 {
			return open
		}
		if s.below(0, open) > 0 && s.open.name != nil {
			s.open.pem = open.pem
			return s.open
		}
	}
	next := r.scan(e, text, textMode{})
	if next.pem == 0 {
		next.pem = open.pem
	}
	return next
}

// placeholderPattern matches a placeholder.
var placeholderPattern = lazyregexp.New(`^~redacted:[a-z]+:[0-9a-f]{12}:[0-9]+~`)

// placeholderEnd returns the end of the placeholder that begins at i, or i.
func placeholderEnd[T string | []byte](text T, i int) int {
	return i + len(placeholderPattern().Find([]byte(text[i:min(len(text), i+64)])))
}

// isPlaceholder reports whether the whole text is a placeholder.
func isPlaceholder[T string | []byte](s T) bool {
	return len(s) > 0 && s[0] == '~' && placeholderEnd(s, 0) == len(s)
}
