//go:build !windows

package capture

import "io/fs"

// private reports whether a file is a regular one that only its owner may read or change.
func private(info fs.FileInfo) bool { return info.Mode().IsRegular() && info.Mode().Perm()&0o077 == 0 }
