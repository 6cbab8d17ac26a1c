package replay

import (
	"maps"

	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
)

// maxTools is how many tools with arguments in headers are remembered.
const maxTools = 10_000

// finish completes a recording: which request builds on the answer to which, and how the session began.
func (b *builder) finish() {
	r := b.rec
	hello := false
	for _, c := range r.calls {
		if c.method == mcp.MethodInitialize {
			hello = true
			if v := jsonwire.Text(jsonwire.Lookup(c.result(), "protocolVersion")); v != "" {
				r.Revision = v
			}
		}
		r.params = learnParams(r.params, c.method, c.result())
	}
	if hello {
		r.Modern = false
	} else if !r.Modern {
		r.Synthetic = true
	}
	l := dependencies{pages: map[string]*call{}, inputRounds: map[string]*call{}, tasks: map[string]*call{}}
	for _, f := range r.frames {
		for i := range f.elements {
			if el := &f.elements[i]; el.call != nil {
				l.resolve(el)
			}
		}
	}
}

// result is what the call was answered; nil if that is no result.
func (c *call) result() []byte {
	if c.response == nil {
		return nil
	}
	return c.response.m.Result
}

// dependencies are the answers that a request can build on, the last of each kind: by its method and its cursor; by method, target and state; by the id of the task.
type dependencies struct{ pages, inputRounds, tasks map[string]*call }

// resolve finds the request that a request builds on, and remembers the request for those that build on it.
func (d *dependencies) resolve(el *element) {
	c, params := el.call, el.m.Params
	responses, state := jsonwire.Lookup(params, "inputResponses"), jsonwire.Lookup(params, "requestState")
	b := d.inputRounds[inputRoundKey(c, state)]
	if c.method == mcp.MethodTasksUpdate {
		b = d.tasks[c.target]
	}
	if (responses != nil || state != nil) && b != nil && hasMembers(jsonwire.Lookup(b.result(), "inputRequests"), responses) {
		c.inputRound = b
	}
	if cursor := jsonwire.Text(jsonwire.Lookup(params, "cursor")); cursor != "" {
		c.page = d.pages[c.method+"\x00"+cursor]
	}

	result := c.result()
	if cursor := jsonwire.Text(jsonwire.Lookup(result, "nextCursor")); cursor != "" {
		d.pages[c.method+"\x00"+cursor] = c
	}
	if jsonwire.Text(jsonwire.Lookup(result, "resultType")) == mcp.ResultTypeInputRequired {
		d.inputRounds[inputRoundKey(c, jsonwire.Lookup(result, "requestState"))] = c
	}
	if c.method == mcp.MethodTasksGet && jsonwire.Lookup(result, "inputRequests") != nil {
		d.tasks[c.target] = c
	}
}

func inputRoundKey(c *call, state []byte) string {
	return c.method + "\x00" + c.target + "\x00" + jsonwire.Text(state)
}

// hasMembers reports whether an object has all the names of another.
func hasMembers(object, names []byte) bool {
	have := memberSet(object)
	for name := range memberSet(names) {
		if !have[name] {
			return false
		}
	}
	return true
}

func memberSet(object []byte) map[string]bool {
	set := map[string]bool{}
	if len(object) == 0 || object[0] != '{' {
		return set
	}
	members := jsonwire.ObjectMembers(object)
	for members.Next() {
		set[members.KeyString()] = true
	}
	return set
}

// learnParams adds what the result of tools/list says of arguments in headers. The map is changed.
func learnParams(known map[string][]mcp.HeaderParam, method string, result []byte) map[string][]mcp.HeaderParam {
	tools := jsonwire.Lookup(result, "tools")
	if method != mcp.MethodToolsList || len(tools) == 0 || tools[0] != '[' {
		return known
	}
	list := jsonwire.ArrayElements(tools)
	for list.Next() {
		name, schema := jsonwire.Text(jsonwire.Lookup(list.Value(), "name")), jsonwire.Lookup(list.Value(), "inputSchema")
		if schema == nil {
			continue
		}
		params, err := mcp.HeaderParams(schema)
		switch {
		case err != nil || len(params) == 0:
			delete(known, name)
		case len(known) < maxTools:
			if known == nil {
				known = map[string][]mcp.HeaderParam{}
			}
			known[name] = params
		}
	}
	return known
}

// paramsOf is a copy of what the recording knows, to be changed.
func (r *Recording) paramsOf() map[string][]mcp.HeaderParam {
	if r.params == nil {
		return map[string][]mcp.HeaderParam{}
	}
	return maps.Clone(r.params)
}
