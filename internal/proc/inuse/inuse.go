// Package inuse replaces files that other programs may have open.
//
// Windows refuses to replace an open file, and to open a file that is being replaced. Most programs
// close it soon: another mcpwire, a virus scanner, an indexer. So this package retries refused
// operations for a second. Other systems refuse neither, and nothing is retried.
//
// # Concurrency
//
// Functions are safe for concurrent use.
//
// # Errors
//
// The error of an operation that is still refused after a second wraps [ErrInUse].
package inuse

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

const (
	// retryTimeout limits the time for retries.
	retryTimeout = time.Second
	// maxDelay limits the pause between two attempts.
	maxDelay = 100 * time.Millisecond
)

// ErrInUse is wrapped by errors for files that another program seems to have open.
var ErrInUse = errors.New("another program may have the file open; close it and try again")

// Rename is like [os.Rename], with retries.
func Rename(oldpath, newpath string) error {
	return retry(func() error { return os.Rename(oldpath, newpath) }, func(err error) bool {
		if !isReplaceRefused(err) {
			return false
		}
		// A read-only file is not in use, and a folder is never replaced.
		info, err := os.Stat(newpath)
		return err != nil || info.Mode().IsRegular() && info.Mode().Perm()&0o200 != 0
	})
}

// Replace replaces a file, or creates it, with mode 0600, and describes the new one. The content is
// on the disk when Replace returns, but the name may not be. Readers see all of it or nothing.
func Replace(path string, content []byte) (_ os.FileInfo, err error) {
	// CreateTemp uses mode 0600 and a new name.
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			tmp.Close()
			os.Remove(tmp.Name())
		}
	}()
	if _, err = tmp.Write(content); err != nil {
		return nil, err
	}
	if err = tmp.Sync(); err != nil {
		return nil, err
	}
	info, err := tmp.Stat() // of this file, even if another process replaces it at once
	if err != nil {
		return nil, err
	}
	if err = tmp.Close(); err != nil {
		return nil, err
	}
	if err = Rename(tmp.Name(), path); err != nil {
		return nil, err
	}
	return info, nil
}

// Open is like [os.OpenFile], with retries.
func Open(path string, flag int, perm os.FileMode) (file *os.File, err error) {
	err = retry(func() error {
		file, err = os.OpenFile(path, flag, perm)
		return err
	}, isSharingViolation)
	return file, err
}

// retry calls op until it succeeds, fails with an error that is not temporary, or has failed for a
// second.
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
