package filter

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// A SyntaxError describes an error in a filter, its position and how to fix it.
type SyntaxError struct {
	// Column is the position in characters, from 1.
	Column  int    `json:"at"`
	Message string `json:"message"`
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("filter, column %d: %s", e.Column, e.Message)
}

const maxDepth = 50 // nesting of parentheses and signs

// Parse parses a filter. The error is a *[SyntaxError]. A text without terms makes a filter that
// matches all.
func Parse(text string) (*Filter, error) {
	p := &parser{src: text, f: &Filter{source: strings.TrimSpace(text)}}
	if !utf8.ValidString(text) {
		return nil, p.errorAt(0, "the filter is not UTF-8")
	}
	root, err := p.parseAny(0)
	if err == nil && p.pos < len(p.src) {
		err = p.errorAt(p.pos, `")" without "(": to search for the character, put it in quotes: "\")\""`)
	}
	if err != nil {
		return nil, err
	}
	p.f.root = root
	return p.f, nil
}

type parser struct {
	src string
	pos int
	f   *Filter
}

func (p *parser) errorAt(at int, format string, args ...any) error {
	return &SyntaxError{Column: utf8.RuneCountInString(p.src[:min(at, len(p.src))]) + 1, Message: fmt.Sprintf(format, args...)}
}

func (p *parser) skipSpace() {
	p.pos = len(p.src) - len(strings.TrimLeftFunc(p.src[p.pos:], unicode.IsSpace))
}

// orOperator consumes the next token if it is an "or" operator, and reports whether it was.
func (p *parser) orOperator() bool {
	p.skipSpace()
	rest := p.src[p.pos:]
	if strings.HasPrefix(rest, "|") {
		p.pos++
		return true
	}
	after, found := strings.CutPrefix(rest, "or")
	if !found || after != "" && !strings.ContainsFunc(after[:1], unicode.IsSpace) && after[0] != '(' {
		return false
	}
	p.pos += len("or")
	return true
}

// parseAny parses lists of terms separated by "or".
func (p *parser) parseAny(depth int) (node, error) {
	if depth > maxDepth {
		return nil, p.errorAt(p.pos, "parentheses are nested too deeply")
	}
	var list or
	for {
		from := p.pos
		all, err := p.parseAll(depth)
		if err != nil {
			return nil, err
		}
		list = append(list, all)
		more := p.orOperator()
		if len(all) == 0 && (more || len(list) > 1) {
			return nil, p.errorAt(from, `a term is missing next to "|" or "or": to search for the text itself, put it in quotes`)
		}
		switch {
		case more:
		case len(list) > 1:
			return list, nil
		case len(all) == 1:
			return all[0], nil
		default:
			return all, nil
		}
	}
}

// parseAll parses terms up to the end, a ")" or an "or" operator.
func (p *parser) parseAll(depth int) (and, error) {
	list := and{}
	for {
		before := p.pos
		if p.orOperator() {
			p.pos = before
			return list, nil
		}
		p.skipSpace()
		if p.pos == len(p.src) || p.src[p.pos] == ')' {
			return list, nil
		}
		t, err := p.parseTerm(depth)
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
}

func (p *parser) parseTerm(depth int) (node, error) {
	start := p.pos
	if depth > maxDepth {
		return nil, p.errorAt(start, "operators are nested too deeply")
	}
	switch p.src[p.pos] {
	case '-':
		p.pos++
		if p.pos == len(p.src) || strings.ContainsRune(" \t|)", rune(p.src[p.pos])) {
			return nil, p.errorAt(start, `"-" must precede the term to exclude: to search for the character, put it in quotes`)
		}
		x, err := p.parseTerm(depth + 1)
		return not{x}, err
	case '(':
		p.pos++
		x, err := p.parseAny(depth + 1)
		if err != nil {
			return nil, err
		}
		if p.pos == len(p.src) {
			return nil, p.errorAt(start, `"(" without ")": to search for the character, put it in quotes`)
		}
		p.pos++
		return x, nil
	case '/':
		re, err := p.regex()
		if err != nil {
			return nil, err
		}
		return p.addPayloadTerm(start, regexScan{re.re})
	case '"':
		s, err := p.quoted()
		if err != nil {
			return nil, err
		}
		return p.textTerm(start, s)
	}
	if name, op := p.fieldName(); op != "" {
		return p.namedTerm(start, name, op)
	}
	s := p.unquoted()
	if err := p.expectEnd(); err != nil {
		return nil, err
	}
	return p.textTerm(start, s)
}

// fieldName consumes a field name and the operator behind it. op is empty without a field.
func (p *parser) fieldName() (name, op string) {
	rest := p.src[p.pos:]
	n := 0
	for n < len(rest) && (rest[n] >= 'a' && rest[n] <= 'z' || rest[n] >= 'A' && rest[n] <= 'Z') {
		n++
	}
	name = strings.ToLower(rest[:n])
	if n == 0 || n == len(rest) || strings.IndexByte(":<>=", rest[n]) < 0 {
		return "", ""
	}
	op = rest[n : n+1]
	if op == ":" && strings.HasPrefix(rest[n+1:], "=") {
		op = ":="
	}
	if op[0] != ':' {
		if name != "dur" && name != "size" {
			return "", ""
		}
		if strings.HasPrefix(rest[n+1:], "=") && op != "=" {
			op += "="
		}
	}
	p.pos += n + len(op)
	return name, op
}

// unquoted consumes text without quotes.
func (p *parser) unquoted() string {
	rest := p.src[p.pos:]
	n := strings.IndexFunc(rest, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(`"()|`, r) })
	if n < 0 {
		n = len(rest)
	}
	p.pos += n
	return rest[:n]
}

