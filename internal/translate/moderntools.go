package translate

import (
	"bytes"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
)

// maxPages is how much of a server's list of tools is read to know which of them are tasks.
const maxPages = 64

// A toolbox is what tools say of tasks, which only legacy ones say.
type toolbox struct {
	support map[string][]byte // "optional" or "required", by name; the others have no entry
	whole   bool              // the list was seen to its end
	waiting []*errand         // calls that it is read for
}

// learn takes note of the tools of a page.
func (b *toolbox) learn(result []byte, maxNames int) []byte {
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
			_, known := b.support[name]
			switch {
			case support != "optional" && support != "required":
				delete(b.support, name)
			case known || len(b.support) < maxNames && len(name) <= 1<<10:
				b.support[name] = []byte(support)
			}
			return without(tool, "execution")
		})
	}, nil)
}

// listed learns from an answer to the client's tools/list, and returns what modern clients get of it.
func (t *ModernClient) listed(params, result []byte) []byte {
	if era.Lookup(params, "cursor") == nil && era.Lookup(result, "nextCursor") == nil {
		t.tools.whole = true
	}
	return t.tools.learn(result, t.opts.Limits.Names)
}

// mustLearn has a call wait until it is known what the server's tools say of tasks, and reports whether it has to: the client may know the tools from elsewhere, and one
// that knows tasks leaves it to the server what becomes one.
func (t *ModernClient) mustLearn(r *errand) bool {
	if t.tools.whole || t.tools.support[r.tool] != nil || r.near.client.Extension(t.modern, mcp.ExtensionTasks) == nil {
		return false
	}
	t.tools.waiting = append(t.tools.waiting, r)
	if len(t.tools.waiting) == 1 {
		t.readTools(nil, 1)
	}
	return true
}

// readTools reads a page of the list and what follows it.
func (t *ModernClient) readTools(cursor []byte, page int) {
	var params []byte
	if cursor != nil {
		params = append(append([]byte(`{"cursor":`), cursor...), '}')
	}
	t.callServer(mcp.MethodToolsList, params, "which tools are tasks", func(a answer) {
		if a.err == nil {
			t.tools.learn(a.result, t.opts.Limits.Names)
			if next := era.Lookup(a.result, "nextCursor"); len(next) > 0 && next[0] == '"' && page < maxPages {
				t.readTools(bytes.Clone(next), page+1)
				return
			}
		}
		t.tools.whole = !t.down // one that does not say is not asked again
		waiting := t.tools.waiting
		t.tools.waiting = nil
		for _, r := range waiting {
			if x := r.near; x != nil && !x.over {
				t.whenReady(x, func() { // it may be that the server was lost
					if r.near == x && !x.over {
						t.sendErrand(r)
					}
				})
			}
		}
	})
}
