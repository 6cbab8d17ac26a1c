package era

import (
	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
)

// DeclaredByClient returns a copy of the ClientCapabilities object caps with what a client of the revision can have declared: what came later it declares for
// another revision than the one that was agreed on, and it does not expect to be asked so.
func DeclaredByClient(caps []byte, f *Features) []byte {
	return Rewrite(nil, caps, func(m *jsonwire.Members) []byte {
		v := m.Value()
		switch {
		case m.KeyIs("elicitation") && !f.Elicitation:
			return nil
		case m.KeyIs("elicitation") && IsObject(v) && !f.URLElicitation: // forms, without a name
			return Rewrite(nil, v, except("form", "url"), nil)
		case m.KeyIs("sampling") && IsObject(v) && !f.SamplingTools:
			return Rewrite(nil, v, except("tools", "context"), nil)
		}
		return v
	}, nil)
}

// ConvertClientCapabilities appends the ClientCapabilities object caps, which is of the other era, as a client of the revision declares the same. The
// tasks of either era do not say anything in the other: tasks declares the extension to a modern server, for requests that may become a task.
func ConvertClientCapabilities(dst, caps []byte, to *Features, tasks bool) []byte {
	if !IsObject(caps) {
		caps = []byte("{}")
	}
	tasks = tasks && to.Modern
	extended := false
	dst = Rewrite(dst, caps, func(m *jsonwire.Members) []byte {
		v := m.Value()
		switch {
		case m.KeyIs("tasks"), string(v) == "null":
			return nil
		case m.KeyIs("roots") && IsObject(v): // nobody tells a modern server of changes, nor could a modern client
			return Rewrite(nil, v, except("listChanged"), nil)
		case m.KeyIs("elicitation") && !to.Elicitation:
			return nil
		case m.KeyIs("extensions") && IsObject(v):
			extended = true
			return convertExtensions(v, tasks)
		}
		return v
	}, nil)
	if tasks && !extended {
		dst = appendMember(dst, `"extensions":{"`+mcp.ExtensionTasks+`":{}}`)
	}
	return dst
}

// ConvertServerCapabilities appends the ServerCapabilities object caps, which is of the other era, as a server of the revision declares the same.
func ConvertServerCapabilities(dst, caps []byte, to *Features) []byte {
	if !IsObject(caps) {
		caps = []byte("{}")
	}
	coreTasks := to.Modern && Lookup(caps, "tasks", "requests", "tools", "call") != nil
	extTasks := to.CoreTasks && IsObject(Lookup(caps, "extensions", mcp.ExtensionTasks))
	extended := false
	dst = Rewrite(dst, caps, func(m *jsonwire.Members) []byte {
		v := m.Value()
		switch {
		case m.KeyIs("tasks"), string(v) == "null", m.KeyIs("completions") && !to.Completions:
			return nil
		case m.KeyIs("extensions") && IsObject(v):
			extended = true
			return convertExtensions(v, coreTasks)
		}
		return v
	}, nil)
	if coreTasks && !extended {
		dst = appendMember(dst, `"extensions":{"`+mcp.ExtensionTasks+`":{}}`)
	}
	if extTasks {
		dst = appendMember(dst, `"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}`)
	}
	return dst
}

// ImpliedCapabilities returns what a legacy server of the revision declared with what it may have without declaring it: the first revision has completion
// for prompts and resources, and no capability for it.
func ImpliedCapabilities(caps []byte, f *Features) []byte {
	if f.Completions || Lookup(caps, "completions") != nil || Lookup(caps, "prompts") == nil && Lookup(caps, "resources") == nil {
		return caps
	}
	return Rewrite(nil, caps, except("completions"), []byte(`"completions":{}`))
}

// convertExtensions declares the tasks extension, or does not; all others stay. Nothing is nothing.
func convertExtensions(v []byte, tasks bool) []byte {
	var added []byte
	if tasks {
		added = []byte(`"` + mcp.ExtensionTasks + `":{}`)
	}
	v = Rewrite(nil, v, except(mcp.ExtensionTasks), added)
	if string(v) == "{}" {
		return nil
	}
	return v
}

// except leaves out members by their names.
func except(names ...string) func(m *jsonwire.Members) []byte {
	return func(m *jsonwire.Members) []byte {
		for _, name := range names {
			if m.KeyIs(name) {
				return nil
			}
		}
		return m.Value()
	}
}

// appendMember adds the text of a member to the object that ends dst.
func appendMember(dst []byte, member string) []byte {
	dst = dst[:len(dst)-1]
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	return append(append(dst, member...), '}')
}
