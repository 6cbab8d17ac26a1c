package hosts

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"mcpwire/internal/printable"
)

// What edits end with.
var (
	ErrNoEntry    = errors.New("no such entry")
	ErrWrapped    = errors.New("already wrapped")
	ErrNotWrapped = errors.New("not wrapped")
	ErrNoCommand  = errors.New("the entry has no command")
	ErrRemote     = errors.New("the entry has a URL and no command")
	ErrChanged    = errors.New("the file has changed meanwhile")
	ErrNoState    = errors.New("no folder to keep a backup in")
)

// A Document is a file that is being edited. Edits are collected, and nothing is written before Save.
type Document struct {
	path, real string
	info       os.FileInfo
	data       []byte
	syntax     syntax
	root       *node
	splices    []splice
	edits      []edit
	records    *records
	record     record
}

// A splice replaces data[start:end].
type splice struct {
	start, end int
	text       string
}

// An edit is a change to one entry.
type edit struct {
	pointer string
	wrap    bool
	undo    undoEntry // of wrap: what undoing it must know
	before  Server
	remote  bool
}

// Open reads a file to be edited, through symbolic links. Errors are a *ParseError or those of the file system.
func Open(e *Env, path string) (*Document, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(real)
	if err != nil {
		return nil, err
	}
	data, err := readFile(real)
	if err != nil {
		return nil, err
	}
	d := &Document{path: path, real: real, info: info, data: data, syntax: syntaxOf(path, data), records: e.records()}
	if d.root, err = parse(data, d.syntax); err != nil {
		return nil, withPath(err, path)
	}
	d.record = d.records.forFile(real)
	return d, nil
}

// locate returns the entry at a pointer, after checks that all edits need.
func (d *Document) locate(pointer string) (*node, Server, error) {
	names := namesOf(pointer)
	n := d.root.lookup(names)
	if n == nil || len(names) == 0 {
		return nil, Server{}, fmt.Errorf("%s:%s: %w", d.path, printable.Line(pointer), ErrNoEntry)
	}
	r := reader{data: d.data}
	s, problem := r.server(entry{name: names[len(names)-1], pointer: pointer, node: n})
	if problem != nil {
		problem.Path = d.path
		return nil, s, problem
	}
	f := fieldsOf(n)
	for _, name := range []string{"command", "path", "args", "url", "serverUrl", "httpUrl"} {
		if n.hasDuplicate(name) || f.object.hasDuplicate(name) {
			e := errorAt(d.data, n.start, "server "+quoteName(s.Name)+" has "+name+" more than once")
			e.Path = d.path
			return nil, s, e
		}
	}
	if slices.ContainsFunc(d.edits, func(e edit) bool { return e.pointer == pointer }) {
		return nil, s, fmt.Errorf("%s:%s is edited twice", d.path, printable.Line(pointer))
	}
	return n, s, nil
}

// Wrap makes the entry at pointer run wrapper, with the command and arguments that it had behind it: wrapper is the program and
// the arguments of a tap, with "--" at its end. Other members stay. It returns [ErrWrapped] for an entry that runs through a tap
// already, [ErrRemote] for one with a URL, [ErrNoCommand] for one with neither, [ErrNoEntry], or a *ParseError. The slice is not kept.
func (d *Document) Wrap(pointer string, wrapper []string) error {
	n, s, err := d.locate(pointer)
	if err != nil {
		return err
	}
	f := fieldsOf(n)
	switch {
	case s.Wrapped || d.wrappedURL(pointer, n):
		return ErrWrapped
	case f.command == nil && urlOf(n) != nil:
		return ErrRemote
	case s.Command == "":
		return ErrNoCommand
	}
	if _, ok := unwrapped(wrapper[0], append(slices.Clone(wrapper[1:]), s.Command)); !ok {
		return errors.New("a wrapper is a program, tap, --name, a name and --")
	}
	kept := undoEntry{Pointer: pointer}
	if f.argv {
		first := f.command.value.elems[0]
		d.splice(first.start, first.start, d.list(wrapper)+d.separator(f.command.value, first))
	} else {
		d.wrapArgs(f, wrapper, &kept)
	}
	d.edits = append(d.edits, edit{pointer: pointer, wrap: true, undo: kept, before: s})
	return nil
}

