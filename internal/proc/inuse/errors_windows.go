package inuse

import (
	"errors"

	"golang.org/x/sys/windows"
)

// isReplaceRefused reports whether a file may not have been replaced because it is open.
func isReplaceRefused(err error) bool {
	return isSharingViolation(err) || errors.Is(err, windows.ERROR_ACCESS_DENIED)
}

// isSharingViolation reports whether a file could not be opened because another program has it
// open.
func isSharingViolation(err error) bool { return errors.Is(err, windows.ERROR_SHARING_VIOLATION) }
