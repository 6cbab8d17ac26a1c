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
	"mcpwire/internal/base/hooks"
)

// HomeVariable names the environment variable that overrides the folder for all of the user's
// files.
const HomeVariable = "MCPWIRE_HOME"

// Dir returns the folder for captures: $MCPWIRE_HOME/captures, or else a folder below the usual
// place for user state: $XDG_STATE_HOME or ~/.local/state
// (https://specifications.freedesktop.org/basedir-spec/latest/), ~/Library/Application Support, or
// %LocalAppData%. The folder may not exist.
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

// StateDir returns the folder for all persistent state. It is the one that holds the folder for
// captures.
func StateDir() (string, error) {
	dir, err := Dir()
	return filepath.Dir(dir), err
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
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) { // relative paths must be ignored
		return dir, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".local", "state"), nil
}

const (
	maxNameBytes = 64 // bytes of a server's name in a file name
	maxSameName  = 1000
	timeLayout   = "20060102T150405Z"
)

// Create creates the capture NAME-20261122T014530Z-PID.mcpcap.ndjson in dir, where NAME is
// [FileName] of name. Dir is created if needed; the folder and the file are accessible to the user
// only. opts may be nil; an empty opts.Name means name. Create sets opts.Hooks.Opened. The caller
// must close the capture. Until then, [List] shows it as being written as long as this process
// lives.
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
	base := fmt.Sprintf("%s-%s-%d", FileName(name), time.Now().UTC().Format(timeLayout), os.Getpid())
	return CreateFile(filepath.Join(dir, base+capture.Suffix), &o)
}

// CreateFile is [capture.Create] for a capture that viewers may follow: until it is closed, they
// see that it is being written. If the file exists, CreateFile adds a number to its name. It sets
// opts.Hooks.Opened.
func CreateFile(path string, opts *capture.Options) (*capture.File, error) {
	var o capture.Options
	if opts != nil {
		o = *opts
	}
	// The lock only tells others that the capture is being written. A file system without locks
	// must not prevent recording.
	if o.Hooks == nil {
		o.Hooks = new(hooks.Writer[capture.Event])
	}
	o.Hooks.Opened = func(f *os.File) { _ = lock(f) }
	for i := 1; ; i++ {
		f, err := capture.Create(numbered(path, i), &o)
		if !errors.Is(err, fs.ErrExist) || i == maxSameName {
			return f, err
		}
	}
}

// numbered returns the path of the i-th capture with a path, such as a-2.ndjson.gz.
func numbered(path string, i int) string {
	if i == 1 {
		return path
	}
	dir, name := filepath.Split(path)
	end := len(name)
	for _, suffix := range []string{".gz", ".zst", ".ndjson", ".mcpcap"} {
		end = len(strings.TrimSuffix(name[:end], suffix))
	}
	if end == 0 || end == len(name) {
		end = len(name) - len(filepath.Ext(name))
	}
	return fmt.Sprintf("%s%s-%d%s", dir, name[:end], i, name[end:])
}

// ProbeName is the server name of the captures that CreateProbe creates.
const ProbeName = "probe"

// probeTool is the beginning of the tool of these captures.
const probeTool = "mcpwire check "

// maxProbes is the number of finished captures of probes that CreateProbe keeps.
const maxProbes = 5

// CreateProbe is like Create for the traffic of a probe by mcpwire check of a version. It removes
// older captures of probes, except the newest of them.
func CreateProbe(dir, version string, opts *capture.Options) (*capture.File, error) {
	o := *opts
	o.Name, o.Tool = ProbeName, probeTool+version
	f, err := Create(dir, ProbeName, &o)
	if err != nil {
		return nil, err
	}
	list, err := List(dir)
	if err != nil {
		return f, nil // the next probe can remove them
	}
	n := 0
	for _, i := range list {
		if i.IsProbe() && i.State != Writing {
			if n++; n >= maxProbes {
				_ = os.Remove(i.Path)
			}
		}
	}
	return f, nil
}

// IsProbe reports whether mcpwire check or doctor made the capture.
func (i *Info) IsProbe() bool { return i.Name == ProbeName && strings.HasPrefix(i.Tool, probeTool) }

