package mcp

import (
	"fmt"
	"slices"
)

// A Revision is a dated version of the protocol. Later revisions are greater. In this
// module only internal/era compares them; other code asks for a feature.
type Revision uint8

// The revisions. The zero Revision is not a revision.
const (
	RevisionNone     Revision = iota
	Revision20241105          // the first
	Revision20250326          // Streamable HTTP, batches, audio, tool annotations
	Revision20250618          // structured tool output, elicitation, resource links; no batches
	Revision20251125          // tasks, icons, URL elicitation; the last with a handshake
	Revision20260728          // stateless: no handshake, metadata in each request
)

const (
	// LatestRevision is the newest revision that mcpwire supports.
	LatestRevision = Revision20260728
	// LatestLegacyRevision is the newest revision that starts with the initialize handshake.
	LatestLegacyRevision = Revision20251125
)

var revisionNames = [...]string{"", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"}

// String returns the date that names the revision on the wire, or "none".
func (r Revision) String() string {
	if r == RevisionNone || int(r) >= len(revisionNames) {
		return "none"
	}
	return revisionNames[r]
}

// Modern reports whether the revision is stateless: it has no handshake, and each request carries
// its own metadata. The specification calls the others legacy
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning).
func (r Revision) Modern() bool { return r >= Revision20260728 }

// since, until and is are for the generated appendRevision methods. RevisionNone has everything.
func (r Revision) since(first Revision) bool { return r == RevisionNone || r >= first }
func (r Revision) until(last Revision) bool  { return r <= last }
func (r Revision) is(one Revision) bool      { return r == RevisionNone || r == one }

// ParseRevision parses a date from the wire. ok is false for unknown dates.
func ParseRevision(date string) (r Revision, ok bool) {
	i := slices.Index(revisionNames[1:], date) + 1
	return Revision(i), i > 0
}

// Revisions returns all revisions, the oldest first. The caller owns the slice.
func Revisions() []Revision {
	all := make([]Revision, 0, len(revisionNames)-1)
	for i := 1; i < len(revisionNames); i++ {
		all = append(all, Revision(i))
	}
	return all
}

// MarshalText implements [encoding.TextMarshaler].
func (r Revision) MarshalText() ([]byte, error) {
	if r == RevisionNone || int(r) >= len(revisionNames) {
		return nil, fmt.Errorf("no such revision: %d", r)
	}
	return []byte(revisionNames[r]), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (r *Revision) UnmarshalText(text []byte) error {
	v, ok := ParseRevision(string(text))
	if !ok {
		return fmt.Errorf("unknown revision %.40q (known: %v)", text, Revisions())
	}
	*r = v
	return nil
}
