package hosts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"mcpwire/internal/json/jsonpointer"
	"mcpwire/internal/text/printable"
)

// ErrExists reports that a file already has an entry of that name.
var ErrExists = errors.New("the entry exists already")

// A NotInstalledError reports that a host has no folder for its configuration.
type NotInstalledError struct {
	Host, Folder string
}

func (e *NotInstalledError) Error() string {
	return fmt.Sprintf("%s does not seem to be installed: there is no folder %s", e.Host, printable.Line(e.Folder))
}

// UserFile returns the file where a host keeps the servers of the user: the first that exists, or
// else the one that the host would create. The error may be a [*NotInstalledError].
func UserFile(e *Env, host string) (string, error) {
	var absent, folder string
	for _, l := range userLocations(e) {
		if l.host != host || l.path == "" || strings.ContainsRune(l.path, '*') {
			continue
		}
		if exists(l.path) {
			return l.path, nil
		}
		dir := ownFolder(l.path)
		if folder == "" {
			folder = dir
		}
		if absent == "" && exists(dir) {
			absent = l.path
		}
	}
	switch {
	case absent != "":
		return absent, nil
	case folder == "":
		return "", fmt.Errorf("the folder of %s is unknown; set HOME", host)
	}
	return "", &NotInstalledError{Host: host, Folder: folder}
}

// ownFolder returns the folder that an installed host has, for one of its files. A host creates the
// folder "settings" with its first setting, so the one above counts.
func ownFolder(path string) string {
	dir := filepath.Dir(path)
	if filepath.Base(dir) == "settings" {
		dir = filepath.Dir(dir)
	}
	return dir
}

// OpenOrNew is [Open] for a file that may be absent. Save creates an absent one, with its folder.
func OpenOrNew(e *Env, path string) (*Document, error) {
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return Open(e, path)
	}
	d := &Document{path: path, real: path, absent: true, syntax: syntaxOf(path, nil), records: e.records()}
	if d.syntax == syntaxYAML {
		return nil, fmt.Errorf("%s: %w", path, ErrYAML)
	}
	var err error
	if d.root, err = parse(nil, d.syntax); err != nil {
		return nil, withPath(err, path)
	}
	d.record = d.records.forFile(path)
	return d, nil
}

// Add adds an entry that runs command to the servers of host. It does not change anything else in
// the file. command is the program and its arguments; Add does not keep the slice. It returns
// [ErrExists] if there is an entry of that name.
func (d *Document) Add(host, name string, command []string) error {
	tables := tablesOf(host, filepath.Base(d.path))
	if tables == nil {
		return fmt.Errorf("no host %q is known", host)
	}
	path := tables[len(tables)-1]
	for _, t := range tables {
		if n := d.root.lookup(t); n != nil && n.kind == kindObject {
			path = t
			break
		}
	}
	pointer := pointerTo(append(slices.Clone(path), name)...)
	if d.root.lookup(jsonpointer.Split(pointer)) != nil {
		return fmt.Errorf("%s:%s: %w", d.path, printable.Line(pointer), ErrExists)
	}
	if d.syntax == syntaxTOML {
		d.addTable(path, name, command)
	} else if err := d.addMember(path, name, entryFor(host, isMixed(tables), command)); err != nil {
		return err
	}
	d.edits = append(d.edits, edit{pointer: pointer, added: slices.Clone(command), before: Server{Name: name}})
	return nil
}

// tablesOf returns the paths to the tables of servers in a host's own file with a name, or in its
// first file, or nil.
func tablesOf(host, name string) (tables [][]string) {
	for _, l := range userLocations(&Env{Home: string(filepath.Separator)}) {
		if l.host == host && (tables == nil || filepath.Base(l.path) == name) {
			tables = l.tables
		}
	}
	return tables
}

