package trace

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// The functions of this file expect JSON that jsonrpc.Parse has validated.

// Limits of a nameTable and of what it makes of lists.
const (
	maxInterned     = 4096
	maxCapabilities = 64 // names kept
	maxSupported    = 16 // revisions kept
)

// A nameTable makes strings of the names in messages. Equal names share memory.
type nameTable map[string]string

// intern returns the beginning of a name as a string.
func (t nameTable) intern(b []byte) string {
	b = b[:min(len(b), maxName)]
	if s, ok := t[string(b)]; ok {
		return s
	}
	if len(t) >= maxInterned {
		clear(t)
	}
	s := string(b)
	t[s] = s
	return s
}

// text returns a JSON string as a name, or "" for any other value.
func (t nameTable) text(v []byte) string { return t.intern([]byte(stringText(v))) }

// requestFields holds the fields of a request's params that the model uses.
type requestFields struct {
	target, excerpt string
	// revision is the protocol version in _meta.
	revision string
	peer     PeerInfo
	// token is the progress token.
	token       string
	task        string
	relatedTask string
	// isTaskRequest reports whether the method begins with "tasks/".
	isTaskRequest bool
	// isRetry reports whether the request is a further round.
	isRetry bool
	// stateHash is the hash of requestState. Zero means none.
	stateHash uint64
	// paramsHash is the hash of the other params, if the method allows rounds.
	paramsHash uint64
}

func (t nameTable) requestFields(method string, params []byte) (f requestFields) {
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
			t.parseRequestMeta(&f, v)
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
			f.target = t.text(v)
		}
		// The sum does not depend on the order of the members.
		if allowsInputRounds(method) {
			f.paramsHash += hashTexts(p.RawKey(), v)
		}
	}
	if f.target == "" && method == mcp.MethodComplete {
		f.target = t.completionTarget(params)
	}
	switch {
	case len(arguments) > 0:
		f.excerpt = excerptOfMembers(arguments)
	case key == "" || method == mcp.MethodCreateMessage:
		f.excerpt = excerptOfMembers(params)
	}
	return f
}

// targetKey returns the member of the params that names the target of a request, or "".
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

func (t nameTable) completionTarget(params []byte) string {
	ref := jsonwire.Lookup(params, "ref")
	return cmp.Or(t.text(jsonwire.Lookup(ref, "name")), t.text(jsonwire.Lookup(ref, "uri")))
}

func (t nameTable) parseRequestMeta(f *requestFields, meta []byte) {
	for p := jsonwire.ObjectMembers(meta); p.Next(); {
		v := p.Value()
		switch {
		case p.KeyIs(mcp.MetaProtocolVersion):
			f.revision = t.text(v)
		case p.KeyIs(mcp.MetaClientInfo):
			f.peer.setImplementation(v, t)
		case p.KeyIs(mcp.MetaClientCapabilities):
			f.peer.Capabilities = t.capabilityNames(v)
		case p.KeyIs(mcp.MetaProgressToken):
			f.token = scalarKey(v)
		case p.KeyIs(mcp.MetaRelatedTask):
			f.relatedTask = stringText(jsonwire.Lookup(v, "taskId"))
		}
	}
}

// resultFields holds the fields of a result that the model uses.
type resultFields struct {
	ResultInfo
	isError         bool
	stateHash       uint64
	task, taskState string
	peer            PeerInfo
	// inner describes the result inside a task.
	inner      *ResultInfo
	innerError bool
}

func (t nameTable) resultFields(method string, result []byte) (f resultFields) {
	for p := jsonwire.ObjectMembers(result); p.Next(); {
		v := p.Value()
		switch {
		case p.KeyIs("resultType"):
			if kind := t.text(v); kind != string(mcp.ResultTypeComplete) {
				f.ResultType = kind
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
		case p.KeyIs("task"): // revision 2025-11-25
			f.task, f.taskState = stringText(jsonwire.Lookup(v, "taskId")), stringText(jsonwire.Lookup(v, "status"))
		case p.KeyIs("inputRequests"):
			f.ListName, f.Count = "inputs", count(v)
		case p.KeyIs("result"):
			inner := t.resultFields("", v)
			f.inner, f.innerError = &inner.ResultInfo, inner.isError
		case p.KeyIs("_meta"):
			f.peer.setImplementation(jsonwire.Lookup(v, mcp.MetaServerInfo), t)
		default:
			f.addList(&p, v)
		}
	}
	if method != mcp.MethodToolsCall && !strings.HasPrefix(method, "tasks/") && f.ResultType != "task" {
		f.task = ""
	}
	return f
}

// addList sets ListName, Count and Text if the member is a known list.
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
				f.Text = clip.String(stringText(t), maxExcerpt)
				return
			}
		}
		return
	}
}

// notificationFields holds the fields of a notification's params that the model uses.
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

