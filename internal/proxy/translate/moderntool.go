package translate

import (
	"bytes"

	"mcpwire/internal/era"
	"mcpwire/mcp"
)

// maxToolPages limits the pages of tools/list that are read to learn about task support.
const maxToolPages = 64

// A modernTools holds the task support of the legacy server's tools. Modern tools do not declare
// it.
type modernTools struct {
	*core
	handshake *modernHandshake
	calls     *modernCalls

	// byName holds "optional" or "required" by tool. Other tools have no entry.
	byName map[string][]byte
	// complete says that the whole list was read.
	complete bool
	// waiting continues the calls that wait for the list.
	waiting []func()
}

// wait runs do for a call when the task support of the tools is known. It reports false if it is
// known already. The client may have the tools from elsewhere, such as the catalog of a gateway.
func (mt *modernTools) wait(c *modernCall, do func()) bool {
	if mt.complete || mt.byName[c.tool] != nil {
		return false
	}
	mt.waiting = append(mt.waiting, func() { mt.calls.whenReady(c, do) }) // the server may be lost
	if len(mt.waiting) == 1 {
		mt.read(nil, 1)
	}
	return true
}

// read reads a page of the tools and the pages after it.
func (mt *modernTools) read(cursor []byte, page int) {
	var params []byte
	if cursor != nil {
		params = append(append([]byte(`{"cursor":`), cursor...), '}')
	}
	mt.calls.call(mcp.MethodToolsList, params, "which tools are tasks", func(o outcome) {
		if o.err == nil {
			mt.learn(o.result)
			if next := era.Lookup(o.result, "nextCursor"); len(next) > 0 && next[0] == '"' && page < maxToolPages {
				mt.read(bytes.Clone(next), page+1)
				return
			}
		}
		mt.complete = !mt.handshake.down // a tool without an entry is not requested again
		waiting := mt.waiting
		mt.waiting = nil
		for _, resume := range waiting {
			resume()
		}
	})
}

// learn records the tools of a page and returns it for modern clients.
func (mt *modernTools) learn(result []byte) []byte {
	return rewriteTools(result, func(tool []byte) []byte {
		name, support := era.LookupString(tool, "name"), era.LookupString(tool, "execution", "taskSupport")
		_, known := mt.byName[name]
		switch {
		case support != "optional" && support != "required":
			delete(mt.byName, name)
		case known || len(mt.byName) < mt.opts.Limits.ToolNames && len(name) <= 1<<10:
			mt.byName[name] = []byte(support)
		}
		return withoutMembers(tool, "execution")
	})
}

// changed notes that the list must be read again.
func (mt *modernTools) changed() { mt.complete = false }

// setTaskParam makes a call a task if the tool requires it, or allows it and the client knows
// tasks.
func (mt *modernTools) setTaskParam(c *modernCall) {
	support := string(mt.byName[c.tool])
	c.clientHasTasks = c.req != nil && c.req.client.Extension(mt.modern, mcp.ExtensionTasks) != nil
	if support == "required" || support == "optional" && c.clientHasTasks {
		c.taskParam = []byte("{}")
	}
}

// learnList records the tools in the response to a client's tools/list, and returns it for the
// client.
func (mt *modernTools) learnList(params, result []byte) []byte {
	if era.Lookup(params, "cursor") == nil && era.Lookup(result, "nextCursor") == nil {
		mt.complete = true
	}
	return mt.learn(result)
}
