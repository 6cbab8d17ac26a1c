package trace

import (
	"strings"
	"unicode/utf8"

	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// What is taken from messages. Their text has been validated by parsing them.

// requestFields are what matters of a request's params.
type requestFields struct {
	target, excerpt string
	revision        string // by its metadata
	peer            PeerInfo
	token           string // of progress
	task            string
	relatedTask     string
	isTaskRequest   bool   // it is about a task
	isRetry         bool   // it is a further round
	stateHash       uint64 // hash of requestState
	paramsHash      uint64 // hash of the other params, if the request may take rounds
}

func (m *Model) requestFields(method string, params []byte) (f requestFields) {
	if len(params) == 0 || params[0] != '{' {
		return f
	}
	f.isTaskRequest = strings.HasPrefix(method, "tasks/")
	key := targetKey(method)
	var arguments []byte
	for p := jsonwire.ObjectMembers(params); p.Next(); {
		v := p.Value()
		switch {
		case p.KeyIs("_meta"):
			m.parseRequestMeta(&f, v)
			continue
		case p.KeyIs("inputResponses"):
			f.isRetry = true
			continue
		case p.KeyIs("requestState"):
			f.isRetry, f.stateHash = true, hashTexts(v)
			continue
		case p.KeyIs("taskId"):
			f.task = stringText(v)
		case p.KeyIs("arguments"):
			arguments = v
		}
		if key != "" && p.KeyIs(key) {
			f.target = m.intern([]byte(stringText(v)))
		}
		if allowsInputRounds(method) { // in whatever order the members come
			f.paramsHash += hashTexts(p.RawKey(), v)
		}
	}
	if f.target == "" && method == mcp.MethodComplete {
		f.target = m.completionTarget(params)
	}
	switch {
	case len(arguments) > 0:
		f.excerpt = excerpt(arguments)
	case key == "" || method == mcp.MethodCreateMessage:
		f.excerpt = excerptOfParams(params)
	}
	return f
}

// targetKey is the member of the params that says what a request is about.
func targetKey(method string) string {
	switch method {
	case mcp.MethodToolsCall, mcp.MethodPromptsGet:
		return "name"
	case mcp.MethodResourcesRead, mcp.MethodResourcesSubscribe, mcp.MethodResourcesUnsubscribe, mcp.NotificationResourceUpdated:
		return "uri"
	case mcp.MethodTasksGet, mcp.MethodTasksResult, mcp.MethodTasksCancel, mcp.MethodTasksUpdate:
		return "taskId"
	case mcp.MethodSetLevel, mcp.NotificationMessage:
		return "level"
	case mcp.MethodElicit:
		return "message"
	case mcp.MethodInitialize:
		return "protocolVersion"
	}
	return ""
}

func (m *Model) completionTarget(params []byte) string {
	ref := jsonwire.Lookup(params, "ref")
	if v := jsonwire.Lookup(ref, "name"); v != nil {
		return m.intern([]byte(stringText(v)))
	}
	return m.intern([]byte(stringText(jsonwire.Lookup(ref, "uri"))))
}

func (m *Model) parseRequestMeta(f *requestFields, meta []byte) {
	if len(meta) == 0 || meta[0] != '{' {
		return
	}
	for p := jsonwire.ObjectMembers(meta); p.Next(); {
		v := p.Value()
		switch {
		case p.KeyIs(mcp.MetaProtocolVersion):
			f.revision = m.intern([]byte(stringText(v)))
		case p.KeyIs(mcp.MetaClientInfo):
			f.peer.setImplementation(v, m)
		case p.KeyIs(mcp.MetaClientCapabilities):
			f.peer.Capabilities = m.capabilityNames(v)
		case p.KeyIs(mcp.MetaProgressToken):
			f.token = scalarKey(v)
		case p.KeyIs(mcp.MetaRelatedTask):
			f.relatedTask = stringText(jsonwire.Lookup(v, "taskId"))
		}
	}
}

// resultFields are what matters of a result.
type resultFields struct {
	ResultInfo
	isError         bool
	stateHash       uint64
	task, taskState string
	peer            PeerInfo
	inner           *ResultInfo // of the result that a task holds
	innerError      bool
}

func (m *Model) resultFields(method string, result []byte) (f resultFields) {
	if len(result) == 0 || result[0] != '{' {
		return f
	}
	for p := jsonwire.ObjectMembers(result); p.Next(); {
		v := p.Value()
		switch {
		case p.KeyIs("resultType"):
			if t := stringText(v); t != mcp.ResultTypeComplete {
				f.ResultType = m.intern([]byte(t))
			}
		case p.KeyIs("isError"):
			f.isError = string(v) == "true"
		case p.KeyIs("requestState"):
			f.stateHash = hashTexts(v)
		case p.KeyIs("structuredContent"):
			f.Structured = true
		case p.KeyIs("nextCursor"):
			f.HasMore = true
		case p.KeyIs("taskId"):
			f.task = stringText(v)
		case p.KeyIs("status"):
			f.taskState = stringText(v)
		case p.KeyIs("task"): // of 2025-11-25
			f.task, f.taskState = stringText(jsonwire.Lookup(v, "taskId")), stringText(jsonwire.Lookup(v, "status"))
		case p.KeyIs("inputRequests"):
			f.ListName, f.Count = "inputs", count(v)
		case p.KeyIs("result"):
			inner := m.resultFields("", v)
			f.inner, f.innerError = &inner.ResultInfo, inner.isError
		case p.KeyIs("_meta"):
			f.peer.setImplementation(jsonwire.Lookup(v, mcp.MetaServerInfo), m)
		default:
			f.addList(&p, v)
		}
	}
	if method != mcp.MethodToolsCall && !strings.HasPrefix(method, "tasks/") && f.ResultType != "task" {
		f.task = ""
	}
	return f
}

// addList takes a member of a result that may be a list.
func (f *resultFields) addList(p *jsonwire.Members, v []byte) {
	for _, name := range [...]string{"content", "contents", "messages", "tools", "prompts", "resources", "resourceTemplates", "roots", "tasks"} {
		if !p.KeyIs(name) || len(v) == 0 || v[0] != '[' {
			continue
		}
		f.ListName, f.Count = name, count(v)
		if name != "content" {
			return
		}
		for el := jsonwire.ArrayElements(v); el.Next(); {
			if t := jsonwire.Lookup(el.Value(), "text"); t != nil {
				f.Text = clip(stringText(t), maxExcerpt)
				return
			}
		}
		return
	}
}

// notificationFields are what matters of a notification's params.
type notificationFields struct {
	target, excerpt          string
	requestID, token         string
	task, taskState          string
	relatedTask              string
	subscription             string
	inner                    *ResultInfo
	innerError               bool
	progress, total, message string
}

func (m *Model) notificationFields(method string, params []byte) (f notificationFields) {
	if len(params) == 0 || params[0] != '{' {
		return f
	}
	f.excerpt = excerptOfParams(params)
	key := targetKey(method)
	for p := jsonwire.ObjectMembers(params); p.Next(); {
		v := p.Value()
		switch {
		case p.KeyIs("_meta"):
			f.relatedTask = stringText(jsonwire.Lookup(jsonwire.Lookup(v, mcp.MetaRelatedTask), "taskId"))
			f.subscription = scalarKey(jsonwire.Lookup(v, mcp.MetaSubscriptionID))
		case p.KeyIs("requestId"):
			f.requestID = scalarKey(v)
		case p.KeyIs("progressToken"):
			f.token = scalarKey(v)
		case p.KeyIs("progress"):
			f.progress = clip(string(v), 32)
		case p.KeyIs("total"):
			f.total = clip(string(v), 32)
		case p.KeyIs("message"), p.KeyIs("data"), p.KeyIs("reason"):
			if v[0] == '"' {
				f.excerpt = clip(stringText(v), maxExcerpt)
			} else {
				f.excerpt = excerpt(v)
			}
			f.message = f.excerpt
		case p.KeyIs("taskId"):
			f.task = stringText(v)
		case p.KeyIs("status"):
			f.taskState = stringText(v)
		case p.KeyIs("result"):
			inner := m.resultFields("", v)
			f.inner, f.innerError = &inner.ResultInfo, inner.isError
		}
		if key != "" && p.KeyIs(key) {
			f.target = m.intern([]byte(stringText(v)))
		}
	}
	if method == mcp.NotificationProgress {
		f.target = f.progress
		if f.total != "" {
			f.target += "/" + f.total
		}
		f.excerpt = f.message
	}
	if f.task != "" {
		f.target, f.excerpt = clip(f.task, maxName), f.taskState
	}
	return f
}

func parseError(e []byte) (code int, message string) {
	n, _ := jsonwire.ParseInt(jsonwire.Lookup(e, "code"))
	return int(n), clip(stringText(jsonwire.Lookup(e, "message")), maxExcerpt)
}

// stringText returns the beginning of what a JSON string says, or "" for anything else.
func stringText(v []byte) string {
	if len(v) < 2 || v[0] != '"' {
		return ""
	}
	raw := v[1 : len(v)-1]
	if len(raw) > 8*maxName { // an escape that is cut stays as it is, which does no harm
		raw = raw[:8*maxName]
		for i := len(raw) - 1; i >= len(raw)-12; i-- {
			if raw[i] == '\\' {
				raw = raw[:i]
			}
		}
	}
	return jsonwire.UnquoteString(raw)
}

// scalarKey returns a text that is the same for equal strings and numbers.
func scalarKey(v []byte) string {
	if len(v) == 0 || len(v) > maxName {
		return ""
	}
	return idText(jsonrpc.ID(v))
}

// count returns how many elements or members there are.
func count(v []byte) (n int) {
	switch {
	case len(v) == 0:
	case v[0] == '[':
		for el := jsonwire.ArrayElements(v); el.Next(); {
			n++
		}
	case v[0] == '{':
		for m := jsonwire.ObjectMembers(v); m.Next(); {
			n++
		}
	}
	return n
}

// excerpt returns the beginning of a payload.
func excerpt(b []byte) string {
	const more = 4 // so that clip sees that there is more
	return clip(string(b[:min(len(b), maxExcerpt+more)]), maxExcerpt)
}

// excerptOfParams is excerpt without the metadata, which every message has that has any, and which says nothing of this one.
func excerptOfParams(params []byte) string {
	if jsonwire.Lookup(params, "_meta") == nil {
		return excerpt(params)
	}
	var b []byte
	for p := jsonwire.ObjectMembers(params); len(b) <= maxExcerpt && p.Next(); {
		if p.KeyIs("_meta") {
			continue
		}
		b = append(append(b, ',', '"'), p.RawKey()...)
		b = append(append(b, '"', ':'), p.Value()[:min(len(p.Value()), maxExcerpt)]...)
	}
	if len(b) == 0 {
		return ""
	}
	b[0] = '{'
	return excerpt(append(b, '}'))
}

// clip returns the beginning of a text, with "…" if there was more.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	n := limit
	for n > 0 && n > limit-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.Clone(s[:n]) + "…"
}
