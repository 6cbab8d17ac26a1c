//go:build !unix

package cli

import (
	"context"
	"os"
)

// whileRead returns a context that ends with ctx: whether somebody reads f cannot be told here before it is written to.
func whileRead(ctx context.Context, _ *os.File) (watched context.Context, stop func()) {
	return context.WithCancel(ctx)
}

// privately does nothing here: who may use a socket is up to its folder.
func privately() (over func()) { return func() {} }
