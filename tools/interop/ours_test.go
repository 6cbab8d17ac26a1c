package interop

import (
	"slices"
	"testing"
)

// allRevisions are the revisions of both eras.
var allRevisions = append(slices.Clone(legacyRevisions), modern)

// ours is our server. It has no quirks or deviations.
var ours = &peer{
	name:      "mcpwire",
	info:      "everything",
	revisions: allRevisions,
	launch: func(t *testing.T, revisions ...string) *recordedServer {
		t.Helper()
		return newProgram(t, everythingVerb, revisions...)
	},
}

// TestOurs runs our client against our server.
func TestOurs(t *testing.T) { runTours(t, ours) }
