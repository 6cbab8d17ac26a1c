//go:build !windows

package call

import "os"

// readEscapes does nothing: terminals on this system interpret escape sequences.
func readEscapes(*os.File) (restore func()) { return func() {} }
