package shape

import "mcpwire/mcp"

// revs is a set of revisions.
type revs uint8

func revisionBit(r mcp.Revision) revs {
	if r == mcp.RevisionNone {
		return 0
	}
	return 1 << (r - 1)
}

func (r revs) has(rev mcp.Revision) bool { return r&revisionBit(rev) != 0 }

// list returns the revisions of the set, the oldest first.
func (r revs) list() []mcp.Revision {
	var all []mcp.Revision
	for _, rev := range mcp.Revisions() {
		if r.has(rev) {
			all = append(all, rev)
		}
	}
	return all
}

// A def is a definition of the specification: an object with fields, or in some revisions an expression by another name.
type def struct {
	name    string
	in      revs
	fields  []field
	aliases []variant
}

// A field is a member of an object, as some revisions have it. If its value differs from revision to revision, it stands there several times.
type field struct {
	name string
	in   revs
	need revs // where it must be there
	is   uint16
}

// A variant is an expression in some revisions.
type variant struct {
	in revs
	is uint16
}

// An expr says what a value may be. ref is a def of kindNamed, and the expr of the elements of KindArray and KindMap.
type expr struct {
	kind   Kind
	ref    uint16
	alts   []uint16 // of KindUnion
	tag    string   // of KindUnion: the member whose value tells the alternatives apart, if there is one
	values []string // of KindEnum
	format string
	min    int8
	max    int8
	low    bool   // min counts
	high   bool   // max counts
	items  uint16 // of KindArray: how many at most; 0 is any
}

// A message is what all revisions say of a method.
type message struct {
	name         string
	notification bool
	client       revs // where a client may send it
	server       revs
	extension    revs // where it is part of the tasks extension
	input        revs // where it is an input request within a result
	bare         revs // where params may be absent
	params       []variant
	results      []variant // what answers it; the first of a revision is the usual one
}

// A failure is what the data of an error looks like.
type failure struct {
	code int
	in   revs
	name string
	need bool
	data uint16
	has  bool // data is meaningful
}
