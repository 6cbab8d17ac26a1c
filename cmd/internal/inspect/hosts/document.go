package hosts

import (
	"bytes"
	"cmp"
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

	"mcpwire/internal/json/jsonpointer"
	"mcpwire/internal/proc/inuse"
	"mcpwire/internal/text/printable"
)

// Errors of edits.
var (
	ErrNoEntry    = errors.New("entry not found")
	ErrWrapped    = errors.New("already wrapped")
	ErrNotWrapped = errors.New("not wrapped")
	ErrNoCommand  = errors.New("the entry has no command")
	ErrRemote     = errors.New("the entry has a URL and no command")
	ErrChanged    = errors.New("the file has changed since it was read")
	ErrNoState    = errors.New("no folder for backups")
	ErrYAML       = errors.New("files in YAML are only read: change the command by hand")
)

// A Document is a file being edited. Edits are collected and written only by Save.
type Document struct {
	path, real string
	// absent reports that there is no file yet, and so no info.
	absent  bool
	info    os.FileInfo
	data    []byte
	syntax  syntax
	root    *node
	splices []splice
	edits   []edit
	records *records
	record  record
	saved   string
}

// A splice replaces data[start:end] by text.
type splice struct {
	start, end int
	text       string
}

// An edit is a change of one entry.
type edit struct {
	pointer string
	wrap    bool
	// undo is set for wrap.
	undo   undoEntry
	before Server
	remote bool
	// added is the command of an entry that Add has added. It is nil for other edits.
	added   []string
	removed bool
}

// Open reads a file for editing. It follows symbolic links. It returns a *ParseError or a file
// system error.
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
	if d.syntax == syntaxYAML {
		return nil, fmt.Errorf("%s: %w", path, ErrYAML)
	}
	if d.root, err = parse(data, d.syntax); err != nil {
		return nil, withPath(err, path)
	}
	d.record = d.records.forFile(real)
	return d, nil
}

// locate returns the entry at a pointer, after the checks that all edits need.
func (d *Document) locate(pointer string) (*node, Server, error) {
	names := jsonpointer.Split(pointer)
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

// Wrap changes the entry at pointer to run wrapper, followed by the entry's command and arguments.
// wrapper is the program and arguments of a tap, ending in "--". Wrap does not keep the slice.
// Other members stay. It returns [ErrWrapped] if the entry already runs through a tap, [ErrRemote]
// if it has a URL, [ErrNoCommand] if it has neither, [ErrNoEntry], or a *ParseError.
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
		return errors.New("a wrapper must be a program, tap, --name, a name and --")
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

// insertArgs adds args after the command, in the style of the command.
func (d *Document) insertArgs(command *member, list string) {
	key := `"args"`
	if d.syntax == syntaxTOML {
		key = string(d.data[command.lineKey:command.keyStart]) + "args"
	}
	assign := string(d.data[command.keyEnd:command.value.start])
	// The text contains a comment or a line end.
	if strings.Trim(assign, " \t:=") != "" {
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

// WrapURL changes the entry at pointer to the address host:port of a tap, with the path and
// parameters of its URL. Save records the original URL for Unwrap. The errors are those of Wrap.
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
	u, err := url.Parse(s.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("the entry's URL cannot be tapped")
	}
	_, rest := splitURL(s.URL)
	text := d.quote("http://" + net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port) + rest)
	kept := undoEntry{Pointer: pointer, URL: s.URL, Before: string(d.data[m.value.start:m.value.end]), After: text}
	d.splice(m.value.start, m.value.end, text)
	d.edits = append(d.edits, edit{pointer: pointer, wrap: true, undo: kept, before: s, remote: true})
	return nil
}

// wrappedURL reports whether WrapURL has written the URL of an entry.
func (d *Document) wrappedURL(pointer string, n *node) bool {
	kept := d.record.entry(pointer)
	m := urlOf(n)
	return kept != nil && kept.After != "" && m != nil && string(d.data[m.value.start:m.value.end]) == kept.After
}

func (d *Document) splice(start, end int, text string) {
	d.splices = append(d.splices, splice{start, end, text})
}

// applied returns data with replacements. Of two that overlap, the first counts.
func applied(data []byte, list []splice) []byte {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b splice) int { return a.start - b.start })
	out := make([]byte, 0, len(data)+1024)
	pos := 0
	for _, s := range list {
		if s.start >= pos {
			out = append(append(out, data[pos:s.start]...), s.text...)
			pos = s.end
		}
	}
	return append(out, data[pos:]...)
}

