package translate

import (
	"slices"
	"strconv"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/mcp"
)

// appendInt appends a member with a number.
func appendInt(dst []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(append(append(dst, '"'), name...), `":`...), n, 10)
}

// withToken returns the params of a progress notification with another token.
func withToken(params, token []byte) []byte {
	return era.RewriteMember(params, "progressToken", func([]byte) []byte { return token })
}

// rewriteTools returns a result of tools/list with changed tools.
func rewriteTools(result []byte, change func(tool []byte) []byte) []byte {
	return era.RewriteMember(result, "tools", func(tools []byte) []byte {
		if tools[0] != '[' {
			return tools
		}
		return era.RewriteArray(nil, tools, func(tool []byte) []byte {
			if !era.IsObject(tool) {
				return tool
			}
			return change(tool)
		})
	})
}

// without returns a copy of list without an element.
func without[T comparable](list []T, one T) []T {
	return slices.DeleteFunc(slices.Clone(list), func(other T) bool { return other == one })
}

// withMember adds the text of a member to an object, which may be nil.
func withMember(obj, member []byte) []byte {
	if obj == nil {
		obj = []byte("{}")
	}
	return era.Rewrite(nil, obj, nil, member)
}

// withoutMembers removes members from an object. It returns nil if the result is empty.
func withoutMembers(obj []byte, names ...string) []byte {
	obj = era.Rewrite(nil, obj, era.Without(names...), nil)
	if string(obj) == "{}" {
		return nil
	}
	return obj
}

// addMeta adds the text of a member to the _meta of params.
func addMeta(params, member []byte) []byte {
	meta := era.Lookup(params, "_meta")
	if !era.IsObject(meta) {
		meta = []byte("{}")
	}
	meta = era.Rewrite(nil, meta, nil, member)
	if !era.IsObject(params) {
		params = []byte("{}")
	}
	return era.Rewrite(nil, params, era.Without("_meta"), append([]byte(`"_meta":`), meta...))
}

func taskMember(id string) []byte {
	return jsonwire.AppendQuote([]byte(`"taskId":`), id)
}

func taskParams(id string) []byte {
	return append(append([]byte{'{'}, taskMember(id)...), '}')
}

func uriParams(uri string) []byte {
	return append(jsonwire.AppendQuote([]byte(`{"uri":`), uri), '}')
}

// relatedTask returns the member of _meta that names a task.
func relatedTask(id string) []byte {
	return append([]byte(`"`+mcp.MetaRelatedTask+`":`), taskParams(id)...)
}

// withRelatedTask adds the task id to the _meta of a result.
func withRelatedTask(result []byte, id string) []byte {
	related := relatedTask(id)
	done := false
	result = era.Rewrite(nil, result, func(m *jsonwire.Members) []byte {
		v := m.Value()
		if done || !m.KeyIs("_meta") || !era.IsObject(v) {
			return v
		}
		done = true
		return era.Rewrite(nil, v, era.Without(mcp.MetaRelatedTask), related)
	}, nil)
	if !done {
		result = era.Rewrite(nil, result, nil, append(append([]byte(`"_meta":{`), related...), '}'))
	}
	return result
}

// withoutMeta removes a member of the _meta of object.
func withoutMeta(object []byte, name string) []byte {
	return era.RewriteMember(object, "_meta", func(meta []byte) []byte {
		if !era.IsObject(meta) {
			return meta
		}
		return withoutMembers(meta, name)
	})
}

// withoutSubscriptionID removes the subscription id from params. It returns nil if nothing is left.
func withoutSubscriptionID(params []byte) []byte {
	params = withoutMeta(params, mcp.MetaSubscriptionID)
	if string(params) == "{}" {
		return nil
	}
	return params
}
