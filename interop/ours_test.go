package interop

import (
	"slices"
	"testing"
)

// allRevisions are those of the legacy era and the modern one.
var allRevisions = append(slices.Clone(legacyRevisions), modern)

// ours is our own server: its faults are not a peer's.
var ours = &peer{
	name:      "mcpwire",
	info:      "everything",
	revisions: allRevisions,
	launch: func(t *testing.T, revisions ...string) *witnessed {
		t.Helper()
		return newProgram(t, everythingVerb, revisions...)
	},
}

// TestOurs runs our client against our server.
func TestOurs(t *testing.T) { runTours(t, ours) }
