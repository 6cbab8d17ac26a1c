//go:build !windows

package cli

import "os"

// readEscapes does nothing: terminals on this system interpret escape sequences.
func readEscapes(*os.File) (restore func()) { return func() {} }
