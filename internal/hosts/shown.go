package hosts

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
)

// A veil covers what of a document is not to be shown.
type redactor struct {
	data         []byte
	mask         func([]string) []string
	replacements []splice // what is shown in place of strings
	literals     []splice // where strings and names are: what is between them may be a comment
}

// redactedLines returns the lines of a document without its secrets. Only what starts a server, or says where it is, is shown as it is.
func redactedLines(data []byte, root *node, mask func([]string) []string) []string {
	v := redactor{data: data, mask: mask}
	v.node(root, false)
	v.comments()
	slices.SortStableFunc(v.replacements, func(a, b splice) int { return a.start - b.start })
	var out []byte
	pos := 0
	for _, c := range v.replacements {
		if c.start < pos {
			continue
		}
		out = append(append(out, data[pos:c.start]...), c.text...)
		pos = c.end
	}
	return slices.Collect(strings.Lines(string(append(out, data[pos:]...))))
}

// shownKeys are the members of an entry whose texts are shown.
var shownKeys = []string{"type", "transport", "cwd", "envFile", "source"}

func (r *redactor) node(n *node, show bool) {
	switch n.kind {
	case kindObject:
		r.object(n)
	case kindArray:
		for _, e := range n.elems {
			r.node(e, show)
		}
	case kindString:
		r.literals = append(r.literals, splice{start: n.start, end: n.end})
		if !show {
			r.replace(n, Placeholder)
		}
	}
}

func (r *redactor) object(n *node) {
	server := looksLikeServer(n)
	if server {
		r.command(fieldsOf(n))
	}
	for _, m := range n.members {
		r.literals = append(r.literals, splice{start: m.keyStart, end: m.keyEnd})
		switch {
		case !server:
			r.node(m.value, false)
		case m.value.kind == kindString && slices.Contains(urlNames, m.name):
			r.node(m.value, true)
			if text := hideURL(m.value.text); text != m.value.text {
				r.replace(m.value, text)
			}
		case m.name == "command" && m.value.kind == kindObject:
			r.commandTable(m.value)
		default:
			r.node(m.value, m.name == "command" || m.name == "args" || slices.Contains(shownKeys, m.name))
		}
	}
}

// commandTable is the table that Zed had for commands.
func (r *redactor) commandTable(n *node) {
	for _, m := range n.members {
		r.literals = append(r.literals, splice{start: m.keyStart, end: m.keyEnd})
		r.node(m.value, m.name == "path" || m.name == "args")
	}
}

// command covers what mask hides of a command and its arguments.
func (r *redactor) command(f fields) {
	if r.mask == nil {
		return
	}
	var parts []*node
	for _, m := range []*member{f.command, f.args} {
		switch {
		case m == nil:
		case m.value.kind == kindString:
			parts = append(parts, m.value)
		case m.value.kind == kindArray:
			parts = append(parts, m.value.elems...)
		}
	}
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = p.text
	}
	shown := r.mask(slices.Clone(texts))
	for i, p := range parts {
		if i >= len(shown) || shown[i] != texts[i] {
			text := Placeholder
			if i < len(shown) {
				text = shown[i]
			}
			r.replace(p, text)
		}
	}
}

func (r *redactor) replace(n *node, text string) {
	if n.text == "" || n.end <= n.start {
		return
	}
	r.replacements = append(r.replacements, splice{n.start, n.end, `"` + text + `"`})
}

// commentSecrets are the parts of a comment that may be secrets: quoted texts, values, and long words.
var commentSecrets = regexp.MustCompile(`"[^"\n]*"?|'[^'\n]*'?|[^\s"'=:]{16,}|([=:][ \t]*)[^\s"']+`)

// comments covers secrets in the comments, which are between strings and names.
func (r *redactor) comments() {
	slices.SortFunc(r.literals, func(a, b splice) int { return a.start - b.start })
	pos := 0
	for _, k := range append(r.literals, splice{start: len(r.data), end: len(r.data)}) {
		for pos < k.start {
			i := bytes.IndexAny(r.data[pos:k.start], "#/")
			if i < 0 {
				break
			}
			start := pos + i
			end := "\n"
			if bytes.HasPrefix(r.data[start:], []byte("/*")) {
				end = "*/"
			}
			text := r.data[start:k.start]
			if j := bytes.Index(text, []byte(end)); j >= 0 {
				text = text[:j]
			}
			if shown := commentSecrets.ReplaceAll(text, []byte("${1}"+Placeholder)); !bytes.Equal(shown, text) {
				r.replacements = append(r.replacements, splice{start, start + len(text), string(shown)})
			}
			pos = start + max(1, len(text))
		}
		pos = max(pos, k.end)
	}
}
