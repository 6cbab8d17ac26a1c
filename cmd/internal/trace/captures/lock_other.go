//go:build !windows && (!unix || solaris || aix)

package captures

import "os"

// lock does nothing: this system has no locks between processes.
func lock(*os.File) error { return nil }

func locked(*os.File) bool { return false }