// quoted consumes text in quotes. A backslash escapes a quote or a backslash.
func (p *parser) quoted() (string, error) {
	start := p.pos
	var b strings.Builder
	for i := p.pos + 1; i < len(p.src); i++ {
		switch c := p.src[i]; {
		case c == '"':
			p.pos = i + 1
			return b.String(), p.expectEnd()
		case c == '\\' && i+1 < len(p.src) && (p.src[i+1] == '"' || p.src[i+1] == '\\'):
			i++
			b.WriteByte(p.src[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", p.errorAt(start, "the quote is not closed: a second \" is missing")
}

// expectEnd returns an error unless the term ends here.
func (p *parser) expectEnd() error {
	if rest := p.src[p.pos:]; rest != "" && !strings.ContainsAny(rest[:1], " \t\r\n|)") && strings.IndexFunc(rest, unicode.IsSpace) != 0 {
		return p.errorAt(p.pos, "a space is missing between two terms")
	}
	return nil
}

func (p *parser) textTerm(start int, s string) (node, error) {
	if s == "" {
		return nil, p.errorAt(start, "the text to search for is missing")
	}
	return p.addPayloadTerm(start, newWordScan(s))
}

// addPayloadTerm adds a payload term with its own bit.
func (p *parser) addPayloadTerm(start int, s scan) (node, error) {
	bit := len(p.f.scans)
	if bit == maxScans {
		return nil, p.errorAt(start, "more than %d terms about payloads", maxScans)
	}
	p.f.scans = append(p.f.scans, s)
	return payloadTerm{bit}, nil
}

func (p *parser) namedTerm(start int, name, op string) (node, error) {
	switch name {
	case "dur", "size":
		if op[0] == ':' {
			op = "="
		}
		return p.comparisonTerm(name, op)
	case "n":
		return p.rangeTerm()
	case "has":
		return p.hasTerm(start)
	case "jq":
		return p.jqTerm(start)
	}
	exact := op == ":="
	f := Field(name)
	if !slices.Contains(Fields(), f) {
		return nil, p.errorAt(start, "unknown field %q: want one of %s, n, has, jq, dur> and size>. To search for the text itself, put it in quotes", name, fieldList())
	}
	at := p.pos
	v, err := p.fieldPattern(f, exact)
	if err != nil {
		return nil, err
	}
	if f == Status && v.re == nil && !v.glob {
		v.str = statusValue(v.str)
	}
	if err := checkValue(f, v); err != "" {
		return nil, p.errorAt(at, "%s", err)
	}
	return fieldTerm{f, v}, nil
}

// statusValue returns the value for a word that views show for a status.
func statusValue(word string) string {
	switch strings.NewReplacer(" ", "", "_", "", "-", "").Replace(word) {
	case "toolfailed", "failed":
		return "iserror"
	case "needsinput", "inputrequired":
		return "input_required"
	case "noresponse":
		return "unanswered"
	case "httperror":
		return "http"
	case "canceled":
		return "cancelled"
	}
	return word
}

func fieldList() string {
	var names []string
	for _, f := range Fields() {
		names = append(names, string(f))
	}
	return strings.Join(names, ", ")
}

// fieldPattern parses the value behind "field:", or with exact behind "field:=".
func (p *parser) fieldPattern(f Field, exact bool) (pattern, error) {
	start := p.pos
	if p.pos < len(p.src) {
		switch {
		case p.src[p.pos] == '/' && !exact:
			return p.regex()
		case p.src[p.pos] == '"':
			s, err := p.quoted()
			s = strings.ToLower(s)
			return pattern{str: s, part: !exact && matchesParts(f, s)}, err
		}
	}
	s := p.unquoted()
	if s == "" {
		return pattern{}, p.errorAt(start, "a value is missing after %s:, such as %s:%s", f, f, example(f))
	}
	if err := p.expectEnd(); err != nil {
		return pattern{}, err
	}
	s = strings.ToLower(s)
	if !exact && strings.Contains(s, "*") {
		return pattern{str: s, glob: true}, nil
	}
	return pattern{str: s, part: !exact && matchesParts(f, s)}, nil
}

// matchesParts reports whether a text matches values of a field that contain it. For other fields,
// whose values are numbers or words of a list, it matches only equal values.
func matchesParts(f Field, s string) bool {
	switch f {
	case Tool, Target, Method, Task, Server, Revision:
		return s != ""
	case Finding:
		return s != "" && !slices.Contains([]string{"error", "warning", "info"}, s)
	}
	return false
}

// regex parses a regular expression between slashes. A backslash escapes a slash, and "i" behind
// it ignores case.
func (p *parser) regex() (pattern, error) {
	start := p.pos
	var b strings.Builder
	i := p.pos + 1
	for ; i < len(p.src) && p.src[i] != '/'; i++ {
		if p.src[i] == '\\' && i+1 < len(p.src) {
			if p.src[i+1] != '/' {
				b.WriteByte('\\')
			}
			i++
		}
		b.WriteByte(p.src[i])
	}
	if i >= len(p.src) {
		return pattern{}, p.errorAt(start, `the regular expression has no "/" at its end: to search for the text itself, put it in quotes`)
	}
	p.pos = i + 1
	source, flags := b.String(), ""
	if strings.HasPrefix(p.src[p.pos:], "i") {
		flags = "(?i)"
		p.pos++
	}
	if err := p.expectEnd(); err != nil {
		return pattern{}, err
	}
	if source == "" {
		return pattern{}, p.errorAt(start, "the regular expression is empty")
	}
	re, err := regexp.Compile(flags + source)
	if err != nil {
		return pattern{}, p.errorAt(start, "%v", err)
	}
	return pattern{re: re}, nil
}

// Values returns the values of an enumerated field, or nil.
func Values(f Field) []string {
	switch f {
	case Dir:
		return []string{"c2s", "s2c"}
	case Era:
		return []string{"legacy", "modern"}
	case Side:
		return []string{"downstream", "upstream"}
	case Kind:
		return []string{"request", "notification", "response", "invalid", "progress", "log", "stdout", "stderr", "start", "exit", "eof", "http", "sse", "body", "gap", "note", "translate"}
	case Status:
		return []string{"ok", "error", "iserror", "input_required", "task", "cancelled", "pending", "unanswered", "http"}
	}
	return nil
}

func example(f Field) string {
	switch f {
	case ID, Session:
		return "1"
	case Tool, Target, Server:
		return "search"
	case Method:
		return "tools/call"
	case Task:
		return "*"
	case Revision:
		return "2025*"
	case Finding:
		return "error"
	}
	return Values(f)[0]
}

// checkValue returns an error text for a value that cannot match. A status can also be the number
// of an error or of HTTP.
func checkValue(f Field, v pattern) string {
	list := Values(f)
	if v.re != nil || v.glob || list == nil || slices.Contains(list, v.str) {
		return ""
	}
	also := ""
	if f == Status {
		if _, err := strconv.Atoi(v.str); err == nil {
			return ""
		}
		also = ", what views show for them, such as toolfailed and noresponse, an error code such as -32602, or an HTTP status such as 401"
	}
	return fmt.Sprintf("%s: unknown value %q: want one of %s%s", f, v.str, strings.Join(list, ", "), also)
}

// comparisonTerm parses the value behind dur or size.
func (p *parser) comparisonTerm(name, op string) (node, error) {
	start := p.pos
	s := strings.ToLower(p.unquoted())
	d, err := time.ParseDuration(s)
	v, ok, want := int64(d), err == nil && d >= 0, "a duration such as 500ms, 2s or 1m30s"
	if name == "size" {
		v, ok = parseSize(s)
		want = "a size such as 100, 10kB, 1MB or 4MiB"
	}
	if !ok {
		return nil, p.errorAt(start, "%s%s needs %s, not %q", name, op, want, s)
	}
	return comparison{name, op, v}, p.expectEnd()
}

// parseSize parses a number of bytes.
func parseSize(s string) (int64, bool) {
	unit := strings.TrimLeft(s, "0123456789.")
	n, err := strconv.ParseFloat(s[:len(s)-len(unit)], 64)
	if err != nil {
		return 0, false
	}
	factors := map[string]float64{
		"": 1, "b": 1, "k": 1e3, "kb": 1e3, "m": 1e6, "mb": 1e6, "g": 1e9, "gb": 1e9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30,
	}
	n *= factors[unit]
	return int64(n), factors[unit] > 0 && n < 1<<62
}

// rangeTerm parses a range of event numbers.
func (p *parser) rangeTerm() (node, error) {
	start := p.pos
	s := p.unquoted()
	from, to, ok := ParseRange(s)
	if !ok {
		return nil, p.errorAt(start, "n: needs a number, or a range such as 12-20 or 12-, not %q", s)
	}
	return eventRange{from, to}, p.expectEnd()
}

// ParseRange parses "12", "12-20" or "12-". The last means no upper limit.
func ParseRange(s string) (from, to uint64, ok bool) {
	first, last, isRange := strings.Cut(s, "-")
	from, err := strconv.ParseUint(first, 10, 64)
	if err != nil {
		return 0, 0, false
	}
	switch {
	case !isRange:
		return from, from, true
	case last == "":
		return from, ^uint64(0), true
	}
	to, err = strconv.ParseUint(last, 10, 64)
	return from, to, err == nil && from <= to
}
