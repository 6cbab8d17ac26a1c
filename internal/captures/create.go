package captures

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"mcpwire/capture"
)

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
