package era

import (
	"strconv"

	"mcpwire/internal/jsonwire"
)

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