func (t nameTable) notificationFields(method string, params []byte) (f notificationFields) {
	if len(params) == 0 || params[0] != '{' {
		return f
	}
	f.excerpt = excerptOfMembers(params)
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
			f.progress = clip.String(string(v), 32)
		case p.KeyIs("total"):
			f.total = clip.String(string(v), 32)
		case p.KeyIs("message"), p.KeyIs("data"), p.KeyIs("reason"):
			if v[0] == '"' {
				f.excerpt = clip.String(stringText(v), maxExcerpt)
			} else {
				f.excerpt = excerpt(v)
			}
			f.message = f.excerpt
		case p.KeyIs("taskId"):
			f.task = stringText(v)
		case p.KeyIs("status"):
			f.taskState = stringText(v)
		case p.KeyIs("result"):
			inner := t.resultFields("", v)
			f.inner, f.innerError = &inner.ResultInfo, inner.isError
		}
		if key != "" && p.KeyIs(key) {
			f.target = t.text(v)
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
		f.target, f.excerpt = clip.String(f.task, maxName), f.taskState
	}
	return f
}

func parseError(e []byte) (code int, message string) {
	n, _ := jsonwire.ParseInt(jsonwire.Lookup(e, "code"))
	return int(n), clip.String(stringText(jsonwire.Lookup(e, "message")), maxExcerpt)
}

// stringText returns the beginning of a JSON string, unquoted, or "" for any other value.
func stringText(v []byte) string {
	if len(v) < 2 || v[0] != '"' {
		return ""
	}
	raw := v[1 : len(v)-1]
	// Cut before an escape that may be incomplete: a surrogate pair has twelve characters.
	if len(raw) > 8*maxName {
		raw = raw[:8*maxName]
		if i := bytes.IndexByte(raw[len(raw)-12:], '\\'); i >= 0 {
			raw = raw[:len(raw)-12+i]
		}
		// An odd number of backslashes would escape what follows.
		if n := len(raw) - len(bytes.TrimRight(raw, `\`)); n%2 == 1 {
			raw = raw[:len(raw)-1]
		}
	}
	return jsonwire.UnquoteString(raw)
}

// scalarKey returns the same text for equal strings and numbers.
func scalarKey(v []byte) string {
	if len(v) == 0 || len(v) > maxName {
		return ""
	}
	return idText(jsonrpc.ID(v))
}

// count returns the number of elements or members of v.
func count(v []byte) (n int) {
	for el := jsonwire.ArrayElements(v); el.Next(); {
		n++
	}
	for m := jsonwire.ObjectMembers(v); m.Next(); {
		n++
	}
	return n
}

// excerpt returns the beginning of a payload.
func excerpt(b []byte) string {
	const more = 4 // so that clip sees the cut
	return clip.String(string(b[:min(len(b), maxExcerpt+more)]), maxExcerpt)
}

// excerptOfMembers returns the members of an object without _meta: the texts, then others as
// name=value. It returns the beginning of any other value.
func excerptOfMembers(object []byte) string {
	if len(object) == 0 || object[0] != '{' {
		return excerpt(object)
	}
	var texts, pairs []byte
	for p := jsonwire.ObjectMembers(object); len(texts) <= maxExcerpt && p.Next(); {
		v := p.Value()
		if text := stringText(v); text != "" {
			texts = append(append(texts, text...), "  "...)
		} else if !p.KeyIs("_meta") && len(pairs) <= maxExcerpt {
			pairs = append(append(append(pairs, p.KeyString()...), '='), v[:min(len(v), maxExcerpt)]...)
			pairs = append(pairs, "  "...)
		}
	}
	return excerpt(bytes.TrimRight(append(texts, pairs...), " "))
}

// capabilityNames returns the sorted names of capabilities and of their members.
func (t nameTable) capabilityNames(v []byte) []string {
	if len(v) == 0 || v[0] != '{' {
		return nil
	}
	list := []string{}
	for p := jsonwire.ObjectMembers(v); p.Next() && len(list) < maxCapabilities; {
		name := t.intern(p.RawKey())
		list = append(list, name)
		for q := jsonwire.ObjectMembers(p.Value()); q.Next() && len(list) < maxCapabilities; {
			if v := q.Value(); string(v) != "false" {
				list = append(list, t.intern([]byte(name+"."+string(q.RawKey()[:min(len(q.RawKey()), maxName)]))))
			}
		}
	}
	slices.Sort(list)
	return list
}

// setImplementation sets Name and Version from the JSON text of an Implementation.
func (p *PeerInfo) setImplementation(v []byte, t nameTable) {
	if name := stringText(jsonwire.Lookup(v, "name")); name != "" {
		p.Name, p.Version = t.intern([]byte(name)), t.text(jsonwire.Lookup(v, "version"))
	}
}
