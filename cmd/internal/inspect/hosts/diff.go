package hosts

import (
	"bytes"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"mcpwire/internal/text/lazyregexp"
	"mcpwire/internal/text/printable"
)

// Diff returns the changes that Save would make, as a unified diff for people, or "" if there are
// none. On all lines it replaces values of variables and headers, and everything else that does not
// start a server, by [Placeholder]. mask gets a command with its arguments and returns as many
// texts to show; a nil mask shows them unchanged. harmless reports whether a member of the document
// itself may be shown; if it is nil, none is. Control characters are escaped.
func (d *Document) Diff(mask func(command []string) []string, harmless func(name, value string) bool) string {
	out := d.Result()
	root, err := parse(out, d.syntax)
	if err != nil {
		// Save will report it.
		return ""
	}
	name := printable.Line(d.path)
	text := diff.Diff(name, shownText(d.data, d.root, mask, harmless), name, shownText(out, root, mask, harmless))
	_, text, _ = bytes.Cut(text, []byte("\n")) // the first line names the command diff
	return string(text)
}

// A redactor replaces the parts of a document that must not be shown.
type redactor struct {
	data     []byte
	mask     func([]string) []string
	harmless func(name, value string) bool
	// replacements are shown in place of strings.
	replacements []splice
	// literals locates strings and names. Text between them may be a comment.
	literals []splice
}

// shownText returns a document without secrets and control characters. Only parts that start or
// locate a server, and harmless members of the document itself, are shown unchanged.
func shownText(data []byte, root *node, mask func([]string) []string, harmless func(name, value string) bool) []byte {
	r := redactor{data: data, mask: mask, harmless: harmless}
	r.node(root, "", showHarmless)
	r.comments()
	var out []byte
	for line := range bytes.Lines(applied(data, r.replacements)) {
		line, end := bytes.CutSuffix(line, []byte("\n"))
		parts := strings.Split(strings.TrimSuffix(string(line), "\r"), "\t")
		for i, part := range parts {
			parts[i] = printable.Line(part)
		}
		out = append(out, strings.Join(parts, "\t")...)
		if end {
			out = append(out, '\n')
		}
	}
	return out
}

// shownKeys are the members of an entry with texts to show.
var shownKeys = []string{"type", "transport", "cwd", "envFile", "source"}

// A visibility says which strings of a node are shown.
type visibility uint8

const (
	showNone visibility = iota
	showHarmless
	showAll
)

// node handles the value of a member, or an element of its array.
func (r *redactor) node(n *node, name string, show visibility) {
	switch n.kind {
	case kindObject:
		if name != "" { // what is in it may be a secret because of the name
			show = showNone
		}
		r.object(n, show)
	case kindArray:
		for _, e := range n.elems {
			r.node(e, name, show)
		}
	case kindString:
		r.literals = append(r.literals, splice{start: n.start, end: n.end})
		if show == showNone || show == showHarmless && (r.harmless == nil || !r.harmless(name, n.text)) {
			r.replace(n, Placeholder)
		}
	}
}

func (r *redactor) object(n *node, show visibility) {
	server := looksLikeServer(n)
	if server {
		r.command(fieldsOf(n))
	}
	for _, m := range n.members {
		r.literals = append(r.literals, splice{start: m.keyStart, end: m.keyEnd})
		switch {
		case !server:
			r.node(m.value, m.name, show)
		case m.value.kind == kindString && slices.Contains(urlNames, m.name):
			r.node(m.value, m.name, showAll)
			if text := hideURL(m.value.text); text != m.value.text {
				r.replace(m.value, text)
			}
		case m.name == "command" && m.value.kind == kindObject:
			r.commandTable(m.value)
		case m.name == "command" || m.name == "args" || slices.Contains(shownKeys, m.name):
			r.node(m.value, m.name, showAll)
		default:
			r.node(m.value, m.name, showNone)
		}
	}
}

// commandTable handles the table that older versions of Zed use for a command.
func (r *redactor) commandTable(n *node) {
	for _, m := range n.members {
		r.literals = append(r.literals, splice{start: m.keyStart, end: m.keyEnd})
		show := showNone
		if m.name == "path" || m.name == "args" {
			show = showAll
		}
		r.node(m.value, m.name, show)
	}
}

// command replaces the command and arguments as mask says.
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

// commentSecrets matches possible secrets in comments: quoted texts, values and long words.
var commentSecrets = lazyregexp.New(`"[^"\n]*"?|'[^'\n]*'?|[^\s"'=:]{16,}|([=:][ \t]*)[^\s"']+`)

// comments replaces secrets in comments, which lie between strings and names.
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
			if shown := commentSecrets().ReplaceAll(text, []byte("${1}"+Placeholder)); !bytes.Equal(shown, text) {
				r.replacements = append(r.replacements, splice{start, start + len(text), string(shown)})
			}
			pos = start + max(1, len(text))
		}
		pos = max(pos, k.end)
	}
}
