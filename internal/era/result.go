package era

import (
	"strconv"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/mcp"
)

// CacheHints say how long clients may cache a result, since 2026-07-28.
type CacheHints struct {
	// TTLMillis is the time in milliseconds. Zero means not to cache.
	TTLMillis int64
	// Public says that other users may get the cached result.
	Public bool
}

// An Identity is a server's Implementation, encoded for each revision. It is immutable.
type Identity struct {
	// tail is the end of a result object of a modern revision.
	tail string
	// infos holds the Implementation by revision.
	infos [6][]byte
	// short is the Implementation that each modern result repeats: without the parts that only
	// server/discover needs to have, such as icons.
	short []byte
}

// NewIdentity returns the identity with the info encoded for all revisions.
func NewIdentity(info mcp.Implementation) *Identity {
	id := new(Identity)
	for _, r := range mcp.Revisions() {
		id.infos[r] = mcp.Append(nil, &info, r)
	}
	id.short = mcp.Append(nil, &mcp.Implementation{Name: info.Name, Version: info.Version, Title: info.Title}, mcp.LatestRevision)
	id.tail = `,"resultType":"complete","_meta":{"` + mcp.MetaServerInfo + `":` + string(id.short) + `}}`
	return id
}

// AppendInfo appends the Implementation object for the revision.
func (id *Identity) AppendInfo(dst []byte, f *Features) []byte {
	return append(dst, id.infos[f.Revision]...)
}

// AppendShortInfo appends the Implementation object that results of modern revisions repeat.
func (id *Identity) AppendShortInfo(dst []byte) []byte { return append(dst, id.short...) }

// ShortInfo returns the part of an Implementation object that results repeat: its name, version and
// title.
func ShortInfo(info []byte) []byte {
	return Rewrite(nil, info, func(m *jsonwire.Members) []byte {
		if m.KeyIs("name") || m.KeyIs("version") || m.KeyIs("title") {
			return m.Value()
		}
		return nil
	}, nil)
}

// End closes a result object that has members. It adds the members of every result of the revision.
func (id *Identity) End(dst []byte, f *Features) []byte {
	if f.Modern {
		return append(dst, id.tail...)
	}
	return append(dst, '}')
}

// EndWithMeta is End for a result with the _meta object in meta, or nil. It adds the server info to
// meta unless it is present.
func (id *Identity) EndWithMeta(dst []byte, f *Features, meta []byte) []byte {
	if meta == nil {
		return id.End(dst, f)
	}
	if f.Modern {
		dst = append(dst, `,"resultType":"complete"`...)
	}
	start := len(dst) + len(`,"_meta":`)
	dst = jsonwire.AppendCompact(append(dst, `,"_meta":`...), meta)
	if f.Modern && jsonwire.Lookup(dst[start:], mcp.MetaServerInfo) == nil {
		dst = dst[:len(dst)-1]
		if len(dst) > start+1 {
			dst = append(dst, ',')
		}
		dst = append(append(dst, `"`+mcp.MetaServerInfo+`":`...), id.short...)
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

// Empty appends an empty result. meta is as in EndWithMeta.
func (id *Identity) Empty(dst []byte, f *Features, meta []byte) []byte {
	start := len(dst)
	dst = id.EndWithMeta(append(dst, '{'), f, meta)
	if dst[start+1] == ',' { // without a member before it
		dst = append(dst[:start+1], dst[start+2:]...)
	}
	return dst
}

// AppendCacheHints appends a comma and the members of the hints. It appends nothing in legacy
// revisions.
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

// AllowsStructured reports if a result of the revision may have the JSON text as structured output.
// Otherwise the text content must suffice.
func (f *Features) AllowsStructured(text []byte) bool {
	return f.Structured && (f.StructuredAny || len(text) > 0 && text[0] == '{')
}

// EndAs is End for a result of another type than complete. Legacy revisions have no such results.
func (id *Identity) EndAs(dst []byte, f *Features, resultType mcp.ResultType) []byte {
	dst = jsonwire.AppendQuote(append(dst, `,"resultType":`...), string(resultType))
	dst = append(append(dst, `,"_meta":{"`+mcp.MetaServerInfo+`":`...), id.short...)
	return append(dst, "}}"...)
}

// Complete appends the result object result with the members of every result of the revision: the
// resultType and the server info, unless present, and the hints, unless nil or present. In a legacy
// revision it removes the resultType.
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
	complete := resultType == nil || string(resultType) == `"`+string(mcp.ResultTypeComplete)+`"`
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