// ResentSuffix is the end of the server name of captures of resent requests.
const ResentSuffix = " resent"

// Observed reports whether a session was recorded that others led: not a probe, and not a request
// that was sent again.
func (i *Info) Observed() bool { return !i.IsProbe() && !strings.HasSuffix(i.Name, ResentSuffix) }

// FileName returns a form of a server's name that is valid in file names on all systems: ASCII
// letters, digits, '-' and '_', at most 64 bytes, never empty.
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
	Writing   State = "writing" // its recorder is running
	Complete  State = "closed"  // it has its last line
	Truncated State = "dead"    // its recorder ended without the last line
	Unknown   State = "unknown" // compressed, so the end is unreadable
)

// An Info describes a capture in a list. Its texts come from the capture unescaped and are
// untrusted.
type Info struct {
	// Path is the path of the file.
	Path string
	// ID is the id of the capture. It is empty, as are Name, Transport, Tool and Redact, if the
	// file does not begin with a head.
	ID string
	// Name is the name of the server.
	Name string
	// Transport is what the tool recorded.
	Transport capture.Transport
	// Tool is the tool that recorded the capture.
	Tool string
	// Redact is the redaction of the capture.
	Redact capture.RedactionMode
	// Started is the time in the head, or else the modification time.
	Started time.Time
	// Modified is the modification time of the file.
	Modified time.Time
	// Size is the size of the file, in bytes.
	Size  int64
	State State
	// Events counts the events, according to the last line. It is 0 unless State is Complete.
	Events uint64
	// Lost counts the events that were not recorded.
	Lost uint64
}

// maxHead is how many bytes are read to find the first and the last line.
const maxHead = 64 << 10

// ErrNotFound is wrapped by the error for a capture that does not exist.
var ErrNotFound = errors.New("no such capture")

// List returns the captures in dir, newest first. A folder that does not exist has none. List
// skips files with other names and files that are not regular.
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
		if !e.Type().IsRegular() || !IsCapture(e.Name()) {
			continue
		}
		info, err := Stat(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
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

// IsCapture reports whether a name is that of a capture file.
func IsCapture(name string) bool {
	name = strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".zst")
	return strings.HasSuffix(name, capture.Suffix)
}

// IsCompressed reports whether a capture file is compressed. It cannot be read before it is
// complete.
func IsCompressed(path string) bool {
	return strings.HasSuffix(path, ".gz") || strings.HasSuffix(path, ".zst")
}

// Stat describes the capture in a file. It reads only the beginning and the end.
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

// readTail returns the tail of a capture that was closed, or nil.
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

// Newest returns the newest of the observed captures in dir, the newest first: all that are being
// written, or without any, the one that started last and all that were recorded at the same time. A
// host with several servers makes such captures. The error may wrap [ErrNotFound].
func Newest(dir string) ([]Info, error) {
	list, err := List(dir)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(i Info) bool { return !i.Observed() })
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: there are none in %s", ErrNotFound, dir)
	}
	if slices.ContainsFunc(list, func(i Info) bool { return i.State == Writing }) {
		return slices.DeleteFunc(list, func(i Info) bool { return i.State != Writing }), nil
	}
	newest := list[0].Started
	return slices.DeleteFunc(list, func(i Info) bool { return i.Modified.Before(newest) }), nil
}

// Find returns the capture in dir with the file name name, with or without its suffix, or else the
// newest capture of the server with that name. The error may wrap [ErrNotFound].
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

// A Pruner removes old captures. The zero Pruner removes none.
type Pruner struct {
	// MaxAge removes captures that were not modified for longer. Zero means no limit.
	MaxAge time.Duration
	// MaxBytes removes the oldest captures until the total size is within the limit. Zero means no
	// limit.
	MaxBytes int64
	// Now is the time that ages are relative to. Zero means the current time.
	Now time.Time
	// DryRun only returns what Run would remove.
	DryRun bool
}

// Run removes captures from dir and returns them. It never removes captures that are being
// written, but counts their size.
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
	// Newest first: once the limit is exceeded, all older ones go.
	for _, i := range list {
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
