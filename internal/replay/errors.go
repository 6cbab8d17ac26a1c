package replay

import (
	"errors"
	"fmt"

	"mcpwire/internal/printable"
)

var (
	// ErrNoSession is wrapped by the error of [Read] for a capture in which no client says anything.
	ErrNoSession = errors.New("nothing that a client has sent")
	// ErrTooLarge is wrapped by the error of [Read] for what is above the limits of [ReadOptions].
	ErrTooLarge = errors.New("more than is taken")
)

// An EraError says that the server does not speak the era of the recording
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning).
type EraError struct {
	Modern   bool   // the recording's era
	Revision string // the recording's; may be empty
	Err      error  // how the server refuses it
}

// Error says so, with the server's words as far as they can be shown.
func (e *EraError) Error() string {
	name, what := "legacy", "its handshake"
	if e.Modern {
		name, what = "modern", "requests without a handshake"
	}
	if e.Revision != "" {
		name += " (" + printable.Line(e.Revision) + ")"
	}
	return fmt.Sprintf("the recording is of another era than the server: it is %s, and the server refuses %s: %s", name, what, printable.Line(e.Err.Error()))
}

// Unwrap returns Err.
func (e *EraError) Unwrap() error { return e.Err }
