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

// An InputRequest asks a client for input. It is a request in the legacy era, and an entry of
// inputRequests in the modern era.
type InputRequest struct {
	Method string
	// Params is the text of an object, or nil.
	Params []byte
}

// IsInputRequest reports if servers ask for input by the method.
func IsInputRequest(method string) bool {
	switch method {
	case mcp.MethodElicit, mcp.MethodCreateMessage, mcp.MethodRootsList:
		return true
	}
	return false
}

// IsURL reports if this is an elicitation by URL.
func (r *InputRequest) IsURL() bool {
	return r.Method == mcp.MethodElicit && LookupString(r.Params, "mode") == string(mcp.ElicitModeURL)
}

// MissingCapability returns the ClientCapabilities object that a client of the revision would need
// to declare for this request, and its name. It returns nil if the client supports the request.
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

// Convert returns the request of the other era for the revision. elicitationID is the id of a URL
// elicitation, in revisions that have one. Convert fails if the revision does not support the
// request.
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

// trimMeta removes the members of _meta that are only valid in one era.
func trimMeta(v []byte) []byte {
	if !IsObject(v) {
		return nil
	}
	v = Rewrite(nil, v, Without(mcp.MetaProgressToken, mcp.MetaRelatedTask, mcp.MetaServerInfo, mcp.MetaSubscriptionID), nil)
	if string(v) == "{}" {
		return nil
	}
	return v
}

var errMultiSelect = errors.New("a form field lets the user select several values, which clients of this revision cannot show")

// checkFormFields returns an error if the form has kinds of fields that the revision does not have.
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

// flattenMessages splits sampling messages into one for each content block, for revisions without
// tools in sampling.
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
			flat = append(flat, RewriteMember(message, "content", func([]byte) []byte { return convertBlock(blocks.Value(), to) })...)
		}
		return flat
	})
}

// CheckResponse returns an error if a client's response to the request is invalid.
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
		return fmt.Errorf("an invalid result of %s", r.Method)
	}
	return nil
}

// ConvertResponse returns a client's response for the revision. It is an entry of inputResponses
// for a modern server, and a result for a legacy one.
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

// onlyElement returns the element of an array. ok is false unless there is exactly one.
func onlyElement(arr []byte) (one []byte, ok bool) {
	n := 0
	elements := jsonwire.ArrayElements(arr)
	for elements.Next() {
		one = elements.Value()
		n++
	}
	return one, n == 1
}

// Refusal returns the error for a request that the client cannot get or did not answer.
func (r *InputRequest) Refusal(message string) *jsonrpc.Error {
	code := jsonrpc.CodeMethodNotFound
	if r.Method == mcp.MethodElicit {
		code = jsonrpc.CodeInvalidParams // the mode was not declared
	}
	return &jsonrpc.Error{Code: code, Message: message}
}

// DeclaredByClient returns a copy of the ClientCapabilities object caps. It removes capabilities
// that came after the revision, because the client declared them for another one.
func DeclaredByClient(caps []byte, f *Features) []byte {
	return Rewrite(nil, caps, func(m *jsonwire.Members) []byte {
		v := m.Value()
		switch {
		case m.KeyIs("elicitation") && !f.Elicitation:
			return nil
		case m.KeyIs("elicitation") && IsObject(v) && !f.URLElicitation: // forms have no name
			return Rewrite(nil, v, Without("form", "url"), nil)
		case m.KeyIs("sampling") && IsObject(v) && !f.SamplingTools:
			return Rewrite(nil, v, Without("tools", "context"), nil)
		}
		return v
	}, nil)
}

// ConvertClientCapabilities appends the ClientCapabilities object caps of the other era for the
// revision. It removes the core tasks. With tasks it declares the tasks extension to a modern
// server.
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
		// The modern era has no notification for changed roots.
		case m.KeyIs("roots") && IsObject(v):
			return Rewrite(nil, v, Without("listChanged"), nil)
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

// ConvertServerCapabilities appends the ServerCapabilities object caps of the other era for the
// revision.
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

// ImpliedCapabilities returns the capabilities of a legacy server with those that its revision does
// not declare: the first revision has completions without a capability.
func ImpliedCapabilities(caps []byte, f *Features) []byte {
	if f.Completions || Lookup(caps, "completions") != nil || Lookup(caps, "prompts") == nil && Lookup(caps, "resources") == nil {
		return caps
	}
	return Rewrite(nil, caps, Without("completions"), []byte(`"completions":{}`))
}

// convertExtensions adds or removes the tasks extension. It returns nil if no extension is left.
func convertExtensions(v []byte, tasks bool) []byte {
	var added []byte
	if tasks {
		added = []byte(`"` + mcp.ExtensionTasks + `":{}`)
	}
	v = Rewrite(nil, v, Without(mcp.ExtensionTasks), added)
	if string(v) == "{}" {
		return nil
	}
	return v
}