// fields locates the members of an entry that matter to a tap.
type fields struct {
	// object contains command and args.
	object  *node
	command *member
	args    *member
	// argv reports that command is a list that includes the arguments.
	argv bool
}

// fieldsOf returns the fields of an entry. Older versions of Zed use a table named command, with
// the program as path.
func fieldsOf(n *node) fields {
	f := fields{object: n, command: n.get("command")}
	if f.command != nil && f.command.value.kind == kindObject && f.command.value.get("path") != nil {
		f.object = f.command.value
		f.command = f.object.get("path")
	}
	f.args = f.object.get("args")
	f.argv = f.command != nil && f.command.value.kind == kindArray
	return f
}

// unwrapped returns the command and arguments that a tap runs, and whether there is a tap: mcpwire
// with the command tap, or another program with exactly the arguments that Wrap writes.
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

// wrappedCommandIndex returns the index of the wrapped command in the arguments of a tap, or -1.
func wrappedCommandIndex(args []string) int {
	from := 1
	if len(args) > 2 && args[1] == "--name" {
		// The name may be any text, even --.
		from = 3
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

// Unwrap undoes Wrap or WrapURL for the entry at pointer. Later edits of this entry and of others
// stay. It returns [ErrNotWrapped] without a tap or a record of the original URL,
// [ErrNoEntry], or a *ParseError.
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

// innerCommand returns the index of the wrapped command in the arguments of a tap.
func innerCommand(args []*node) int {
	texts := make([]string, len(args))
	for i, n := range args {
		texts[i] = n.text
	}
	return wrappedCommandIndex(texts)
}

// unwrapArgs undoes wrapArgs. undo may be nil.
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

// removeArgs removes args, if it is still where insertArgs has put it, and reports whether it did.
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
	// insertArgs added the preceding line end too.
	if end == len(d.data) && !bytes.HasSuffix(d.data, []byte("\n")) {
		start = len(bytes.TrimSuffix(bytes.TrimSuffix(d.data[:start], []byte("\n")), []byte("\r")))
	}
	d.splice(start, end, "")
	return true
}

// quote returns a string literal in the syntax of the document. Except for DEL, JSON strings are
// also TOML strings.
func (d *Document) quote(s string) string {
	out := encode(s, "", "")
	if d.syntax == syntaxTOML {
		out = strings.ReplaceAll(out, "\x7f", `\u007F`)
	}
	return out
}

// list returns string literals separated by commas, without brackets.
func (d *Document) list(items []string) string {
	quoted := make([]string, len(items))
	for i, s := range items {
		quoted[i] = d.quote(s)
	}
	return strings.Join(quoted, d.comma())
}

// comma returns the separator of list elements. A document without spaces stays so.
func (d *Document) comma() string {
	if d.isCompact() {
		return ","
	}
	return ", "
}

// isCompact reports whether the document has no space after its first colon.
func (d *Document) isCompact() bool {
	if d.syntax != syntaxJSON || len(d.root.members) == 0 {
		return false
	}
	m := d.root.members[0]
	return m.value.start == m.keyEnd+1
}

// separator returns the separator before the element first. If first is on a separate line, the
// separator contains that line break.
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

// memberSpace returns the white space before a member that follows m.
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

// eol returns the line end of the document.
func (d *Document) eol() string {
	if i := bytes.IndexByte(d.data, '\n'); i > 0 && d.data[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}

func lineStart(data []byte, offset int) int {
	return bytes.LastIndexByte(data[:offset], '\n') + 1
}

// Result returns the bytes that Save would write. They belong to the caller.
func (d *Document) Result() []byte {
	wraps := func(e edit) bool { return e.wrap }
	if hash(d.data) == d.record.After && !slices.ContainsFunc(d.edits, d.unrecorded) && !slices.ContainsFunc(d.edits, wraps) && len(d.keptEntries()) == 0 {
		if original := d.records.original(d.record); original != nil {
			return original
		}
	}
	return applied(d.data, d.splices)
}

// unrecorded reports whether an edit unwraps an entry that is not in the record. Such an entry is
// also wrapped in the backup.
func (d *Document) unrecorded(e edit) bool { return !e.wrap && d.record.entry(e.pointer) == nil }

// keptEntries returns the recorded entries that are wrapped in the file and stay so.
func (d *Document) keptEntries() (kept []undoEntry) {
	for _, u := range d.record.Entries {
		if d.stillWrapped(u) && !slices.ContainsFunc(d.edits, func(e edit) bool { return e.pointer == u.Pointer }) {
			kept = append(kept, u)
		}
	}
	return kept
}

// stillWrapped reports whether a recorded entry is wrapped in the file as read.
func (d *Document) stillWrapped(kept undoEntry) bool {
	n := d.root.lookup(jsonpointer.Split(kept.Pointer))
	if n == nil {
		return false
	}
	r := reader{data: d.data}
	s, _ := r.server(entry{node: n})
	return s.Wrapped || d.wrappedURL(kept.Pointer, n)
}

// Save writes a backup, then the record, then replaces the file and keeps its mode and owner. It
// reports whether there were changes to write. It refuses to write if the file has changed since
// Open ([ErrChanged]), or if the edited text does not have the intended entries. The document must
// not be used afterwards.
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
	if d.absent {
		if err := os.MkdirAll(filepath.Dir(d.real), 0o755); err != nil {
			return false, err
		}
		err := writeNew(d.real, nil, 0o600)
		if errors.Is(err, fs.ErrExist) {
			err = ErrChanged
		}
		if err != nil {
			return false, err
		}
		if d.info, err = os.Stat(d.real); err != nil {
			return false, err
		}
	}
	// A new file would bypass the old one's mode.
	if f, err := inuse.Open(d.real, os.O_WRONLY, 0); err != nil {
		return false, err
	} else if err := f.Close(); err != nil {
		return false, err
	}
	// Another process may have edited the file; its record must stay.
	if err := d.unchanged(); err != nil {
		return false, err
	}
	backup, err := d.records.backup(d.real, d.data, d.record.Backup)
	if err != nil {
		return false, fmt.Errorf("make a backup: %w", err)
	}
	d.saved = filepath.Join(d.records.folder(d.real), backup)
	if err := d.records.store(d.nextRecord(backup, out)); err != nil {
		return false, fmt.Errorf("write a record: %w", err)
	}
	err = replaceFile(d.real, out, d.info.Mode().Perm(), d.unchanged)
	if err != nil {
		if restore := d.records.store(d.record); restore != nil {
			err = errors.Join(err, restore)
		}
		return false, err
	}
	return true, nil
}

// Backup returns the path of the backup that Save has written, or "".
func (d *Document) Backup() string { return d.saved }

func (d *Document) nextRecord(backup string, out []byte) record {
	next := record{Version: recordVersion, File: d.real, Backup: d.record.Backup, Before: d.record.Before, After: hash(out), Entries: d.keptEntries()}
	switch {
	case len(next.Entries) == 0 && !slices.ContainsFunc(d.edits, func(e edit) bool { return !e.wrap }):
		next.Backup, next.Before = backup, hash(d.data)
	case hash(d.data) != d.record.After, slices.ContainsFunc(d.edits, d.unrecorded):
		// Restoring the backup would undo more than our edits.
		next.Backup, next.Before = "", ""
	}
	for _, e := range d.edits {
		if e.wrap {
			next.Entries = append(next.Entries, e.undo)
		}
	}
	return next
}

// unchanged returns ErrChanged if the file has changed since it was read.
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

// verify parses the edited text and compares the entries with the originals.
func (d *Document) verify(out []byte) error {
	root, err := parse(out, d.syntax)
	if err != nil {
		return fmt.Errorf("rejected: the edited file is malformed: %w", withPath(err, d.path))
	}
	for _, e := range d.edits {
		if e.removed {
			if err := d.verifyRemoved(e, root); err != nil {
				return err
			}
			continue
		}
		n := root.lookup(jsonpointer.Split(e.pointer))
		if n == nil {
			return fmt.Errorf("rejected: the edit loses %s", printable.Line(e.pointer))
		}
		r := reader{data: out}
		s, problem := r.server(entry{name: e.before.Name, pointer: e.pointer, node: n})
		if e.added != nil {
			if problem != nil || s.Command != e.added[0] || !slices.Equal(s.Args, e.added[1:]) || s.Disabled {
				return fmt.Errorf("rejected: the edit does not add %s as intended", printable.Line(e.pointer))
			}
			continue
		}
		want := e.before
		// The URL is the edit.
		if e.remote {
			want.URL, s.URL = "", ""
			want.Wrapped = s.Wrapped
		} else {
			want.Wrapped = e.wrap
		}
		if problem != nil || !s.sameAs(want) || s.Wrapped != want.Wrapped || s.Disabled != want.Disabled {
			return fmt.Errorf("rejected: the edit does not change %s as intended", printable.Line(e.pointer))
		}
	}
	return nil
}

// replaceFile replaces a file, with its mode and, if permitted, its owner. It calls check just
// before and stops on an error.
func replaceFile(path string, data []byte, mode os.FileMode, check func() error) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close() // it may be closed already
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
	if err := f.Close(); err != nil {
		return err
	}
	if err := inuse.Rename(f.Name(), path); err != nil {
		return err
	}
	syncDir(dir)
	return nil
}

