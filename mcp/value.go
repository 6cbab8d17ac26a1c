package mcp

// A Value is a type of this package that is a JSON object: results, params, tools, content blocks
// and their parts.
type Value interface {
	// appendRevision appends the JSON text without the members that the revision lacks.
	// RevisionNone has all members.
	appendRevision(dst []byte, r Revision) []byte
}

// Append appends the JSON text of v to dst, on one line, and returns the extended slice. It omits
// the members that revision r lacks; RevisionNone keeps every member that is set. A content block
// of a kind that r lacks becomes a text block that describes it.
func Append(dst []byte, v Value, r Revision) []byte { return v.appendRevision(dst, r) }
