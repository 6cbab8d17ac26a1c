package live

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"mcpwire/cmd/internal/trace/captures"
)

const (
	suffix        = ".sock"
	newSuffix     = ".new"      // of a socket that does not listen yet
	maxUnboundAge = time.Minute // age at which such a socket is removed
	maxList       = 1024        // names read from a folder
)

// ErrNotPrivate is wrapped by the error for a folder or a socket that is not private to the user.
var ErrNotPrivate = errors.New("live: not private to its owner")

// Dir returns the folder for the sockets of running taps, next to the folder for captures: see
// [captures.Dir]. The folder may not exist.
func Dir() (string, error) {
	dir, err := captures.Dir()
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(dir), "live"), nil
}

// List returns the paths of the sockets among the first 1024 files of a folder. A folder that does
// not exist has none. The error may wrap [ErrNotPrivate]. A socket may belong to a tap that has
// ended: see [Dial].
func List(dir string) ([]string, error) {
	names, err := readNames(dir)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, name := range names {
		if strings.HasSuffix(name, suffix) {
			list = append(list, filepath.Join(dir, name))
		}
	}
	return list, nil
}

// readNames returns the names in a folder, at most maxList.
func readNames(dir string) ([]string, error) {
	if err := checkPrivate(dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(maxList)
	if len(names) > 0 {
		err = nil
	} else if err != nil { // io.EOF for an empty folder
		return nil, nil
	}
	return names, err
}

// checkPrivate returns an error if others than the user can access the folder.
func checkPrivate(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() || !private(info) || !owned(info) {
		return fmt.Errorf("%s: %w", dir, ErrNotPrivate)
	}
	return nil
}

// cleanExcept removes the sockets of taps that have ended, except own. It returns the errors of
// [List].
func cleanExcept(dir, own string) error {
	names, err := readNames(dir)
	for _, name := range names {
		path := filepath.Join(dir, name)
		if strings.HasSuffix(name, newSuffix) {
			if info, err := os.Lstat(path); err == nil && time.Since(info.ModTime()) > maxUnboundAge {
				os.Remove(path)
			}
			continue
		}
		if !strings.HasSuffix(name, suffix) || path == own {
			continue
		}
		if c, err := connect(path); err == nil {
			c.Close()
		}
	}
	return err
}
