package capture

import "io/fs"

// private reports whether a file is a regular one. Who may read it is what its folder says: Go does not tell.
func private(info fs.FileInfo) bool { return info.Mode().IsRegular() }
