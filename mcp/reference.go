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

func (d *reader) reference(dst *Reference) {
	kind := ""
	members := jsonwire.ObjectMembers(d.val)
	for members.Next() {
		if members.KeyIs("type") {
			kind, _ = stringOf(members.Value())
		}
	}
	switch {
	case !isObject(d.val):
		d.fail("expected an object")
	case kind == "ref/prompt":
		var ref PromptReference
		d.wrong(ref.read(d.val))
		*dst = ref
	case kind == "ref/resource":
		var ref ResourceTemplateReference
		d.wrong(ref.read(d.val))
		*dst = ref
	default:
		d.wrong(&DecodeError{Path: "type", Problem: `expected "ref/prompt" or "ref/resource"`})
	}
}
