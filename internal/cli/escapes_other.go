//go:build !windows

package cli

import "os"

// readEscapes has nothing to do: terminals understand escape sequences.
func readEscapes(*os.File) (restore func()) { return func() {} }
