package era

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// An InputRequest is what a server wants to know from a client: a request in the legacy era, an entry of inputRequests in the modern one.
type InputRequest struct {
	Method string
	Params []byte // text of an object, or nil
}

// IsInputRequest reports whether it is a method by which servers ask.
func IsInputRequest(method string) bool {
	switch method {
	case mcp.MethodElicit, mcp.MethodCreateMessage, mcp.MethodRootsList:
		return true
	}
	return false
}

// IsURL reports whether the user is to open a page.
func (r *InputRequest) IsURL() bool {
	return r.Method == mcp.MethodElicit && LookupString(r.Params, "mode") == mcp.ElicitModeURL
}

// MissingCapability returns the ClientCapabilities object that is needed and was not declared by a client of the revision, with what that is called; nil if the
// client can be asked.
func (r *InputRequest) MissingCapability(c *Client, f *Features) (required []byte, name string) {
	form := f.Elicitation && c.Has("elicitation") && (!f.URLElicitation || c.Has("elicitation", "form") || !c.Has("elicitation", "url"))
	switch {
	case r.IsURL() && !(f.URLElicitation && c.Has("elicitation", "url")):
		return []byte(`{"elicitation":{"url":{}}}`), "elicitation by URL"
	case r.Method == mcp.MethodElicit && !r.IsURL() && !form:
		return []byte(`{"elicitation":{"form":{}}}`), "elicitation by form"
	case r.Method == mcp.MethodCreateMessage && !c.Has("sampling"):
		return []byte(`{"sampling":{}}`), "sampling"
	case r.Method == mcp.MethodCreateMessage && r.usesTools() && !(f.SamplingTools && c.Has("sampling", "tools")):
		return []byte(`{"sampling":{"tools":{}}}`), "sampling with tools"
	case r.Method == mcp.MethodRootsList && !c.Has("roots"):
		return []byte(`{"roots":{}}`), "roots"
	}
	return nil, ""
}

func (r *InputRequest) usesTools() bool {
	return Lookup(r.Params, "tools") != nil || Lookup(r.Params, "toolChoice") != nil
}

// Convert returns the ask, which is of the other era, as one of the revision. elicitationID is what a page is known by where pages have ids. It fails
// if the revision has no way to ask that.
func (r *InputRequest) Convert(to *Features, elicitationID string) (InputRequest, error) {
	var added []byte
	if r.IsURL() && to.ElicitationIDs {
		added = jsonwire.AppendQuote([]byte(`"elicitationId":`), elicitationID)
	}
	if r.Method == mcp.MethodElicit && !r.IsURL() {
		if err := checkFormFields(r.Params, to); err != nil {
			return InputRequest{}, err
		}
	}
	if r.Params == nil {
		return InputRequest{r.Method, nil}, nil
	}
	params := Rewrite(nil, r.Params, func(m *jsonwire.Members) []byte {
		v := m.Value()
		switch {
		case m.KeyIs("elicitationId"), m.KeyIs("task"):
			return nil
		case m.KeyIs("mode") && !to.URLElicitation:
			return nil
		case m.KeyIs("_meta"):
			return trimMeta(v)
		case m.KeyIs("messages") && !to.SamplingTools && isArray(v):
			return flattenMessages(v, to)
		}
		return v
	}, added)
	if r.Method == mcp.MethodRootsList && string(params) == "{}" {
		params = nil
	}
	return InputRequest{r.Method, params}, nil
}

// trimMeta leaves out of an ask's _meta what only means something to the two who shook hands, or to those who did not.
func trimMeta(v []byte) []byte {
	if !IsObject(v) {
		return nil
	}
	v = Rewrite(nil, v, except(mcp.MetaProgressToken, mcp.MetaRelatedTask, mcp.MetaServerInfo, mcp.MetaSubscriptionID), nil)
	if string(v) == "{}" {
		return nil
	}
	return v
}

var errMultiSelect = errors.New("a field of the form lets the user choose several values, which clients of the revision cannot show")

// checkFormFields makes sure that the revision has all kinds of fields that the form has.
func checkFormFields(params []byte, to *Features) error {
	properties := Lookup(params, "requestedSchema", "properties")
	if to.MultiSelect || !IsObject(properties) {
		return nil
	}
	members := jsonwire.ObjectMembers(properties)
	for members.Next() {
		if v := members.Value(); IsObject(v) && LookupString(v, "type") == "array" {
			return errMultiSelect
		}
	}
	return nil
}

// flattenMessages gives each message of a conversation one block of content, as revisions without tools in sampling have it.
func flattenMessages(messages []byte, to *Features) []byte {
	return RewriteArray(nil, messages, func(message []byte) []byte {
		content := Lookup(message, "content")
		if !IsObject(message) || !isArray(content) {
			return convertBlockIn(message, "content", to)
		}
		var flat []byte
		blocks := jsonwire.ArrayElements(content)
		for blocks.Next() {
			if flat != nil {
				flat = append(flat, ',')
			}
			flat = Rewrite(flat, message, func(m *jsonwire.Members) []byte {
				if m.KeyIs("content") {
					return convertBlock(blocks.Value(), to)
				}
				return m.Value()
			}, nil)
		}
		return flat
	})
}

// CheckResponse says what is wrong with a client's answer to an ask.
func (r *InputRequest) CheckResponse(response []byte) error {
	ok := IsObject(response)
	if ok {
		switch r.Method {
		case mcp.MethodElicit:
			action := LookupString(response, "action")
			ok = action == "accept" || action == "decline" || action == "cancel"
		case mcp.MethodCreateMessage:
			content := Lookup(response, "content")
			ok = LookupString(response, "role") != "" && (IsObject(content) || isArray(content))
		case mcp.MethodRootsList:
			ok = isArray(Lookup(response, "roots"))
		}
	}
	if !ok {
		return fmt.Errorf("no result of %s", r.Method)
	}
	return nil
}

