package capture

import "io/fs"

// private reports whether a file is a regular one. The folder decides who may read it, and Go does
// not report that.
func private(info fs.FileInfo) bool { return info.Mode().IsRegular() }
