package hosts

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

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
