// Package inuse replaces files that other programs may have open.
//
// Windows refuses to replace a file that anybody has open, and to open one that is being replaced. Most who
// have it open are done in a moment: another of us, a virus scanner, an indexer. So what is refused is
// tried again for a second. On other systems neither is refused, and nothing is tried twice.
//
// # Concurrency
//
// Functions may be called concurrently.
//
// # Errors
//
// What is still refused after that wraps [ErrInUse].
package inuse

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"
)

const (
	// retryTimeout is how long what is refused is tried again.
	retryTimeout = time.Second
	// maxDelay is the longest pause between two tries.
	maxDelay = 100 * time.Millisecond
)

// ErrInUse is wrapped by errors of files that another program seems to have open.
var ErrInUse = errors.New("another program may have the file open; close it and try again")

// Rename is like [os.Rename], with more patience.
func Rename(oldpath, newpath string) error {
	return retry(func() error { return os.Rename(oldpath, newpath) }, func(err error) bool {
		if !isReplaceRefused(err) {
			return false
		}
		// What may not be written is not in use, and a folder is never replaced.
		info, err := os.Stat(newpath)
		return err != nil || info.Mode().IsRegular() && info.Mode().Perm()&0o200 != 0
	})
}

// Open is like [os.OpenFile], with more patience.
func Open(path string, flag int, perm os.FileMode) (file *os.File, err error) {
	err = retry(func() error {
		file, err = os.OpenFile(path, flag, perm)
		return err
	}, isSharingViolation)
	return file, err
}

// retry tries op until it succeeds, fails in a way that is not temporary, or has failed for a second.
func retry(op func() error, temporary func(error) bool) error {
	start := time.Now()
	delay := time.Millisecond
	for {
		err := op()
		if err == nil || !temporary(err) {
			return err
		}
		if time.Since(start)+delay > retryTimeout {
			return fmt.Errorf("%w (%w)", err, ErrInUse)
		}
		time.Sleep(delay)
		delay = min(delay+rand.N(delay), maxDelay)
	}
}
