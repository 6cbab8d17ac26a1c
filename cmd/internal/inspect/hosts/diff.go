package hosts

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"mcpwire/internal/text/lazyregexp"
	"mcpwire/internal/text/printable"
)

// diffContext is the number of lines shown around changes.
const diffContext = 3

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
	a, b := redactedLines(d.data, d.root, mask, harmless), redactedLines(out, root, mask, harmless)
	ops := compare(a, b)
	if !slices.ContainsFunc(ops, func(o op) bool { return o.kind != ' ' }) {
		return ""
	}
	var w strings.Builder
	w.WriteString("--- " + printable.Line(d.path) + "\n+++ " + printable.Line(d.path) + "\n")
	for i := 0; i < len(ops); {
		if ops[i].kind == ' ' {
			i++
			continue
		}
		from, to := max(0, i-diffContext), i
		for gap := 0; to < len(ops) && gap <= 2*diffContext; to++ {
			if gap++; ops[to].kind != ' ' {
				gap = 0
			}
		}
		last := to - 1
		for ops[last].kind == ' ' {
			last--
		}
		to = min(len(ops), last+1+diffContext)
		writeHunk(&w, ops, from, to)
		i = to
	}
	return w.String()
}

// An op is a line of a diff with its kind: ' ', '-' or '+'.
type op struct {
	kind byte
	text string
}

func writeHunk(w *strings.Builder, ops []op, from, to int) {
	count := func(ops []op, not byte) int {
		n := 0
		for _, o := range ops {
			if o.kind != not {
				n++
			}
		}
		return n
	}
	place := func(not byte) string {
		start, n := count(ops[:from], not), count(ops[from:to], not)
		if n > 0 {
			start++
		}
		return fmt.Sprintf("%d,%d", start, n)
	}
	fmt.Fprintf(w, "@@ -%s +%s @@\n", place('+'), place('-'))
	for _, o := range ops[from:to] {
		line, end := strings.CutSuffix(o.text, "\n")
		parts := strings.Split(strings.TrimSuffix(line, "\r"), "\t")
		for i, p := range parts {
			parts[i] = printable.Line(p)
		}
		w.WriteString(string(o.kind) + strings.Join(parts, "\t") + "\n")
		if !end {
			w.WriteString("\\ No newline at end of file\n")
		}
	}
}

// maxDiff is the number of differing lines up to which the diff is the shortest.
const maxDiff = 500

// compare returns the shortest diff from a to b, with deletions before insertions. See Myers, "An
// O(ND) Difference Algorithm and Its Variations".
func compare(a, b []string) []op {
	var head, tail []op
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		head = append(head, op{' ', a[0]})
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		tail = append(tail, op{' ', a[len(a)-1]})
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	slices.Reverse(tail)
	return slices.Concat(head, shortest(a, b), tail)
}

func shortest(a, b []string) []op {
	// reach maps each diagonal to the furthest position in a.
	reach := map[int]int{1: 0}
	var trace []map[int]int
	for d := 0; d <= min(len(a)+len(b), maxDiff); d++ {
		next := make(map[int]int, d+1)
		for k := -d; k <= d; k += 2 {
			x := reach[k-1] + 1
			if k == -d || k != d && reach[k-1] < reach[k+1] {
				x = reach[k+1]
			}
			y := x - k
			for x < len(a) && y < len(b) && y >= 0 && a[x] == b[y] {
				x, y = x+1, y+1
			}
			next[k] = x
			if x >= len(a) && y >= len(b) {
				return backtrack(a, b, append(trace, reach), d)
			}
		}
		trace = append(trace, reach)
		reach = next
	}
	var ops []op
	for _, s := range a {
		ops = append(ops, op{'-', s})
	}
	for _, s := range b {
		ops = append(ops, op{'+', s})
	}
	return ops
}

// backtrack returns the ops of the path that shortest has found.
func backtrack(a, b []string, trace []map[int]int, d int) []op {
	var ops []op
	x, y := len(a), len(b)
	for ; d >= 0; d-- {
		reach, k := trace[d], x-y
		down := k == -d || k != d && reach[k-1] < reach[k+1]
		px := reach[k-1]
		py := px - (k - 1)
		if down {
			px = reach[k+1]
			py = px - (k + 1)
		}
		for x > px && y > py && x > 0 && y > 0 {
			x, y = x-1, y-1
			ops = append(ops, op{' ', a[x]})
		}
		if d == 0 {
			break
		}
		if down {
			y--
			ops = append(ops, op{'+', b[y]})
		} else {
			x--
			ops = append(ops, op{'-', a[x]})
		}
	}
	slices.Reverse(ops)
	return ops
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

// redactedLines returns the lines of a document without secrets. Only parts that start or locate a
// server, and harmless members of the document itself, are shown unchanged.
func redactedLines(data []byte, root *node, mask func([]string) []string, harmless func(name, value string) bool) []string {
	r := redactor{data: data, mask: mask, harmless: harmless}
	r.node(root, "", showHarmless)
	r.comments()
	slices.SortStableFunc(r.replacements, func(a, b splice) int { return a.start - b.start })
	var out []byte
	pos := 0
	for _, c := range r.replacements {
		if c.start < pos {
			continue
		}
		out = append(append(out, data[pos:c.start]...), c.text...)
		pos = c.end
	}
	return slices.Collect(strings.Lines(string(append(out, data[pos:]...))))
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
