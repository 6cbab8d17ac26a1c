package hosts

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"mcpwire/internal/proc/inuse"
	"mcpwire/internal/text/printable"
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

// The fields of an entry that matter to a tap, where they are.
type fields struct {
	object  *node // that command and args are members of
	command *member
	args    *member
	argv    bool // command is a list, with the arguments in it
}

// fieldsOf finds them. Zed had them in a table that was called command, with the program as path.
func fieldsOf(n *node) fields {
	f := fields{object: n, command: n.get("command")}
	name := "command"
	if f.command != nil && f.command.value.kind == kindObject && f.command.value.get("path") != nil {
		f.object, name = f.command.value, "path"
		f.command = f.object.get(name)
	}
	f.args = f.object.get("args")
	f.argv = f.command != nil && f.command.value.kind == kindArray
	return f
}

// unwrapped returns the command and the arguments that a tap stands before, and whether one does: mcpwire with the command tap,
// or any other program with exactly the arguments that Wrap writes.
func unwrapped(command string, args []string) ([]string, bool) {
	i := wrappedCommandIndex(args)
	if i < 0 || i == len(args) {
		return nil, false
	}
	base := strings.ToLower(path.Base(strings.ReplaceAll(command, `\`, "/")))
	if strings.TrimSuffix(base, ".exe") != "mcpwire" && (i != 4 || args[1] != "--name") {
		return nil, false
	}
	return args[i:], true
}

// wrappedCommandIndex returns which of the arguments of a tap is the command behind it, -1 if they are none of a tap.
func wrappedCommandIndex(args []string) int {
	from := 1
	if len(args) > 2 && args[1] == "--name" {
		from = 3 // the name may be anything, -- too
	}
	if len(args) <= from || args[0] != "tap" {
		return -1
	}
	i := slices.Index(args[from:], "--")
	if i < 0 {
		return -1
	}
	return from + i + 1
}

// Unwrap makes the entry at pointer what it was before Wrap or WrapURL. Edits that were made since, to this entry or others, stay.
// It returns [ErrNotWrapped] for an entry without a tap, and for one with a URL that there is no record of, [ErrNoEntry], or a *ParseError.
func (d *Document) Unwrap(pointer string) error {
	n, s, err := d.locate(pointer)
	if err != nil {
		return err
	}
	if d.wrappedURL(pointer, n) {
		v := urlOf(n).value
		d.splice(v.start, v.end, d.record.entry(pointer).Before)
		s.URL = d.record.entry(pointer).URL
		d.edits = append(d.edits, edit{pointer: pointer, before: s, remote: true})
		return nil
	}
	if !s.Wrapped {
		return ErrNotWrapped
	}
	f := fieldsOf(n)
	if f.argv {
		elems := f.command.value.elems
		inner := innerCommand(elems[1:]) + 1
		d.splice(elems[0].start, elems[inner].start, "")
	} else {
		d.unwrapArgs(f, d.record.entry(pointer))
	}
	d.edits = append(d.edits, edit{pointer: pointer, before: s})
	return nil
}

// innerCommand returns which element of the arguments of a tap is the command behind it.
func innerCommand(args []*node) int {
	texts := make([]string, len(args))
	for i, n := range args {
		texts[i] = n.text
	}
	return wrappedCommandIndex(texts)
}

// unwrapArgs is the reverse of wrapArgs. kept may be nil.
func (d *Document) unwrapArgs(f fields, undo *undoEntry) {
	elems := f.args.value.elems
	inner := innerCommand(elems)
	command := elems[inner]
	d.splice(f.command.value.start, f.command.value.end, string(d.data[command.start:command.end]))
	switch {
	case inner+1 < len(elems):
		d.splice(elems[0].start, elems[inner+1].start, "")
	case undo != nil && undo.ArgsAdded && d.removeArgs(f):
	case undo != nil && undo.ArgsText != "":
		d.splice(f.args.value.start, f.args.value.end, undo.ArgsText)
	default:
		end := command.end
		if rest := d.data[end : f.args.value.end-1]; len(bytes.TrimSpace(rest)) > 0 && bytes.TrimSpace(rest)[0] == ',' {
			end += bytes.IndexByte(rest, ',') + 1
		}
		d.splice(elems[0].start, end, "")
	}
}

// removeArgs takes args out again, if it still stands where insertArgs has put it.
func (d *Document) removeArgs(f fields) bool {
	from, to := f.command.value.end, f.args.value.end
	if !f.args.block {
		if gap := strings.TrimSpace(string(d.data[min(from, f.args.lineKey):f.args.lineKey])); gap != "," {
			return false
		}
		d.splice(from, to, "")
		return true
	}
	start := lineStart(d.data, f.args.lineKey)
	rest := d.data[to:]
	end := len(d.data)
	if i := bytes.IndexByte(rest, '\n'); i >= 0 {
		rest, end = rest[:i], to+i+1
	}
	if start < from || strings.TrimSpace(string(d.data[start:f.args.lineKey])) != "" || len(bytes.TrimSpace(rest)) > 0 {
		return false
	}
	if end == len(d.data) && !bytes.HasSuffix(d.data, []byte("\n")) { // the line end before it came with it
		start = len(bytes.TrimSuffix(bytes.TrimSuffix(d.data[:start], []byte("\n")), []byte("\r")))
	}
	d.splice(start, end, "")
	return true
}

// quote writes a string in the syntax of the document. What is a string of JSON is one of TOML, too, but for DEL.
func (d *Document) quote(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string into memory
	out := strings.TrimSuffix(b.String(), "\n")
	if d.syntax == syntaxTOML {
		out = strings.ReplaceAll(out, "\x7f", `\u007F`)
	}
	return out
}

// list writes strings, without brackets.
func (d *Document) list(items []string) string {
	quoted := make([]string, len(items))
	for i, s := range items {
		quoted[i] = d.quote(s)
	}
	return strings.Join(quoted, d.comma())
}

// comma is what stands between the elements of a list: a document that is written without spaces stays so.
func (d *Document) comma() string {
	if d.isCompact() {
		return ","
	}
	return ", "
}

// isCompact tells whether the document has no white space at its first colon.
func (d *Document) isCompact() bool {
	if d.syntax != syntaxJSON || len(d.root.members) == 0 {
		return false
	}
	m := d.root.members[0]
	return m.value.start == m.keyEnd+1
}

// separator is what stands between two elements of a list: if the first one has a line of its own, the next one has, too.
func (d *Document) separator(list, first *node) string {
	space := string(d.data[list.start+1 : first.start])
	if i := strings.LastIndexByte(space, '\n'); i >= 0 && strings.TrimSpace(space) == "" {
		if i > 0 && space[i-1] == '\r' {
			i--
		}
		return "," + space[i:]
	}
	return d.comma()
}

// memberSpace is what stands before a member that follows m.
func (d *Document) memberSpace(m *member) string {
	from := lineStart(d.data, m.lineKey)
	if from > 0 && strings.TrimSpace(string(d.data[from:m.lineKey])) == "" {
		return d.eol() + string(d.data[from:m.lineKey])
	}
	if d.isCompact() {
		return ""
	}
	return " "
}

// eol is the line end of the document.
func (d *Document) eol() string {
	if i := bytes.IndexByte(d.data, '\n'); i > 0 && d.data[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}

// lineStart returns where the line begins that an offset is in.
func lineStart(data []byte, offset int) int {
	return bytes.LastIndexByte(data[:offset], '\n') + 1
}

// Result returns the bytes that Save would write. They belong to the caller.
func (d *Document) Result() []byte {
	if hash(d.data) == d.record.After && !slices.ContainsFunc(d.edits, d.unrecorded) && d.remaining() == 0 {
		if original := d.records.original(d.record); original != nil {
			return original
		}
	}
	return d.edited()
}

// unrecorded tells whether an edit unwraps what the record does not know: what another has wrapped is wrapped in the backup, too.
func (d *Document) unrecorded(e edit) bool { return !e.wrap && d.record.entry(e.pointer) == nil }

// remaining tells how many entries of the record stay wrapped.
func (d *Document) remaining() int {
	n := 0
	for _, e := range d.edits {
		if e.wrap {
			n++
		}
	}
	for _, kept := range d.record.Entries {
		if d.stillWrapped(kept) && !slices.ContainsFunc(d.edits, func(e edit) bool { return e.pointer == kept.Pointer }) {
			n++
		}
	}
	return n
}

// stillWrapped tells whether an entry of the record is wrapped in the file as it was read.
func (d *Document) stillWrapped(kept undoEntry) bool {
	n := d.root.lookup(namesOf(kept.Pointer))
	if n == nil {
		return false
	}
	r := reader{data: d.data}
	s, _ := r.server(entry{node: n})
	return s.Wrapped || d.wrappedURL(kept.Pointer, n)
}

// Save writes the file: a backup first, then the record, then a new file in the place of the old one, with its mode and owner. It
// tells whether there was anything to write. The file is not written if it is not what Open read ([ErrChanged]), or if what would be
// written is not what was meant. The document is of no use afterwards.
func (d *Document) Save() (bool, error) {
	out := d.Result()
	if len(d.edits) == 0 || bytes.Equal(out, d.data) {
		return false, nil
	}
	if d.records.dir == "" {
		return false, ErrNoState
	}
	if err := d.verify(out); err != nil {
		return false, err
	}
	if f, err := inuse.Open(d.real, os.O_WRONLY, 0); err != nil { // a new file would get around its mode
		return false, err
	} else if err := f.Close(); err != nil {
		return false, err
	}
	if err := d.unchanged(); err != nil { // as another of us would leave it: its record must stay
		return false, err
	}
	backup, err := d.records.backup(d.real, d.data, d.record.Backup)
	if err != nil {
		return false, fmt.Errorf("keep a backup: %w", err)
	}
	if err := d.records.store(d.nextRecord(backup, out)); err != nil {
		return false, fmt.Errorf("keep a record: %w", err)
	}
	err = replaceFile(d.real, out, d.info.Mode().Perm(), func() error { return d.unchanged() })
	if err != nil {
		if restore := d.records.store(d.record); restore != nil {
			err = errors.Join(err, restore)
		}
		return false, err
	}
	return true, nil
}

// nextRecord is the record of the file as it will be.
func (d *Document) nextRecord(backup string, out []byte) record {
	next := record{Version: recordVersion, File: d.real, Backup: d.record.Backup, Before: d.record.Before, After: hash(out)}
	for _, kept := range d.record.Entries {
		if d.stillWrapped(kept) && !slices.ContainsFunc(d.edits, func(e edit) bool { return e.pointer == kept.Pointer }) {
			next.Entries = append(next.Entries, kept)
		}
	}
	switch {
	case len(next.Entries) == 0 && !slices.ContainsFunc(d.edits, func(e edit) bool { return !e.wrap }):
		next.Backup, next.Before = backup, hash(d.data)
	case hash(d.data) != d.record.After, slices.ContainsFunc(d.edits, d.unrecorded):
		next.Backup, next.Before = "", "" // to put it back would undo more than our edits
	}
	for _, e := range d.edits {
		if e.wrap {
			next.Entries = append(next.Entries, e.undo)
		}
	}
	return next
}

// unchanged tells whether the file is still what was read.
func (d *Document) unchanged() error {
	now, err := readFile(d.real)
	if err != nil {
		return err
	}
	if !bytes.Equal(now, d.data) {
		return fmt.Errorf("%s: %w", d.path, ErrChanged)
	}
	return nil
}

// verify reads what is to be written, and holds the entries against what they were.
func (d *Document) verify(out []byte) error {
	root, err := parse(out, d.syntax)
	if err != nil {
		return fmt.Errorf("refused: the edited file cannot be read: %w", withPath(err, d.path))
	}
	for _, e := range d.edits {
		n := root.lookup(namesOf(e.pointer))
		if n == nil {
			return fmt.Errorf("refused: the edit loses %s", printable.Line(e.pointer))
		}
		r := reader{data: out}
		s, problem := r.server(entry{name: e.before.Name, pointer: e.pointer, node: n})
		want := e.before
		if e.remote { // the URL is what changes
			want.URL, s.URL = "", ""
			want.Wrapped = s.Wrapped
		} else {
			want.Wrapped = e.wrap
		}
		if problem != nil || !s.sameAs(want) || s.Wrapped != want.Wrapped || s.Disabled != want.Disabled {
			return fmt.Errorf("refused: the edit does not do to %s what it should", printable.Line(e.pointer))
		}
	}
	return nil
}

// replaceFile puts a new file with the mode and, if it may, the owner of the old one in its place, unless check fails just before.
func replaceFile(path string, data []byte, mode os.FileMode, check func() error) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	open := true
	defer func() {
		if open {
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if _, err := f.Write(data); err != nil {
		return err
	}
	if info, err := os.Stat(path); err == nil {
		keepOwner(f, info)
	}
	if err := f.Chmod(mode); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if check != nil {
		if err := check(); err != nil {
			return err
		}
	}
	open = false
	if err := f.Close(); err != nil {
		return err
	}
	if err := inuse.Rename(f.Name(), path); err != nil {
		return err
	}
	syncDir(dir)
	return nil
}

// writeNew writes a file that must not be there yet.
func writeNew(path string, data []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// syncDir makes a rename last. Not every system can, and the file is whole without.
func syncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}

// A undoEntry is what undoing must know of one entry besides what the file says.
type undoEntry struct {
	Pointer string `json:"pointer"`
	// ArgsAdded tells that there were no args, ArgsText what they were if no list.
	ArgsAdded bool   `json:"argsAdded,omitempty"`
	ArgsText  string `json:"argsText,omitempty"`
	// URL is what it was, Before how it was written, After how it is written now.
	URL    string `json:"url,omitempty"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// A record is what is kept of the edits to one file.
type record struct {
	Version int    `json:"v"`
	File    string `json:"file"`
	// Backup is the name of the file with the bytes before the first edit; "" if it would undo more than our edits.
	Backup string `json:"backup,omitempty"`
	// Before and After are the hashes of the backup, and of the file as it was left.
	Before  string      `json:"before,omitempty"`
	After   string      `json:"after,omitempty"`
	Entries []undoEntry `json:"entries"`
}

func (r *record) entry(pointer string) *undoEntry {
	for i := range r.Entries {
		if r.Entries[i].Pointer == pointer {
			return &r.Entries[i]
		}
	}
	return nil
}

// records are the records of all files, below one folder: a folder for each file, with the record and backups.
type records struct {
	dir   string
	cache map[string]record
}

const (
	recordVersion = 1
	recordName    = "record.json"
	maxBackups    = 10
)

func (e *Env) records() *records {
	return &records{dir: e.State(), cache: map[string]record{}}
}

func (rs *records) folder(real string) string {
	sum := sha256.Sum256([]byte(real))
	return join(rs.dir, hex.EncodeToString(sum[:12]))
}

// forFile returns the record of a file. One that cannot be read is none: the file itself says most.
func (rs *records) forFile(real string) record {
	if r, ok := rs.cache[real]; ok {
		return r
	}
	r := record{Version: recordVersion, File: real}
	if rs.dir != "" {
		if data, err := readFile(filepath.Join(rs.folder(real), recordName)); err == nil {
			var stored record
			if json.Unmarshal(data, &stored) == nil && stored.Version == recordVersion && stored.File == real {
				r = stored
			}
		}
	}
	rs.cache[real] = r
	return r
}

// restoreURL puts the URL back that a record remembers.
func (rs *records) restoreURL(s *Server) {
	if s.URL == "" || rs.dir == "" {
		return
	}
	real, err := filepath.EvalSymlinks(s.File)
	if err != nil {
		return
	}
	r := rs.forFile(real)
	if kept := r.entry(s.Pointer); kept != nil && kept.URL != "" {
		var after string
		if json.Unmarshal([]byte(kept.After), &after) == nil && after == s.URL {
			s.URL, s.Wrapped = kept.URL, true
		}
	}
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// backup keeps data, and returns the name of the file. The oldest of too many go.
func (rs *records) backup(real string, data []byte, spare string) (string, error) {
	dir := rs.folder(real)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	names := rs.backups(dir)
	next := 1
	if len(names) > 0 {
		_, _ = fmt.Sscanf(names[len(names)-1], "backup-%06d", &next) // a name that is not ours counts as 1
		next++
	}
	name := fmt.Sprintf("backup-%06d", next)
	if err := writeNew(filepath.Join(dir, name), data, 0o600); err != nil {
		return "", err
	}
	for len(names) >= maxBackups {
		if names[0] != spare {
			_ = os.Remove(filepath.Join(dir, names[0])) // it is one too many, and no more
		}
		names = names[1:]
	}
	return name, nil
}

func (rs *records) backups(dir string) []string {
	list, _ := os.ReadDir(dir) // none that can be read are none
	var names []string
	for _, e := range list {
		if strings.HasPrefix(e.Name(), "backup-") {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names
}

// original returns the bytes of the backup that a record names, nil if they are not what they were.
func (rs *records) original(r record) []byte {
	if r.Backup == "" || r.Backup != filepath.Base(r.Backup) {
		return nil
	}
	data, err := readFile(filepath.Join(rs.folder(r.File), r.Backup))
	if err != nil || hash(data) != r.Before {
		return nil
	}
	return data
}

// store writes a record, or removes one without entries.
func (rs *records) store(r record) error {
	delete(rs.cache, r.File)
	path := filepath.Join(rs.folder(r.File), recordName)
	if len(r.Entries) == 0 {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(path, append(data, '\n'), 0o600, nil)
}
