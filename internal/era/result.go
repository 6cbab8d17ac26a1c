package era

import (
	"strconv"

	"mcpwire/internal/json/jsonwire"
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
		id.infos[r] = mcp.Append(nil, &info, r)
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
	return append(strconv.AppendInt(append(dst, `,"ttlMs":`...), h.TTLMillis, 10), h.scope()...)
}

func (h CacheHints) scope() string {
	if h.Public {
		return `,"cacheScope":"public"`
	}
	return `,"cacheScope":"private"`
}

// AllowsStructured reports whether a tool's structured output with that JSON text may stand in a result of the revision. Where it may not, the text
// block that goes with it has to do.
func (f *Features) AllowsStructured(text []byte) bool {
	return f.Structured && (f.StructuredAny || len(text) > 0 && text[0] == '{')
}

// EndAs closes a result object that has members already, as End does, for a result of another type than complete. Legacy revisions have no such results.
func (id *Identity) EndAs(dst []byte, f *Features, resultType string) []byte {
	dst = jsonwire.AppendQuote(append(dst, `,"resultType":`...), resultType)
	dst = append(append(dst, `,"_meta":{"`+mcp.MetaServerInfo+`":`...), id.infos[f.Revision]...)
	return append(dst, "}}"...)
}

// Complete appends a result that somebody made who need not know the revision, the text of an object, with what each result of the revision has: a
// resultType and the server's identity, unless they are there, and the hints, unless they are nil or there. A legacy result loses its resultType.
func (id *Identity) Complete(dst []byte, f *Features, hints *CacheHints, result []byte) []byte {
	var resultType, meta []byte
	hasTTL, hasScope := false, false
	start := len(dst)
	dst = append(dst, '{')
	members := jsonwire.ObjectMembers(result)
	for members.Next() {
		switch {
		case members.KeyIs("_meta"):
			meta = members.Value()
			continue
		case members.KeyIs("resultType"):
			resultType = members.Value()
			continue
		case members.KeyIs("ttlMs"):
			hasTTL = true
		case members.KeyIs("cacheScope"):
			hasScope = true
		}
		dst = append(jsonwire.AppendQuote(append(dst, ','), members.KeyString()), ':')
		dst = jsonwire.AppendCompact(dst, members.Value())
	}
	complete := resultType == nil || string(resultType) == `"`+ResultComplete+`"`
	if f.Modern && hints != nil && complete {
		if !hasTTL {
			dst = strconv.AppendInt(append(dst, `,"ttlMs":`...), hints.TTLMillis, 10)
		}
		if !hasScope {
			dst = append(dst, hints.scope()...)
		}
	}
	if complete || !f.Modern {
		dst = id.EndWithMeta(dst, f, meta)
	} else {
		dst = append(append(dst, `,"resultType":`...), resultType...)
		dst = append(dst, id.EndWithMeta(nil, f, meta)[len(`,"resultType":"complete"`):]...)
	}
	if dst[start+1] == ',' { // before the first member
		dst = append(dst[:start+1], dst[start+2:]...)
	}
	return dst
}