// wrapArgs puts the wrapper into command and the beginning of args.
func (d *Document) wrapArgs(f fields, wrapper []string, undo *undoEntry) {
	command := f.command.value
	d.splice(command.start, command.end, d.quote(wrapper[0]))
	prefix := d.list(wrapper[1:]) + d.comma() + string(d.data[command.start:command.end])
	switch {
	case f.args == nil:
		undo.ArgsAdded = true
		d.insertArgs(f.command, "["+prefix+"]")
	case f.args.value.kind != kindArray: // null
		undo.ArgsText = string(d.data[f.args.value.start:f.args.value.end])
		d.splice(f.args.value.start, f.args.value.end, "["+prefix+"]")
	case len(f.args.value.elems) == 0:
		d.splice(f.args.value.start+1, f.args.value.start+1, prefix)
	default:
		first := f.args.value.elems[0]
		d.splice(first.start, first.start, prefix+d.separator(f.args.value, first))
	}
}

// insertArgs adds args behind the command, in the style of the command.
func (d *Document) insertArgs(command *member, list string) {
	key := `"args"`
	if d.syntax == syntaxTOML {
		key = string(d.data[command.lineKey:command.keyStart]) + "args"
	}
	assign := string(d.data[command.keyEnd:command.value.start])
	if strings.Trim(assign, " \t:=") != "" { // a comment or a line end
		assign = map[syntax]string{syntaxJSON: ": ", syntaxTOML: " = "}[d.syntax]
	}
	if !command.block {
		d.splice(command.value.end, command.value.end, ","+d.memberSpace(command)+key+assign+list)
		return
	}
	indent := string(d.data[lineStart(d.data, command.lineKey):command.lineKey])
	if strings.TrimSpace(indent) != "" {
		indent = ""
	}
	line := indent + key + assign + list
	if i := bytes.IndexByte(d.data[command.value.end:], '\n'); i >= 0 {
		d.splice(command.value.end+i+1, command.value.end+i+1, line+d.eol())
	} else {
		d.splice(len(d.data), len(d.data), d.eol()+line)
	}
}

// WrapURL makes the entry at pointer go to a tap that listens on a loopback address, host:port, with the path and the parameters
// that its URL had. Save keeps a record of the URL, which undoing needs. Errors are those of Wrap.
func (d *Document) WrapURL(pointer, listen string) error {
	n, s, err := d.locate(pointer)
	if err != nil {
		return err
	}
	m := urlOf(n)
	switch {
	case s.Wrapped || d.wrappedURL(pointer, n):
		return ErrWrapped
	case m == nil:
		return errors.New("the entry has no URL")
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("the address to listen on: %w", err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	u, err := url.Parse(s.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("the URL of the entry is none that can be tapped")
	}
	_, _, rest := splitURL(s.URL)
	text := d.quote("http://" + net.JoinHostPort(host, port) + rest)
	kept := undoEntry{Pointer: pointer, URL: s.URL, Before: string(d.data[m.value.start:m.value.end]), After: text}
	d.splice(m.value.start, m.value.end, text)
	d.edits = append(d.edits, edit{pointer: pointer, wrap: true, undo: kept, before: s, remote: true})
	return nil
}

// wrappedURL tells whether the URL of an entry is one that WrapURL has put there.
func (d *Document) wrappedURL(pointer string, n *node) bool {
	kept := d.record.entry(pointer)
	m := urlOf(n)
	return kept != nil && kept.After != "" && m != nil && string(d.data[m.value.start:m.value.end]) == kept.After
}

func (d *Document) splice(start, end int, text string) {
	d.splices = append(d.splices, splice{start, end, text})
}

// edited returns the text with all edits.
func (d *Document) edited() []byte {
	list := slices.Clone(d.splices)
	slices.SortStableFunc(list, func(a, b splice) int { return a.start - b.start })
	out := make([]byte, 0, len(d.data)+1024)
	pos := 0
	for _, s := range list {
		out = append(append(out, d.data[pos:s.start]...), s.text...)
		pos = s.end
	}
	return append(out, d.data[pos:]...)
}
