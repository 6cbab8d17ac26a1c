package exit

import (
	"errors"

	"golang.org/x/sys/windows"
)

// isBroken reports whether a write failed because the other end of the pipe is closed.
func isBroken(err error) bool {
	return errors.Is(err, windows.ERROR_BROKEN_PIPE) || errors.Is(err, windows.ERROR_NO_DATA) || errors.Is(err, windows.ERROR_PIPE_NOT_CONNECTED)
}
