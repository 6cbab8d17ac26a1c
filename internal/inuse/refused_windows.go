package inuse

import (
	"errors"

	"golang.org/x/sys/windows"
)

// refused reports whether a file was not replaced, perhaps because it is open.
func refused(err error) bool {
	return violated(err) || errors.Is(err, windows.ERROR_ACCESS_DENIED)
}

// violated reports whether a file was not opened because of how another program has it open.
func violated(err error) bool { return errors.Is(err, windows.ERROR_SHARING_VIOLATION) }
