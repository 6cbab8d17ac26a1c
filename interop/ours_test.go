package interop

import (
	"slices"
	"testing"
)

// allRevisions are those of the legacy era and the modern one.
var allRevisions = append(slices.Clone(legacyRevisions), modern)

// ours is our own server: what goes wrong with it is no peer's fault.
var ours = &peer{
	name:      "mcpwire",
	info:      "everything",
	revisions: allRevisions,
	launch: func(t *testing.T, revisions ...string) *witnessed {
		t.Helper()
		return newProgram(t, everythingVerb, revisions...)
	},
}

// TestOurs takes our client through our server.
func TestOurs(t *testing.T) { runTours(t, ours) }
