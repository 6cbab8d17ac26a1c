package hosts

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"mcpwire/internal/json/jsonpointer"
	"mcpwire/internal/text/printable"
)

// Entry returns the server with a name in the tables of host. It returns [ErrNoEntry] or a
// *ParseError.
func (d *Document) Entry(host, name string) (Server, error) {
	for _, table := range tablesOf(host, filepath.Base(d.path)) {
		path := append(slices.Clone(table), name)
		if d.root.lookup(path) == nil {
			continue
		}
		_, s, err := d.locate(pointerTo(path...))
		return s, err
	}
	return Server{}, fmt.Errorf("%s: %s: %w", d.path, printable.Line(name), ErrNoEntry)
}

// Remove removes the entry at pointer, with the comma or the white space that separates it from
// others. It does not change anything else in the file. From TOML, it removes only a table as Add
// writes it. It returns [ErrNoEntry] or a *ParseError.
func (d *Document) Remove(pointer string) error {
	_, s, err := d.locate(pointer)
	if err != nil {
		return err
	}
	names := jsonpointer.Split(pointer)
	parent, name := d.root.lookup(names[:len(names)-1]), names[len(names)-1]
	if parent.hasDuplicate(name) {
		return fmt.Errorf("%s: %s occurs more than once", d.path, printable.Line(name))
	}
	if d.syntax == syntaxTOML {
		if err := d.removeTable(names, s); err != nil {
			return err
		}
	} else {
		d.removeMember(parent, slices.IndexFunc(parent.members, func(m member) bool { return m.name == name }))
	}
	d.edits = append(d.edits, edit{pointer: pointer, removed: true, before: s})
	return nil
}

// removeTable removes a table of TOML that has the form of addTable, with the empty line before it.
func (d *Document) removeTable(names []string, s Server) error {
	text := d.tableText(names[:len(names)-1], names[len(names)-1], append([]string{s.Command}, s.Args...))
	start := bytes.Index(d.data, []byte(text))
	if start < 0 || start != lineStart(d.data, start) || bytes.Count(d.data, []byte(text)) > 1 || hasLines(d.data[start+len(text):]) {
		return fmt.Errorf("%s: the table of %s was edited: remove it there", d.path, printable.Line(s.Name))
	}
	end := start + len(text)
	if blank := d.eol() + d.eol(); start > 0 && bytes.HasSuffix(d.data[:start], []byte(blank)) {
		start -= len(d.eol())
	}
	d.splice(start, end, "")
	return nil
}

// hasLines reports whether text, which follows lines of a table of TOML, has more of them.
func hasLines(text []byte) bool {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return line[0] != '['
		}
	}
	return false
}

// removeMember removes the member i of an object.
func (d *Document) removeMember(n *node, i int) {
	m := &n.members[i]
	if i > 0 {
		// What follows the member now follows the one before, as before it was added.
		if before := n.members[i-1].value.end; isSeparator(d.data[before:m.lineKey]) {
			d.splice(before, m.value.end, "")
			return
		}
	}
	after := n.end - 1
	if i+1 < len(n.members) {
		after = n.members[i+1].lineKey
	}
	switch gap := d.data[m.value.end:after]; {
	case len(n.members) == 1 && isSeparator(d.data[n.start+1:m.lineKey]) && isSeparator(gap):
		d.splice(n.start+1, n.end-1, "")
	case i+1 < len(n.members) && isSeparator(gap):
		d.splice(m.lineKey, after, "")
	default: // comments stay
		d.splice(m.lineKey, m.value.end, "")
		if comma := commaIn(gap); comma >= 0 {
			d.splice(m.value.end+comma, m.value.end+comma+1, "")
		} else if i > 0 {
			before := n.members[i-1].value.end
			comma := before + commaIn(d.data[before:m.lineKey])
			d.splice(comma, comma+1, "")
		}
	}
}

// isSeparator reports whether text between members has neither comments nor more than one comma.
func isSeparator(text []byte) bool {
	rest := strings.TrimSpace(string(text))
	return rest == "" || rest == ","
}

// commaIn returns the offset of the first comma outside comments, or -1.
func commaIn(text []byte) int {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case ',':
			return i
		case '/':
			i = skipComment(text, i)
		}
	}
	return -1
}

// verifyRemoved returns an error if the edited text does not lack exactly the removed entry.
func (d *Document) verifyRemoved(e edit, root *node) error {
	names := jsonpointer.Split(e.pointer)
	list := func(n *node) (members []string) {
		if n = n.lookup(names[:len(names)-1]); n == nil {
			return nil
		}
		for _, m := range n.members {
			members = append(members, m.name)
		}
		return members
	}
	want := slices.DeleteFunc(list(d.root), func(name string) bool { return name == names[len(names)-1] })
	if !slices.Equal(list(root), want) {
		return fmt.Errorf("rejected: the edit does not remove %s as intended", printable.Line(e.pointer))
	}
	return nil
}