// ConvertResponse returns a client's answer to the ask, which is of the other era, as one of the revision: a bare object for a modern server, a result for a
// legacy one.
func (r *InputRequest) ConvertResponse(response []byte, to *Features) []byte {
	return Rewrite(nil, response, func(m *jsonwire.Members) []byte {
		v := m.Value()
		switch {
		case m.KeyIs("resultType"):
			return nil
		case m.KeyIs("_meta") && to.Modern && r.Method != mcp.MethodCreateMessage:
			return nil
		case m.KeyIs("content") && r.Method == mcp.MethodElicit && r.IsURL():
			return nil
		case m.KeyIs("content") && r.Method == mcp.MethodCreateMessage && !to.SamplingTools && isArray(v):
			if one, ok := onlyElement(v); ok {
				return one
			}
		}
		return v
	}, nil)
}

// onlyElement returns the element of an array that has no other.
func onlyElement(arr []byte) (one []byte, ok bool) {
	n := 0
	elements := jsonwire.ArrayElements(arr)
	for elements.Next() {
		one = elements.Value()
		n++
	}
	return one, n == 1
}

// Refusal is how an ask fails that the client was never to be asked, or that it did not answer.
func (r *InputRequest) Refusal(message string) *jsonrpc.Error {
	code := jsonrpc.CodeMethodNotFound
	if r.Method == mcp.MethodElicit {
		code = jsonrpc.CodeInvalidParams // a mode that was not declared
	}
	return &jsonrpc.Error{Code: code, Message: message}
}

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
	return mcp.Append(nil, content, to.Revision)
}

// The two designs of tasks have the same states and name two members differently.

// CoreTask appends a task of the extension as one of the core protocol, with what it has come to left out. status replaces its own unless it is "".
func CoreTask(dst, task []byte, status mcp.TaskStatus) []byte {
	return convertTask(dst, task, status, "ttlMs", "ttl", "pollIntervalMs", "pollInterval", nil)
}

// ExtensionTask appends a task of the core protocol as one of the extension, and adds the text of members.
func ExtensionTask(dst, task []byte, status mcp.TaskStatus, added []byte) []byte {
	return convertTask(dst, task, status, "ttl", "ttlMs", "pollInterval", "pollIntervalMs", added)
}

func convertTask(dst, task []byte, status mcp.TaskStatus, ttlFrom, ttlTo, pollFrom, pollTo string, added []byte) []byte {
	var more []byte
	add := func(name string, value []byte) {
		if more != nil {
			more = append(more, ',')
		}
		more = append(append(append(append(more, '"'), name...), `":`...), value...)
	}
	ttl := Lookup(task, ttlFrom)
	if ttl == nil {
		ttl = []byte("null")
	}
	add(ttlTo, ttl)
	if poll := Lookup(task, pollFrom); poll != nil {
		add(pollTo, poll)
	}
	if status != "" {
		add("status", jsonwire.AppendQuote(nil, string(status)))
	}
	if len(added) > 0 {
		more = append(append(more, ','), added...)
	}
	drop := except(ttlFrom, pollFrom, ttlTo, pollTo, "resultType", "inputRequests", "result", "error")
	return Rewrite(dst, task, func(m *jsonwire.Members) []byte {
		switch {
		case m.KeyIs("status") && status != "":
			return nil
		case m.KeyIs("_meta"):
			return trimMeta(m.Value())
		}
		return drop(m)
	}, more)
}

// IsTerminal reports whether nothing becomes of a task in that state any more.
func IsTerminal(status mcp.TaskStatus) bool {
	switch status {
	case mcp.TaskStatusCompleted, mcp.TaskStatusFailed, mcp.TaskStatusCancelled:
		return true
	}
	return false
}

// ConvertError returns an error that a server of the other era answered a request of the method with, as one of the revision would. What has no
// counterpart becomes an internal error whose data say what it was.
func ConvertError(e *jsonrpc.Error, method string, to *Features) *jsonrpc.Error {
	if to.Modern {
		switch {
		case e.Code == mcp.CodeResourceNotFound:
			return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: e.Message, Data: e.Data}
		case e.Code <= firstReserved && e.Code >= lastReserved: // a legacy server did not mean what these mean by now
			return wrapForeignError(e)
		}
		return e
	}
	switch {
	case e.Code == jsonrpc.CodeInvalidParams && method == mcp.MethodResourcesRead && Lookup(e.Data, "uri") != nil:
		return &jsonrpc.Error{Code: mcp.CodeResourceNotFound, Message: e.Message, Data: e.Data}
	case e.Code == mcp.CodeMissingRequiredClientCapability:
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: e.Message, Data: e.Data}
	case IsModernError(e):
		return wrapForeignError(e)
	}
	return e
}

// The codes that the protocol reserves for itself since 2026-07-28.
const (
	firstReserved jsonrpc.Code = -32020
	lastReserved  jsonrpc.Code = -32099
)

// wrapForeignError wraps an error whose code means something else, or nothing, in the other era.
func wrapForeignError(e *jsonrpc.Error) *jsonrpc.Error {
	data := strconv.AppendInt([]byte(`{"code":`), int64(e.Code), 10)
	if len(e.Data) > 0 {
		data = append(append(data, `,"data":`...), e.Data...)
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: e.Message, Data: append(data, '}')}
}