// writeNew writes a file that must not exist yet.
func writeNew(path string, data []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// syncDir makes a rename durable. Not every system supports it, and the file is complete anyway.
func syncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}

// An undoEntry holds the facts that undoing an edit needs and the file does not contain.
type undoEntry struct {
	Pointer string `json:"pointer"`
	// ArgsAdded reports that there were no args. ArgsText is the previous text of args if it was
	// not a list.
	ArgsAdded bool   `json:"argsAdded,omitempty"`
	ArgsText  string `json:"argsText,omitempty"`
	// URL is the original URL, Before its original text in the file, and After its present text.
	URL    string `json:"url,omitempty"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// A record describes the edits to one file.
type record struct {
	Version int    `json:"v"`
	File    string `json:"file"`
	// Backup names the file with the bytes before the first edit. It is "" if restoring it would
	// undo more than our edits.
	Backup string `json:"backup,omitempty"`
	// Before and After are the hashes of the backup and of the edited file.
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

// records stores the records of all files in one folder, with a folder for each file that contains
// its record and backups.
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

// forFile returns the record of a file. An unreadable record counts as empty.
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

// restoreURL restores the recorded URL of a server.
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

// backup stores data and returns the name of the file. It removes the oldest backups if there are
// too many, except spare.
func (rs *records) backup(real string, data []byte, spare string) (string, error) {
	dir := rs.folder(real)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	names := rs.backups(dir)
	next := 1
	if len(names) > 0 {
		// A foreign name counts as 1.
		_, _ = fmt.Sscanf(names[len(names)-1], "backup-%06d", &next)
		next++
	}
	name := fmt.Sprintf("backup-%06d", next)
	if err := writeNew(filepath.Join(dir, name), data, 0o600); err != nil {
		return "", err
	}
	for len(names) >= maxBackups {
		if names[0] != spare {
			_ = os.Remove(filepath.Join(dir, names[0])) // best effort
		}
		names = names[1:]
	}
	return name, nil
}

func (rs *records) backups(dir string) []string {
	// The list is sorted. A folder that cannot be read counts as empty.
	list, _ := os.ReadDir(dir)
	var names []string
	for _, e := range list {
		if strings.HasPrefix(e.Name(), "backup-") {
			names = append(names, e.Name())
		}
	}
	return names
}

// original returns the bytes of a record's backup, or nil if they have changed.
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

// store writes a record, or removes it if it has no entries.
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