// Without returns a function for Rewrite that removes members.
func Without(names ...string) func(m *jsonwire.Members) []byte {
	return func(m *jsonwire.Members) []byte {
		for _, name := range names {
			if m.KeyIs(name) {
				return nil
			}
		}
		return m.Value()
	}
}

// appendMember appends the text of a member to the object at the end of dst.
func appendMember(dst []byte, member string) []byte {
	dst = dst[:len(dst)-1]
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	return append(append(dst, member...), '}')
}

// Cacheable reports if modern results of the method have cache hints.
func Cacheable(method string) bool {
	switch method {
	case mcp.MethodDiscover, mcp.MethodToolsList, mcp.MethodPromptsList, mcp.MethodResourcesList, mcp.MethodResourceTemplatesList, mcp.MethodResourcesRead:
		return true
	}
	return false
}

// ResultToModern appends a legacy server's result as a modern one. It adds the resultType, the
// server info unless it is nil, and the hints if the method has them. It replaces a resultType, and
// keeps server info and hints that are present.
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
			if s, _ := jsonwire.String(v); s != "public" && s != "private" || hasScope {
				return nil
			}
			hasScope = true
		case m.KeyIs("_meta") && IsObject(v) && !hasMeta:
			hasMeta = true
			if !named && Lookup(v, mcp.MetaServerInfo) == nil {
				return Rewrite(nil, v, Without(mcp.MetaServerInfo), identity)
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

// ResultToLegacy appends a modern server's result for a legacy revision. It removes the resultType,
// the hints and the server info, and converts content that the revision does not have.
func ResultToLegacy(dst, result []byte, method string, to *Features) []byte {
	cacheable := Cacheable(method)
	return Rewrite(dst, result, func(m *jsonwire.Members) []byte {
		v := m.Value()
		switch {
		case m.KeyIs("resultType"), cacheable && (m.KeyIs("ttlMs") || m.KeyIs("cacheScope")):
			return nil
		case m.KeyIs("_meta") && IsObject(v):
			if v = Rewrite(nil, v, Without(mcp.MetaServerInfo), nil); string(v) == "{}" {
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

// toolToLegacy removes an output schema that legacy clients do not accept.
func toolToLegacy(tool []byte, to *Features) []byte {
	if !IsObject(tool) {
		return tool
	}
	schema := Lookup(tool, "outputSchema")
	if schema == nil || to.Structured && IsObject(schema) && LookupString(schema, "type") == "object" {
		return tool
	}
	return Rewrite(nil, tool, Without("outputSchema"), nil)
}

// convertBlockIn converts a content block that is a member of an object.
func convertBlockIn(obj []byte, name string, to *Features) []byte {
	if !IsObject(obj) {
		return obj
	}
	return RewriteMember(obj, name, func(block []byte) []byte { return convertBlock(block, to) })
}

// convertBlock returns a content block, or a text in its place if the revision does not have its
// type.
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
		// Both came with the same revision.
		if to.Structured {
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

// Tasks of the core protocol and of the extension have the same statuses and two different names.

// CoreTask appends a task of the extension as a core task, without its result. status replaces the
// status unless it is "".
func CoreTask(dst, task []byte, status mcp.TaskStatus) []byte {
	return convertTask(dst, task, status, "ttlMs", "ttl", "pollIntervalMs", "pollInterval", nil)
}

// ExtensionTask appends a core task as a task of the extension, with the text of more members.
// status is as in CoreTask.
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
	drop := Without(ttlFrom, pollFrom, ttlTo, pollTo, "resultType", "inputRequests", "result", "error")
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

// IsTerminal reports if a task with the status has ended.
func IsTerminal(status mcp.TaskStatus) bool {
	switch status {
	case mcp.TaskStatusCompleted, mcp.TaskStatusFailed, mcp.TaskStatusCancelled:
		return true
	}
	return false
}

// ConvertError returns the error of a server of the other era for the revision. An error without a
// counterpart becomes an internal error with the original code in its data.
func ConvertError(e *jsonrpc.Error, method string, to *Features) *jsonrpc.Error {
	if to.Modern {
		switch {
		case e.Code == mcp.CodeResourceNotFound:
			return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: e.Message, Data: e.Data}
		// In the legacy era these codes had no meaning.
		case e.Code <= firstReserved && e.Code >= lastReserved:
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

// The range of codes that the protocol reserves since 2026-07-28.
const (
	firstReserved jsonrpc.Code = -32020
	lastReserved  jsonrpc.Code = -32099
)

// wrapForeignError wraps an error whose code has no counterpart.
func wrapForeignError(e *jsonrpc.Error) *jsonrpc.Error {
	data := strconv.AppendInt([]byte(`{"code":`), int64(e.Code), 10)
	if len(e.Data) > 0 {
		data = append(append(data, `,"data":`...), e.Data...)
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: e.Message, Data: append(data, '}')}
}
