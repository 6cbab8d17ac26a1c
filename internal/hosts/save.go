package hosts

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"mcpwire/internal/inuse"
	"mcpwire/internal/printable"
)

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
