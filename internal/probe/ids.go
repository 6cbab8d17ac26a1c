package probe

import (
	"bytes"

	"mcpwire/internal/jsonwire"
)

// sameID reports whether two ids in JSON text are the same value: strings by what they say, and numbers by how they are written, since 9007199254740993
// and 9007199254740992 are the same to those who think in floating point.
func sameID(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	if a[0] == '"' && b[0] == '"' {
		return jsonwire.UnquoteString(a) == jsonwire.UnquoteString(b)
	}
	return bytes.Equal(a, b)
}
