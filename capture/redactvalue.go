package capture

import (
	"bytes"
	"strings"
)

// scanValue hides what text[start:end] is the name of. It returns the index up to which the text needs no further look, or end.
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
	name, ok := r.classify(text[start:end], query)
	if !ok && end-start == 3 && bytes.EqualFold(text[start:end], []byte("key")) {
		name, ok = r.classify(twoWords(text, start, end), false)
	}
	if !ok {
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

// separator returns the index of the byte that stands between a name and its value, or -1, and whether the name is quoted.
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

// twoWords returns the name that text[start:end] makes up with the word before it, as in "api key".
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

// A valueForm says what the value of a name may look like.
type valueForm struct {
	quotedName bool // as in JSON
	query      bool // of a URL or a form
	line       bool // it may have spaces, up to the end of the line
	tag        bool // it ends at the next tag
}

// valueSpan returns where the value behind the separator begins and ends.
func valueSpan(text []byte, start, sep int, form valueForm) (from, to int) {
	from = sep + 1
	for text[sep] != ' ' && from < len(text) && (text[from] == '=' || text[from] == '>') { // k:=v, k => v
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
	var open byte // the quote that the name stands behind
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

// indented returns the value of a name in YAML that stands on the lines below it: one word, or, if
// text[from:to] announces a block, all lines that are indented deeper. The name begins at start.
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

// indent counts the spaces that a line begins with, and the dash of an element of a list.
func indent(line []byte) int {
	n := 0
	for n < len(line) && (line[n] == ' ' || line[n] == '\t' || line[n] == '-' && n+1 < len(line) && line[n+1] == ' ') {
		n++
	}
	return n
}

// quoteEnd returns where the quoted text that begins at i ends: at the next quote that has no more backslashes before it than the opening one, or at the end.
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

// structural reports whether what follows is an object or an array.
func structural(text []byte) bool {
	return len(text) > 0 && (text[0] == '{' || text[0] == '[') &&
		(len(text) == 1 || bytes.IndexByte([]byte("\"'{}[]\\\r\n\t "), text[1]) >= 0)
}

// bracketEnd returns where the object or array at i ends: behind its bracket, or at the end of the text. It may be JSON in JSON.
func bracketEnd(text []byte, i int) int {
	depth, quoted := 0, false
	slashes := -1 // before each quote; as many as before the first
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

// harmless tells of values that are certainly no secret.
func harmless(v []byte, name secretName) bool {
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

// scanAuthority hides the user and password of a URL, and the path of one that is a secret as a whole. The scheme begins at start, i is behind "://".
func (r *Redactor) scanAuthority(e *edits, text []byte, start, i int) {
	stop := " \t\r\n\"'<>`"
	if scheme := string(bytes.ToLower(text[start : i-3])); scheme == "http" || scheme == "https" || i < len(text) && text[i] == '/' {
		stop += "/?#\\" // elsewhere passwords with these bytes are met
	}
	end := i
	for end < len(text) && end < i+4096 && strings.IndexByte(stop, text[end]) < 0 {
		end++
	}
	host := i
	if at := bytes.LastIndexByte(text[i:end], '@'); at > 0 {
		host = i + at + 1
		if !isPlaceholder(text[i : i+at]) {
			r.hide(e, i, i+at, "userinfo", text[i:i+at])
		}
	}
	for _, hook := range hooks {
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

// hooks are addresses whose path is all that it takes to use them.
var hooks = []string{"hooks.slack.com/services/", "discord.com/api/webhooks/", "discordapp.com/api/webhooks/", "mcp.zapier.com/api/mcp/s/", "hooks.zapier.com/hooks/catch/"}
