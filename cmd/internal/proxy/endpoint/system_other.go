//go:build !unix

package endpoint

import (
	"context"
	"os"
)

// whileRead returns a context that ends with ctx. On this system only a write shows whether
// somebody still reads f.
func whileRead(ctx context.Context, _ *os.File) (watched context.Context, stop func()) {
	return context.WithCancel(ctx)
}

// privately does nothing on this system: the folder of a socket decides who may use it.
func privately() (over func()) { return func() {} }
