package tap

import (
	"errors"
	"os"
	"syscall"
)

// read and writeAll are for the host's files. The descriptions behind them may be shared with other processes, each of which can make them non-blocking at any time, for
// all; os.File, which looks once, then returns EAGAIN. Node.js does so to a standard error that it was given, for example.

// readFile is a call of Read.
func readFile(f *os.File, p []byte) (int, error) {
	for {
		n, err := f.Read(p)
		if n > 0 || !errors.Is(err, syscall.EAGAIN) || !waitReady(f, false) {
			return n, err
		}
	}
}

// writeAll writes all of p, unless that fails.
func writeAll(f *os.File, p []byte) error {
	for {
		n, err := f.Write(p)
		if !errors.Is(err, syscall.EAGAIN) {
			return err
		}
		if p = p[n:]; !waitReady(f, true) {
			return err
		}
	}
}
