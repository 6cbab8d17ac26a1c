package translate

import (
	"bytes"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
)

// maxToolPages is how much of a server's list of tools is read to know which of them are tasks.
const maxToolPages = 64

// A toolbox is what tools say of tasks, which only legacy ones say.
type toolSupport struct {
	byName   map[string][]byte // "optional" or "required", by name; the others have no entry
	complete bool              // the list was seen to its end
	waiting  []*upstreamCall   // calls that it is read for
}

// learn takes note of the tools of a page.
func (ts *toolSupport) learn(result []byte, maxNames int) []byte {
	return era.Rewrite(nil, result, func(m *jsonwire.Members) []byte {
		if v := m.Value(); !m.KeyIs("tools") || v[0] != '[' {
			return v
		}
		return era.RewriteArray(nil, m.Value(), func(tool []byte) []byte {
			name := era.LookupString(tool, "name")
			if !era.IsObject(tool) {
				return tool
			}
			support := era.LookupString(tool, "execution", "taskSupport")
			_, known := ts.byName[name]
			switch {
			case support != "optional" && support != "required":
				delete(ts.byName, name)
			case known || len(ts.byName) < maxNames && len(name) <= 1<<10:
				ts.byName[name] = []byte(support)
			}
			return withoutMembers(tool, "execution")
		})
	}, nil)
}

// learnTools learns from an answer to the client's tools/list, and returns what modern clients get of it.
func (t *ModernToLegacy) learnTools(params, result []byte) []byte {
	if era.Lookup(params, "cursor") == nil && era.Lookup(result, "nextCursor") == nil {
		t.tools.complete = true
	}
	return t.tools.learn(result, t.opts.Limits.ToolNames)
}

// waitForTools has a call wait until it is known what the server's tools say of tasks, and reports whether it has to: the client may know the tools from elsewhere, and one
// that knows tasks leaves it to the server what becomes one.
func (t *ModernToLegacy) waitForTools(c *upstreamCall) bool {
	if t.tools.complete || t.tools.byName[c.tool] != nil || c.req.client.Extension(t.modern, mcp.ExtensionTasks) == nil {
		return false
	}
	t.tools.waiting = append(t.tools.waiting, c)
	if len(t.tools.waiting) == 1 {
		t.readTools(nil, 1)
	}
	return true
}

// readTools reads a page of the list and what follows it.
func (t *ModernToLegacy) readTools(cursor []byte, page int) {
	var params []byte
	if cursor != nil {
		params = append(append([]byte(`{"cursor":`), cursor...), '}')
	}
	t.callUpstream(mcp.MethodToolsList, params, "which tools are tasks", func(o outcome) {
		if o.err == nil {
			t.tools.learn(o.result, t.opts.Limits.ToolNames)
			if next := era.Lookup(o.result, "nextCursor"); len(next) > 0 && next[0] == '"' && page < maxToolPages {
				t.readTools(bytes.Clone(next), page+1)
				return
			}
		}
		t.tools.complete = !t.upstreamDown // one that does not say is not asked again
		waiting := t.tools.waiting
		t.tools.waiting = nil
		for _, c := range waiting {
			if r := c.req; r != nil && !r.finished {
				t.whenReady(r, func() { // it may be that the server was lost
					if c.req == r && !r.finished {
						t.setLevelAndSend(c)
					}
				})
			}
		}
	})
}
