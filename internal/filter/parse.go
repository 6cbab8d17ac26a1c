package filter

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A SyntaxError says what is wrong with a filter, where, and how to mend it.
type SyntaxError struct {
	Column  int // in characters, from 1
	Message string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("filter, column %d: %s", e.Column, e.Message)
}

const (
	maxText  = 8 << 10 // bytes of a filter
	maxDepth = 50      // parentheses and signs
	maxTerms = 200
)

// Parse reads a filter. The error is a *[SyntaxError]. A text without terms makes a filter that shows all.
func Parse(text string) (*Filter, error) {
	p := &parser{src: text, f: &Filter{}}
	if len(text) > maxText {
		return nil, p.errorAt(0, "the filter has %d bytes, the limit is %d", len(text), maxText)
	}
	if !utf8.ValidString(text) {
		return nil, p.errorAt(0, "the filter is not UTF-8")
	}
	root, err := p.parseAny(0)
	if err == nil && p.pos < len(p.src) {
		err = p.errorAt(p.pos, `")" without "(": to look for the character, put it in quotes: "\")\""`)
	}
	if err != nil {
		return nil, err
	}
	p.f.root = root
	return p.f, nil
}

type parser struct {
	src   string
	pos   int
	terms int
	f     *Filter
}

func (p *parser) errorAt(at int, format string, args ...any) error {
	return &SyntaxError{Column: utf8.RuneCountInString(p.src[:min(at, len(p.src))]) + 1, Message: fmt.Sprintf(format, args...)}
}

func isSpace(r rune) bool { return unicode.IsSpace(r) }

func (p *parser) skipSpace() {
	p.pos = len(p.src) - len(strings.TrimLeftFunc(p.src[p.pos:], isSpace))
}

// orOperator reports whether the next token is a sign for "or", and consumes it.
func (p *parser) orOperator() bool {
	p.skipSpace()
	rest := p.src[p.pos:]
	if strings.HasPrefix(rest, "|") {
		p.pos++
		return true
	}
	after, found := strings.CutPrefix(rest, "or")
	if !found || after != "" && !strings.ContainsFunc(after[:1], isSpace) && after[0] != '(' {
		return false
	}
	p.pos += len("or")
	return true
}

// parseAny reads lists of which one must hold.
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
			return nil, p.errorAt(from, `a term is missing beside "|" or "or": to look for the text itself, put it in quotes`)
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

// parseAll reads terms that must hold together, up to the end, a ")" or a sign for "or".
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
		if p.terms++; p.terms > maxTerms {
			return nil, p.errorAt(p.pos, "more than %d terms", maxTerms)
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
		return nil, p.errorAt(start, "signs are nested too deeply")
	}
	switch p.src[p.pos] {
	case '-':
		p.pos++
		if p.pos == len(p.src) || strings.ContainsRune(" \t|)", rune(p.src[p.pos])) {
			return nil, p.errorAt(start, `"-" stands before the term that must not hold: to look for the character, put it in quotes`)
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
			return nil, p.errorAt(start, `"(" without ")": to look for the character, put it in quotes`)
		}
		p.pos++
		return x, nil
	case '/':
		re, err := p.regex()
		if err != nil {
			return nil, err
		}
		return p.addPayloadTerm(start, regexScan{re.re}, re.source)
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

// fieldName consumes what stands before a value: a name with ":" or, for some, a sign of comparison. op is empty if there is none.
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
	if op != ":" {
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
	n := strings.IndexFunc(rest, func(r rune) bool { return isSpace(r) || strings.ContainsRune(`"()|`, r) })
	if n < 0 {
		n = len(rest)
	}
	p.pos += n
	return rest[:n]
}

// quoted consumes text in quotes, in which a backslash may stand before a quote or a backslash.
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
	return "", p.errorAt(start, "the quote is not closed: the text ends without a second \"")
}

// expectEnd complains if a term goes on behind its end.
func (p *parser) expectEnd() error {
	if rest := p.src[p.pos:]; rest != "" && !strings.ContainsAny(rest[:1], " \t\r\n|)") && strings.IndexFunc(rest, isSpace) != 0 {
		return p.errorAt(p.pos, "a space is missing between two terms")
	}
	return nil
}

func (p *parser) textTerm(start int, s string) (node, error) {
	if s == "" {
		return nil, p.errorAt(start, "there is no text to look for")
	}
	w := newWordScan(s)
	return p.addPayloadTerm(start, w, quoteWord(w.word))
}

// addPayloadTerm adds a term about payloads. Equal ones share a bit.
func (p *parser) addPayloadTerm(start int, s scan, source string) (node, error) {
	bit := len(p.f.scans)
	if bit == maxScans {
		return nil, p.errorAt(start, "more than %d terms about payloads", maxScans)
	}
	p.f.scans = append(p.f.scans, s)
	return payloadTerm{bit, source}, nil
}

func (p *parser) namedTerm(start int, name, op string) (node, error) {
	switch name {
	case "dur", "size":
		if op == ":" {
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
	f := Field(name)
	if !slices.Contains(Fields(), f) {
		return nil, p.errorAt(start, "there is no field %q; there are %s, n, has, jq, dur> and size>. To look for the text itself, put it in quotes", name, fieldList())
	}
	at := p.pos
	v, err := p.fieldPattern(f)
	if err != nil {
		return nil, err
	}
	if err := checkValue(f, v); err != "" {
		return nil, p.errorAt(at, "%s", err)
	}
	return fieldTerm{f, v}, nil
}

func fieldList() string {
	var names []string
	for _, f := range Fields() {
		names = append(names, string(f))
	}
	return strings.Join(names, ", ")
}
