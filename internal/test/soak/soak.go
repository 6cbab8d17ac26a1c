// Package soak lets tests that take long by their nature do less, unless MCPWIRE_SOAK is set, as
// CI sets it for them.
package soak

import "os"

// Enabled reports whether tests take as long as they can.
func Enabled() bool { return os.Getenv("MCPWIRE_SOAK") != "" }

// Choose returns with if Enabled, and without otherwise.
func Choose[T any](with, without T) T {
	if Enabled() {
		return with
	}
	return without
}
