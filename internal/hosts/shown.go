package hosts

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
)

// A veil covers what of a document is not to be shown.
type veil struct {
	data  []byte
	mask  func([]string) []string
	cover []splice // what is shown in place of strings
	known []splice // where strings and names are: what is between them may be a comment
}

// shownLines returns the lines of a document without its secrets. Only what starts a server, or says where it is, is shown as it is.
func shownLines(data []byte, root *node, mask func([]string) []string) []string {
	v := veil{data: data, mask: mask}
	v.node(root, false)
	v.comments()
	slices.SortStableFunc(v.cover, func(a, b splice) int { return a.start - b.start })
	var out []byte
	pos := 0
	for _, c := range v.cover {
		if c.start < pos {
			continue
		}
		out = append(append(out, data[pos:c.start]...), c.text...)
		pos = c.end
	}
	return slices.Collect(strings.Lines(string(append(out, data[pos:]...))))
}

// shownMembers are the members of an entry whose texts are shown.
var shownMembers = []string{"type", "transport", "cwd", "envFile", "source"}

func (v *veil) node(n *node, show bool) {
	switch n.kind {
	case kindObject:
		v.object(n)
	case kindArray:
		for _, e := range n.elems {
			v.node(e, show)
		}
	case kindString:
		v.known = append(v.known, splice{start: n.start, end: n.end})
		if !show {
			v.replace(n, Hidden)
		}
	}
}

func (v *veil) object(n *node) {
	server := looksLikeServer(n)
	if server {
		v.command(fieldsOf(n))
	}
	for _, m := range n.members {
		v.known = append(v.known, splice{start: m.keyStart, end: m.keyEnd})
		switch {
		case !server:
			v.node(m.value, false)
		case m.value.kind == kindString && slices.Contains(urlNames, m.name):
			v.node(m.value, true)
			if text := hideURL(m.value.text); text != m.value.text {
				v.replace(m.value, text)
			}
		case m.name == "command" && m.value.kind == kindObject:
			v.launch(m.value)
		default:
			v.node(m.value, m.name == "command" || m.name == "args" || slices.Contains(shownMembers, m.name))
		}
	}
}

// launch is the table that Zed had for commands.
func (v *veil) launch(n *node) {
	for _, m := range n.members {
		v.known = append(v.known, splice{start: m.keyStart, end: m.keyEnd})
		v.node(m.value, m.name == "path" || m.name == "args")
	}
}

// command covers what mask hides of a command and its arguments.
func (v *veil) command(f fields) {
	if v.mask == nil {
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
	shown := v.mask(slices.Clone(texts))
	for i, p := range parts {
		if i >= len(shown) || shown[i] != texts[i] {
			text := Hidden
			if i < len(shown) {
				text = shown[i]
			}
			v.replace(p, text)
		}
	}
}

func (v *veil) replace(n *node, text string) {
	if n.text == "" || n.end <= n.start {
		return
	}
	v.cover = append(v.cover, splice{n.start, n.end, `"` + text + `"`})
}

// commentSecrets are the parts of a comment that may be secrets: quoted texts, values, and long words.
var commentSecrets = regexp.MustCompile(`"[^"\n]*"?|'[^'\n]*'?|[^\s"'=:]{16,}|([=:][ \t]*)[^\s"']+`)

// comments covers secrets in the comments, which are between strings and names.
func (v *veil) comments() {
	slices.SortFunc(v.known, func(a, b splice) int { return a.start - b.start })
	pos := 0
	for _, k := range append(v.known, splice{start: len(v.data), end: len(v.data)}) {
		for pos < k.start {
			i := bytes.IndexAny(v.data[pos:k.start], "#/")
			if i < 0 {
				break
			}
			start := pos + i
			end := "\n"
			if bytes.HasPrefix(v.data[start:], []byte("/*")) {
				end = "*/"
			}
			text := v.data[start:k.start]
			if j := bytes.Index(text, []byte(end)); j >= 0 {
				text = text[:j]
			}
			if shown := commentSecrets.ReplaceAll(text, []byte("${1}"+Hidden)); !bytes.Equal(shown, text) {
				v.cover = append(v.cover, splice{start, start + len(text), string(shown)})
			}
			pos = start + max(1, len(text))
		}
		pos = max(pos, k.end)
	}
}
