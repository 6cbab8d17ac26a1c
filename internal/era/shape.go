package era

import (
	"fmt"
	"strconv"

	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
)

// CacheHints say how long clients may keep a result, since 2026-07-28.
type CacheHints struct {
	TTLMillis int64
	Public    bool // may be served to other users
}

// An Identity is a server's Implementation, encoded for each revision's shape.
type Identity struct {
	tails [2]string // by Features.Modern: what ends a result object
	infos [6][]byte // by revision
}

// NewIdentity encodes the server's name and version for all revisions.
func NewIdentity(info mcp.Implementation) *Identity {
	id := new(Identity)
	for _, r := range mcp.Revisions() {
		f := Of(r)
		shaped := info
		if !f.Titles {
			shaped.Title = ""
		}
		if !f.Icons {
			shaped.Description, shaped.WebsiteURL, shaped.Icons = "", "", nil
		}
		id.infos[r] = shaped.AppendJSON(nil)
	}
	id.tails[0] = "}"
	id.tails[1] = `,"resultType":"complete","_meta":{"` + mcp.MetaServerInfo + `":` + string(id.infos[mcp.LatestRevision]) + `}}`
	return id
}

// AppendInfo appends the Implementation object in the revision's shape.
func (id *Identity) AppendInfo(dst []byte, f *Features) []byte {
	return append(dst, id.infos[f.Revision]...)
}

// End closes a result object that has members already. It adds what each result of the revision has.
func (id *Identity) End(dst []byte, f *Features) []byte {
	if f.Modern {
		return append(dst, id.tails[1]...)
	}
	return append(dst, id.tails[0]...)
}

// EndWithMeta is End for a result that has a _meta of its own, the text of an object or nil. The server's identity goes into it, unless it is there.
func (id *Identity) EndWithMeta(dst []byte, f *Features, meta []byte) []byte {
	if meta == nil {
		return id.End(dst, f)
	}
	if f.Modern {
		dst = append(dst, `,"resultType":"complete"`...)
	}
	start := len(dst) + len(`,"_meta":`)
	dst = jsonwire.AppendCompact(append(dst, `,"_meta":`...), meta)
	named := false
	members := jsonwire.ObjectMembers(dst[start:])
	for members.Next() {
		named = named || members.KeyIs(mcp.MetaServerInfo)
	}
	if f.Modern && !named {
		dst = dst[:len(dst)-1]
		if len(dst) > start+1 {
			dst = append(dst, ',')
		}
		dst = append(append(dst, `"`+mcp.MetaServerInfo+`":`...), id.infos[f.Revision]...)
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

// Empty appends the result that says nothing but that it was done. meta is the text of an object or nil, as in EndWithMeta.
func (id *Identity) Empty(dst []byte, f *Features, meta []byte) []byte {
	start := len(dst)
	dst = id.EndWithMeta(append(dst, '{'), f, meta)
	if dst[start+1] == ',' { // there is no member before it
		dst = append(dst[:start+1], dst[start+2:]...)
	}
	return dst
}

// AppendCacheHints appends the members that make a result cacheable, with a comma before them; nothing in legacy revisions.
func AppendCacheHints(dst []byte, f *Features, h CacheHints) []byte {
	if !f.Modern {
		return dst
	}
	dst = strconv.AppendInt(append(dst, `,"ttlMs":`...), h.TTLMillis, 10)
	if h.Public {
		return append(dst, `,"cacheScope":"public"`...)
	}
	return append(dst, `,"cacheScope":"private"`...)
}

// AppendTool appends a tool without what the revision does not have.
func AppendTool(dst []byte, t *mcp.Tool, f *Features) []byte {
	dst = jsonwire.AppendQuote(append(dst, `{"name":`...), t.Name)
	if t.Title != "" && f.Titles {
		dst = jsonwire.AppendQuote(append(dst, `,"title":`...), t.Title)
	}
	if t.Description != "" {
		dst = jsonwire.AppendQuote(append(dst, `,"description":`...), t.Description)
	}
	dst = jsonwire.AppendCompact(append(dst, `,"inputSchema":`...), t.InputSchema)
	if t.OutputSchema != nil && f.Structured && (f.StructuredAny || rootIsObject(t.OutputSchema)) {
		dst = jsonwire.AppendCompact(append(dst, `,"outputSchema":`...), t.OutputSchema)
	}
	if t.Annotations != nil && f.ToolAnnotations {
		dst = t.Annotations.AppendJSON(append(dst, `,"annotations":`...))
	}
	if len(t.Icons) > 0 && f.Icons {
		dst = mcp.AppendIcons(append(dst, `,"icons":`...), t.Icons)
	}
	if t.Meta != nil && f.ItemMeta {
		dst = jsonwire.AppendCompact(append(dst, `,"_meta":`...), t.Meta)
	}
	return append(dst, '}')
}

// rootIsObject reports whether a schema says "type":"object" at its root.
func rootIsObject(schema []byte) bool {
	if len(schema) == 0 || schema[0] != '{' {
		return false
	}
	members := jsonwire.ObjectMembers(schema)
	for members.Next() {
		if members.KeyIs("type") {
			return string(members.Value()) == `"object"`
		}
	}
	return false
}

// AllowsStructured reports whether a tool's structured output with that JSON text may stand in a result of the revision. Where it may not, the text
// block that goes with it has to do.
func (f *Features) AllowsStructured(text []byte) bool {
	return f.Structured && (f.StructuredAny || len(text) > 0 && text[0] == '{')
}

// AppendContent appends a content block without what the revision does not have. A kind of block that it lacks becomes a text that says what was
// there. c must have passed [mcp.CheckContent].
func AppendContent(dst []byte, c mcp.Content, f *Features) []byte {
	if f.Icons && f.ItemMeta { // the newest have everything
		return c.AppendJSON(dst)
	}
	switch v := c.(type) {
	case mcp.Text:
		v.Annotations, v.Meta = f.shape(v.Annotations, v.Meta)
		return v.AppendJSON(dst)
	case mcp.Image:
		v.Annotations, v.Meta = f.shape(v.Annotations, v.Meta)
		return v.AppendJSON(dst)
	case mcp.Audio:
		if !f.Audio {
			return note(dst, "[%s, %d bytes: revision %s has no audio content]", v.MIMEType, len(v.Data), f.Revision)
		}
		v.Annotations, v.Meta = f.shape(v.Annotations, v.Meta)
		return v.AppendJSON(dst)
	case mcp.ResourceLink:
		if !f.ResourceLinks {
			return note(dst, "[resource %s: %s]", v.Name, v.URI)
		}
		v.Icons = nil
		return v.AppendJSON(dst)
	case mcp.EmbeddedResource:
		v.Annotations, v.Meta = f.shape(v.Annotations, v.Meta)
		_, v.Resource.Meta = f.shape(nil, v.Resource.Meta)
		return v.AppendJSON(dst)
	}
	return c.AppendJSON(dst)
}

// shape drops what a block of the revision cannot have of the members that are common to all blocks.
func (f *Features) shape(a *mcp.Annotations, meta []byte) (*mcp.Annotations, []byte) {
	if f.ItemMeta {
		return a, meta
	}
	if a != nil && !a.LastModified.IsZero() {
		a = &mcp.Annotations{Audience: a.Audience, Priority: a.Priority}
	}
	return a, nil
}

func note(dst []byte, format string, args ...any) []byte {
	return mcp.Text{Text: fmt.Sprintf(format, args...)}.AppendJSON(dst)
}
