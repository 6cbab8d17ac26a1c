package probe

import (
	"errors"
	"io"
)

var errTooMuch = errors.New("the server wrote more than the probe takes")

// bounded is a reader that fails when more than so many bytes come.
type bounded struct {
	r    io.Reader
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if n > b.left {
		n, err = b.left, errTooMuch
	}
	b.left -= n
	return n, err
}
