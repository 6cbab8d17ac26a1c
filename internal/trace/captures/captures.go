package captures

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"mcpwire/capture"
)

// HomeVariable names the environment variable that says where everything is kept that belongs to the user, instead of the usual folder.
const HomeVariable = "MCPWIRE_HOME"

// Dir returns the folder for captures: $MCPWIRE_HOME/captures, or else the usual place for a user's state: below $XDG_STATE_HOME or ~/.local/state
// (https://specifications.freedesktop.org/basedir-spec/latest/), ~/Library/Application Support, or %LocalAppData%. It need not exist.
func Dir() (string, error) {
	if home := os.Getenv(HomeVariable); home != "" {
		abs, err := filepath.Abs(home)
		return filepath.Join(abs, "captures"), err
	}
	state, err := stateDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(state, "mcpwire", "captures"), nil
}

func stateDir() (string, error) {
	switch runtime.GOOS {
	case "windows":
		if dir := os.Getenv("LocalAppData"); dir != "" {
			return dir, nil
		}
		return "", errors.New("no folder for captures: neither " + HomeVariable + " nor LocalAppData is set")
	case "darwin", "ios":
		return os.UserConfigDir()
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) { // others are to be ignored
		return dir, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".local", "state"), nil
}

const (
	maxNameBytes = 64 // of a server's name in the name of a file
	maxSameName  = 1000
	timeLayout   = "20060102T150405Z"
)

// Create begins a capture in dir: NAME-20261122T014530Z-PID.mcpcap.ndjson, where NAME is what [FileName] makes of name. The folder is made if need be, for the user alone, and so
// is the file. opts may be nil; its Name is set to name if it has none. Close the capture in the end; until it has its last line, [List] shows it as being written
// for as long as this process lives.
func Create(dir, name string, opts *capture.Options) (*capture.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	var o capture.Options
	if opts != nil {
		o = *opts
	}
	if o.Name == "" {
		o.Name = name
	}
	// The lock is a sign for others that the capture is being written, and nothing depends on it: a
	// file system that has no locks is no reason not to record.
	o.Opened = func(f *os.File) { _ = lock(f) }
	base := fmt.Sprintf("%s-%s-%d", FileName(name), time.Now().UTC().Format(timeLayout), os.Getpid())
	for i := 1; ; i++ {
		path := filepath.Join(dir, base+capture.Suffix)
		if i > 1 {
			path = filepath.Join(dir, fmt.Sprintf("%s-%d%s", base, i, capture.Suffix))
		}
		f, err := capture.Create(path, &o)
		if errors.Is(err, fs.ErrExist) && i < maxSameName {
			continue
		}
		return f, err
	}
}

