// Package smallfile reads files whose names come from a command line or a configuration.
package smallfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"mcpwire/cmd/internal/text/safe"
)

// MaxSize limits the size of a file named on a command line, in bytes.
const MaxSize = 64 << 20

// Read reads a file named on a command line.
func Read(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		var e *fs.PathError
		if errors.As(err, &e) {
			err = e.Err
		}
		return nil, fmt.Errorf("%s: %w", safe.Line(name), err)
	}
	if info.IsDir() || info.Size() > MaxSize {
		return nil, fmt.Errorf("%s: not a file of at most %d MiB", safe.Line(name), MaxSize>>20)
	}
	return os.ReadFile(name)
}
