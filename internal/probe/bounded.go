package probe

import (
	"errors"
	"io"
)

var errTooLarge = errors.New("the server wrote more than the probe takes")

// limitedReader is a reader that fails when more than so many bytes come.
type limitedReader struct {
	r         io.Reader
	remaining int
}

func (r *limitedReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if n > r.remaining {
		n, err = r.remaining, errTooLarge
	}
	r.remaining -= n
	return n, err
}
