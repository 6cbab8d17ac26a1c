package stdio

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// isBrokenPipe reports whether a write failed because the reader is gone.
func isBrokenPipe(err error) bool {
	return errors.Is(err, windows.ERROR_BROKEN_PIPE) || errors.Is(err, windows.ERROR_NO_DATA) || errors.Is(err, windows.ERROR_PIPE_NOT_CONNECTED)
}

// openInput returns an input for f, or for os.Stdin if f is nil. Closing the input leaves the file
// open.
func openInput(f *os.File) (input, error) {
	if f == nil {
		f = os.Stdin
	}
	return newPumpedInput(f), nil
}

// openOutput returns an output for f, or for os.Stdout if f is nil. Closing the output leaves the
// file open.
func openOutput(f *os.File) (output, error) {
	if f == nil {
		f = os.Stdout
	}
	return fileOutput{f}, nil
}

// A fileOutput has blocking writes only.
type fileOutput struct{ file *os.File }

func (o fileOutput) Write(p []byte) (int, error)    { return o.file.Write(p) }
func (o fileOutput) tryWrite(p []byte) (int, error) { return 0, nil }
func (o fileOutput) Close() error                   { return nil }
