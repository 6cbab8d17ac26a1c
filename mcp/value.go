package mcp

// A Value is a type of this package that has a JSON object of its own: results, params, tools, content
// blocks and all that they consist of.
type Value interface {
	// appendRevision appends the JSON text without the members that the revision does not have.
	// RevisionNone has all of them.
	appendRevision(dst []byte, r Revision) []byte
}

// Append appends the JSON text of v to dst, on one line, and returns the extended slice. It leaves
// out the members that revision r does not have; RevisionNone keeps everything that is set. A content
// block of a kind that r lacks becomes a text block that says so.
func Append(dst []byte, v Value, r Revision) []byte { return v.appendRevision(dst, r) }
