package era

import (
	"bytes"
	"strconv"

	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
)

// Cacheable reports whether results of the method tell how long they may be kept, in the modern era.
func Cacheable(method string) bool {
	switch method {
	case mcp.MethodDiscover, mcp.MethodToolsList, mcp.MethodPromptsList, mcp.MethodResourcesList, mcp.MethodResourceTemplatesList, mcp.MethodResourcesRead:
		return true
	}
	return false
}

// ResultToModern appends a legacy server's result as a modern one: with its type, the server's name, the text of an Implementation or nil, and the hints
// if such results have any. What it has of these already stays, but for a type, which means nothing in the legacy era.
func ResultToModern(dst, result []byte, method string, serverInfo []byte, hints CacheHints) []byte {
	named := serverInfo == nil
	var hasTTL, hasScope, hasMeta bool
	cacheable := Cacheable(method)
	var identity []byte
	if !named {
		identity = append([]byte(`"`+mcp.MetaServerInfo+`":`), serverInfo...)
	}
	start := len(dst)
	dst = Rewrite(dst, result, func(m *jsonwire.Members) []byte {
		v := m.Value()
		switch {
		case m.KeyIs("resultType"):
			return nil
		case m.KeyIs("ttlMs") && cacheable:
			if n, ok := jsonwire.ParseInt(v); !ok || n < 0 || hasTTL {
				return nil
			}
			hasTTL = true
		case m.KeyIs("cacheScope") && cacheable:
			if s, _ := stringValue(v); s != "public" && s != "private" || hasScope {
				return nil
			}
			hasScope = true
		case m.KeyIs("_meta") && IsObject(v) && !hasMeta:
			hasMeta = true
			if !named && Lookup(v, mcp.MetaServerInfo) == nil {
				return Rewrite(nil, v, except(mcp.MetaServerInfo), identity)
			}
		}
		return v
	}, nil)
	var added []byte
	if cacheable && !hasTTL {
		added = strconv.AppendInt(append(added, `,"ttlMs":`...), hints.TTLMillis, 10)
	}
	if cacheable && !hasScope {
		added = append(added, hints.scope()...)
	}
	added = append(added, `,"resultType":"complete"`...)
	if !hasMeta && !named {
		added = append(append(append(added, `,"_meta":{`...), identity...), '}')
	}
	dst = dst[:len(dst)-1]
	if len(dst) == start+1 {
		added = added[1:]
	}
	return append(append(dst, added...), '}')
}

// ResultToLegacy appends a modern server's result as one of a legacy revision: without its type, the hints and the server's name, and with kinds of
// content that the revision has.
func ResultToLegacy(dst, result []byte, method string, to *Features) []byte {
	cacheable := Cacheable(method)
	return Rewrite(dst, result, func(m *jsonwire.Members) []byte {
		v := m.Value()
		switch {
		case m.KeyIs("resultType"), cacheable && (m.KeyIs("ttlMs") || m.KeyIs("cacheScope")):
			return nil
		case m.KeyIs("_meta") && IsObject(v):
			if v = Rewrite(nil, v, except(mcp.MetaServerInfo), nil); string(v) == "{}" {
				return nil
			}
		case method == mcp.MethodToolsCall && m.KeyIs("structuredContent") && !to.AllowsStructured(v):
			return nil
		case method == mcp.MethodToolsCall && m.KeyIs("content") && isArray(v) && !to.Structured:
			return RewriteArray(nil, v, func(block []byte) []byte { return convertBlock(block, to) })
		case method == mcp.MethodPromptsGet && m.KeyIs("messages") && isArray(v) && !to.Structured:
			return RewriteArray(nil, v, func(message []byte) []byte { return convertBlockIn(message, "content", to) })
		case method == mcp.MethodToolsList && m.KeyIs("tools") && isArray(v) && bytes.Contains(v, []byte(`"outputSchema"`)):
			return RewriteArray(nil, v, func(tool []byte) []byte { return toolToLegacy(tool, to) })
		}
		return v
	}, nil)
}

// toolToLegacy leaves out an output schema of a kind that legacy clients refuse.
func toolToLegacy(tool []byte, to *Features) []byte {
	if !IsObject(tool) {
		return tool
	}
	schema := Lookup(tool, "outputSchema")
	if schema == nil || to.Structured && IsObject(schema) && LookupString(schema, "type") == "object" {
		return tool
	}
	return Rewrite(nil, tool, except("outputSchema"), nil)
}

// convertBlockIn converts the block of content that is a member of an object.
func convertBlockIn(obj []byte, name string, to *Features) []byte {
	if !IsObject(obj) {
		return obj
	}
	return Rewrite(nil, obj, func(m *jsonwire.Members) []byte {
		if m.KeyIs(name) {
			return convertBlock(m.Value(), to)
		}
		return m.Value()
	}, nil)
}

// convertBlock returns a block of content as it is, unless the revision does not have its kind: then it is a text that says what was there.
func convertBlock(block []byte, to *Features) []byte {
	if !IsObject(block) {
		return block
	}
	switch LookupString(block, "type") {
	case "audio":
		if to.Revision != mcp.Revision20241105 {
			return block
		}
	case "resource_link":
		if to.Structured { // both came with the same revision
			return block
		}
	default:
		return block
	}
	content, err := mcp.ParseContent(block)
	if err != nil {
		return block
	}
	return content.AppendRevision(nil, to.Revision)
}