// FileName returns a name that is good in the name of a file on any system, made of the name of a server: letters, digits, '-' and '_' of ASCII, at most 64 bytes, and never empty.
func FileName(name string) string {
	var b strings.Builder
	for _, r := range name {
		switch {
		case b.Len() >= maxNameBytes:
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_':
			b.WriteRune(r)
		case !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	if s := strings.Trim(b.String(), "-"); s != "" {
		return s
	}
	return "server"
}

// A State says whether a capture is complete.
type State string

// The states of a capture.
const (
	Writing   State = "writing" // its recorder is at it
	Complete  State = "closed"  // its last line is there
	Truncated State = "dead"    // its recorder has ended without the last line
	Unknown   State = "unknown" // compressed, so that the end cannot be looked at
)

// An Info is what a list says of a capture. The texts in it are as they are in the capture, which anybody can have written.
type Info struct {
	Path      string    // of the file
	ID        string    // of the capture; "" and what follows empty if the file does not begin with a head
	Name      string    // of the server
	Transport string    // "stdio", "http", "sse"
	Tool      string    // that recorded it
	Redact    string    // "default", "custom" or "off"
	Started   time.Time // by the head, else when the file was changed last
	Modified  time.Time // when the file was changed last
	Size      int64     // of the file, in bytes
	State     State
	Events    uint64 // in the capture, by its last line; 0 unless Complete
	Lost      uint64 // that are not in it
}

// maxHead is how much of a file is looked at for its first and for its last line, in bytes.
const maxHead = 64 << 10

// ErrNotFound is wrapped by the error for a capture that there is not.
var ErrNotFound = errors.New("no such capture")

// List returns the captures in dir, the newest first. A folder that does not exist has none. Files with other names, and what is no regular file, are passed over.
func List(dir string) ([]Info, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	var list []Info
	for _, e := range entries {
		if !e.Type().IsRegular() || !isCapture(e.Name()) {
			continue
		}
		info, err := Stat(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) { // gone in between
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, info)
	}
	slices.SortStableFunc(list, func(a, b Info) int {
		return cmp.Or(b.Started.Compare(a.Started), strings.Compare(b.Path, a.Path))
	})
	return list, nil
}

func isCapture(name string) bool {
	name = strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".zst")
	return strings.HasSuffix(name, capture.Suffix)
}

// Stat returns what there is to say about the capture in a file. It reads the beginning and the end of it.
func Stat(path string) (Info, error) {
	f, err := os.Open(path)
	if err != nil {
		return Info{}, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return Info{}, err
	}
	info := Info{Path: path, Started: st.ModTime(), Modified: st.ModTime(), Size: st.Size()}
	info.readHead(f)
	compressed := !strings.HasSuffix(path, capture.Suffix)
	switch tail := readTail(f, st.Size(), compressed); {
	case tail != nil:
		info.State, info.Events, info.Lost = Complete, tail.Events, tail.Lost
	case locked(f):
		info.State = Writing
	case compressed:
		info.State = Unknown
	default:
		info.State = Truncated
	}
	return info, nil
}

func (i *Info) readHead(f *os.File) {
	r := capture.NewReader(io.LimitReader(f, maxHead), nil)
	defer r.Close()
	for e, err := range r.Events() {
		if err == nil && e.Head != nil {
			h := e.Head
			i.ID, i.Name, i.Transport, i.Tool, i.Redact, i.Started = h.ID, h.Name, h.Transport, h.Tool, h.Redact, h.At
		}
		return // the head is the first line
	}
}

// readTail returns the last line of a capture, if it is that of one that was closed.
func readTail(f *os.File, size int64, compressed bool) *capture.Tail {
	if compressed {
		return nil
	}
	from := max(0, size-maxHead)
	end, err := io.ReadAll(io.NewSectionReader(f, from, size-from))
	if err != nil || !bytes.HasSuffix(end, []byte("\n")) {
		return nil
	}
	line := end[bytes.LastIndexByte(end[:len(end)-1], '\n')+1:]
	r := capture.NewReader(bytes.NewReader(line), nil)
	for e, err := range r.Events() {
		if err == nil && e.Kind == capture.KindTail {
			return e.Tail
		}
		return nil
	}
	return nil
}

// Newest returns the newest capture in dir, by when it was begun. The error may wrap [ErrNotFound].
func Newest(dir string) (Info, error) {
	list, err := List(dir)
	if err != nil {
		return Info{}, err
	}
	if len(list) == 0 {
		return Info{}, fmt.Errorf("%w: there are none in %s", ErrNotFound, dir)
	}
	return list[0], nil
}

// Find returns the newest capture in dir of the server called name, or the one whose file is called so, with or without what its name ends in. The error may wrap [ErrNotFound].
func Find(dir, name string) (Info, error) {
	list, err := List(dir)
	if err != nil {
		return Info{}, err
	}
	for _, i := range list {
		base := filepath.Base(i.Path)
		stem, _, _ := strings.Cut(base, capture.Suffix)
		if name == base || name == stem {
			return i, nil
		}
	}
	for _, i := range list {
		if name == i.Name {
			return i, nil
		}
	}
	return Info{}, fmt.Errorf("%w: %q is neither a file nor the name of a server with a capture in %s", ErrNotFound, name, dir)
}

// A Pruner says which captures have to go. The zero Pruner removes none.
type Pruner struct {
	MaxAge   time.Duration // remove those that were not changed for longer; 0 does not look at the age
	MaxBytes int64         // remove the oldest until all of them together have no more bytes; 0 does not look at the size
	Now      time.Time     // what age counts from; zero is the present
	DryRun   bool          // only say what would go
}

// Run removes captures from dir, and returns them. Those that are being written stay, and count.
func (p Pruner) Run(dir string) ([]Info, error) {
	list, err := List(dir)
	if err != nil {
		return nil, err
	}
	now := p.Now
	if now.IsZero() {
		now = time.Now()
	}
	var total int64
	var removed []Info
	var failed error
	full := false
	for _, i := range list { // the newest first: where they do not fit any more, all that is older goes
		total += i.Size
		old := p.MaxAge > 0 && now.Sub(i.Modified) > p.MaxAge
		full = full || p.MaxBytes > 0 && total > p.MaxBytes
		if i.State == Writing || !old && !full {
			continue
		}
		if !p.DryRun {
			if err := os.Remove(i.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				failed = errors.Join(failed, err)
				continue
			}
		}
		removed = append(removed, i)
	}
	return removed, failed
}