// entryFor returns an entry in the form of a host. mixed is the field of a [location].
func entryFor(host string, mixed bool, command []string) any {
	type plain struct {
		Type    string   `json:"type,omitempty"`
		Command string   `json:"command"`
		Args    []string `json:"args"`
	}
	if mixed {
		return struct {
			Type    string   `json:"type"`
			Command []string `json:"command"`
			Enabled bool     `json:"enabled"`
		}{"local", command, true}
	}
	switch host {
	case "copilot-cli":
		// Without both members, some releases reject the whole file.
		return struct {
			Type    string   `json:"type"`
			Command string   `json:"command"`
			Args    []string `json:"args"`
			Tools   []string `json:"tools"`
		}{"local", command[0], command[1:], []string{"*"}}
	case "vscode", "vscode-insiders", "claude-code":
		return plain{"stdio", command[0], command[1:]}
	}
	return plain{"", command[0], command[1:]}
}

// addTable adds a table at the end of a TOML document.
func (d *Document) addTable(path []string, name string, command []string) {
	var b strings.Builder
	if len(d.data) > 0 {
		if d.data[len(d.data)-1] != '\n' {
			b.WriteString(d.eol())
		}
		b.WriteString(d.eol())
	}
	b.WriteString(d.tableText(path, name, command))
	d.splice(len(d.data), len(d.data), b.String())
}

func (d *Document) tableText(path []string, name string, command []string) string {
	return fmt.Sprintf("[%s.%s]%scommand = %s%sargs = [%s]%s", strings.Join(path, "."), name, d.eol(), d.quote(command[0]), d.eol(), d.list(command[1:]), d.eol())
}

// addMember adds a member to the object at a path of a JSON document, and the objects on the way
// that are missing.
func (d *Document) addMember(path []string, name string, value any) error {
	n := d.root
	for len(path) > 0 {
		m := n.get(path[0])
		if m == nil {
			break
		}
		if m.value.kind != kindObject {
			return fmt.Errorf("%s: %s is not an object", d.path, printable.Line(path[0]))
		}
		n, path = m.value, path[1:]
	}
	path = append(slices.Clone(path), name)
	for i := len(path) - 1; i > 0; i-- {
		value = map[string]any{path[i]: value}
	}
	unit, indent := d.indentation(n)
	text := encode(value, indent, unit)
	key := d.quote(path[0])
	switch {
	case n == d.root && n.start == n.end: // an empty document
		d.splice(len(d.data), len(d.data), "{"+d.lines("\n  "+key+": "+text+"\n}\n"))
	case len(n.members) > 0 && d.isCompact():
		end := n.members[len(n.members)-1].value.end
		d.splice(end, end, ","+key+":"+encode(value, "", ""))
	case len(n.members) > 0:
		last := &n.members[len(n.members)-1]
		d.splice(last.value.end, last.value.end, ","+d.memberSpace(last)+key+": "+d.lines(text))
	default:
		outer := strings.TrimSuffix(indent, unit)
		at := n.end - 1
		// The white space of an empty object goes. A comment in it stays.
		if inside := string(d.data[n.start+1 : at]); strings.TrimSpace(inside) == "" {
			d.splice(n.start+1, at, d.lines("\n"+indent+key+": "+text+"\n"+outer))
		} else {
			d.splice(at, at, d.lines(indent[len(outer):]+key+": "+text+"\n"+outer))
		}
	}
	return nil
}

// indentation returns the indentation of one level, and that of the members of n.
func (d *Document) indentation(n *node) (unit, indent string) {
	before := func(m *member) (string, bool) {
		from := lineStart(d.data, m.lineKey)
		space := string(d.data[from:m.lineKey])
		return space, strings.Trim(space, " \t") == ""
	}
	unit = "  "
	if len(d.root.members) > 0 {
		if space, ok := before(&d.root.members[0]); ok && space != "" {
			unit = space
		}
	}
	if len(n.members) > 0 {
		if space, ok := before(&n.members[len(n.members)-1]); ok {
			return unit, space
		}
	}
	// The line of an empty object shows the level.
	line := d.data[lineStart(d.data, min(n.start, len(d.data))):min(n.start, len(d.data))]
	return unit, string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))]) + unit
}

// encode returns the JSON text of an entry or a string, whose lines, except the first, begin with
// indent. Without indent and unit, it is one line without white space.
func encode(value any, indent, unit string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent(indent, unit)
	_ = enc.Encode(value) // cannot fail for strings and structs of them
	return strings.TrimSuffix(b.String(), "\n")
}

// lines returns text with the line ends of the document.
func (d *Document) lines(text string) string {
	return strings.ReplaceAll(text, "\n", d.eol())
}
