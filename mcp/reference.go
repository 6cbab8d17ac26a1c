package mcp

import "mcpwire/internal/jsonwire"

// Reference is what a completion is for: a [PromptReference] or a [ResourceTemplateReference]. What this package reads are values, not pointers.
type Reference interface {
	// AppendJSON appends the JSON text of all that is set.
	AppendJSON(dst []byte) []byte
	// AppendRevision appends the JSON text without what the revision does not have.
	AppendRevision(dst []byte, r Revision) []byte
	isReference()
}

func (PromptReference) isReference()           {}
func (ResourceTemplateReference) isReference() {}

func (r *reader) reference(dst *Reference) {
	kind := ""
	members := jsonwire.ObjectMembers(r.val)
	for members.Next() {
		if members.KeyIs("type") {
			kind, _ = stringOf(members.Value())
		}
	}
	switch {
	case !isObject(r.val):
		r.fail("expected an object")
	case kind == "ref/prompt":
		var ref PromptReference
		r.wrong(ref.read(r.val))
		*dst = ref
	case kind == "ref/resource":
		var ref ResourceTemplateReference
		r.wrong(ref.read(r.val))
		*dst = ref
	default:
		r.wrong(&DecodeError{Path: "type", Problem: `expected "ref/prompt" or "ref/resource"`})
	}
}
