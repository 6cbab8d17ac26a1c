package gateway

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"

	"mcpwire/auth"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonedit"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// replaceText returns a message with the string at a path replaced, or the message itself if it has
// none there, or if replace returns the same or "".
func replaceText(frame []byte, replace func(string) string, path ...string) []byte {
	at := jsonedit.Locate(frame, path...)
	if !at.Found() || frame[at.Start] != '"' {
		return frame
	}
	was := jsonwire.Text(at.Of(frame))
	text := replace(was)
	if text == was || text == "" {
		return frame
	}
	return jsonedit.Splice(frame, at, jsonwire.AppendQuote(nil, text))
}

// to returns a function for replaceText that returns text.
func to(text string) func(string) string { return func(string) string { return text } }

// frameOf returns the text of a message on one line.
func frameOf(frame []byte, m *jsonrpc.Message) []byte {
	if frame == nil {
		frame = m.Raw()
	}
	return jsonwire.OneLine(frame)
}

// textParam returns a string in the params of a message.
func textParam(m *jsonrpc.Message, name string) (string, bool) {
	v, ok := m.Param(name)
	if !ok {
		return "", false
	}
	return jsonrpc.ID(v).Text()
}

func quote(s string) string { return strconv.Quote(clip.String(s, 100)) }

// resourceNotFound returns the error of a resource that nobody has.
func resourceNotFound(clientEra bridge.Era, uri string) *jsonrpc.Error {
	code := mcp.CodeResourceNotFound
	if clientEra == bridge.EraModern {
		code = jsonrpc.CodeInvalidParams
	}
	return &jsonrpc.Error{Code: code, Message: "resource not found", Data: append(jsonwire.AppendQuote([]byte(`{"uri":`), uri), '}')}
}

// A scope is a backend as one caller sees it in the messages of one era. It converts between the
// gateway's names and the server's.
type scope struct {
	g         *Gateway
	be        *backend
	principal string
	era       bridge.Era
	ctx       context.Context
	// bare says that the client has read a resource by the server's own URI, and gets such URIs.
	bare bool
}

func (g *Gateway) scope(ctx context.Context, be *backend, clientEra bridge.Era) scope {
	return scope{g: g, be: be, principal: auth.PrincipalOf(ctx).ID(), era: clientEra, ctx: ctx}
}

// taskMacLen is the length of the MAC at the beginning of a task id.
const taskMacLen = 22

// taskMAC returns the MAC of a task id for the principal.
func taskMAC(key []byte, principal, upstream, id string) string {
	h := hmac.New(sha256.New, key)
	for _, part := range []string{principal, upstream, id} {
		h.Write(strconv.AppendInt(nil, int64(len(part)), 10))
		h.Write([]byte{':'})
		h.Write([]byte(part))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:16])
}

// exposedTask returns the gateway's id for a task of the server. It is the same each time, and
// valid only for the principal.
func (s *scope) exposedTask(id string) string {
	return exposedTask(s.g.state.Load().taskKeys[0], s.principal, s.be.u.name, id)
}

func exposedTask(key []byte, principal, upstream, id string) string {
	return taskMAC(key, principal, upstream, id) + "." + upstream + "." + id
}

// ownTask returns the upstream and its own id for the gateway's task id. It returns nil if the id
// is not valid for the principal.
func (g *Gateway) ownTask(ctx context.Context, text string) (*upstream, string) {
	if len(text) < taskMacLen+2 || text[taskMacLen] != '.' {
		return nil, ""
	}
	name, id, ok := strings.Cut(text[taskMacLen+1:], ".")
	st := g.state.Load()
	u := st.byName[name]
	if !ok || u == nil {
		return nil, ""
	}
	principal := auth.PrincipalOf(ctx).ID()
	for _, key := range st.taskKeys {
		if hmac.Equal([]byte(text[:taskMacLen]), []byte(taskMAC(key, principal, name, id))) {
			return u, id
		}
	}
	return nil, ""
}

// stateData returns what a request state is valid for.
func (s *scope) stateData() []byte {
	return append(append([]byte(s.be.u.name), 0), s.principal...)
}

// maxState limits the length of a request state of the gateway.
const maxState = 4 << 20

// sealState returns a result with the request state sealed for this upstream and principal. The
// plain text is JSON text, so that the server gets the same bytes.
func (s *scope) sealState(frame []byte) []byte {
	at := jsonedit.Locate(frame, "result", "requestState")
	if !at.Found() || frame[at.Start] != '"' {
		return frame
	}
	sealed, _, err := s.g.ring.Seal([]byte{'"'}, purposeState, at.Of(frame), s.stateData())
	if err != nil {
		return frame // cannot happen: the secrets were checked
	}
	return jsonedit.Splice(frame, at, append(sealed, '"'))
}

// openState returns a request with the server's own request state.
func (s *scope) openState(frame []byte) ([]byte, error) {
	at := jsonedit.Locate(frame, "params", "requestState")
	if !at.Found() {
		return frame, nil
	}
	text, _ := jsonrpc.ID(at.Of(frame)).Text()
	own, _, err := s.g.ring.Open(text, maxState, purposeState, s.stateData())
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "requestState is invalid or belongs to another request"}
	}
	return jsonedit.Splice(frame, at, own), nil
}

// relatedTask is the path of a task id in _meta.
var relatedTask = []string{"_meta", mcp.MetaRelatedTask, "taskId"}

// response returns the server's response to a request as the client is to see it.
func (s *scope) response(method string, frame []byte) []byte {
	if bytes.Contains(frame, []byte(`"taskId"`)) {
		switch method {
		case mcp.MethodTasksGet, mcp.MethodTasksCancel, mcp.MethodTasksUpdate:
			frame = replaceText(frame, s.exposedTask, "result", "taskId")
		case mcp.MethodToolsCall:
			s.ownTasks(frame)
			if string(era.Lookup(frame, "result", "resultType")) == `"task"` {
				frame = replaceText(frame, s.exposedTask, "result", "taskId")
			}
		}
		frame = replaceText(frame, s.exposedTask, "result", "task", "taskId")
		frame = replaceText(frame, s.exposedTask, append([]string{"result"}, relatedTask...)...)
	}
	if s.era == bridge.EraModern && bytes.Contains(frame, []byte(`"requestState"`)) {
		frame = s.sealState(frame)
	}
	if hasURIs(frame) && !s.bare {
		frame = s.exposeURIs(frame, "result")
	}
	if s.era != bridge.EraModern && bytes.Contains(frame, []byte(`"elicitations"`)) {
		if at := jsonedit.Locate(frame, "error", "data", "elicitations"); at.Found() && frame[at.Start] == '[' {
			frame = jsonedit.Splice(frame, at, era.RewriteArray(nil, at.Of(frame), func(one []byte) []byte { return s.labelElicitation(one, "message") }))
		}
	}
	return s.labelElicitations(frame, "result")
}

// labelElicitation puts the name of the upstream before the message of an elicitation, which is at
// a path of text, if Options.LabelElicitations is set. Behind a gateway, clients cannot know it.
func (s *scope) labelElicitation(text []byte, path ...string) []byte {
	if !s.g.state.Load().opts.LabelElicitations {
		return text
	}
	return replaceText(text, func(message string) string { return s.be.u.name + ": " + message }, path...)
}

// labelElicitations does so for the input requests in a part of a message.
func (s *scope) labelElicitations(frame []byte, part string) []byte {
	if !bytes.Contains(frame, []byte(`"inputRequests"`)) {
		return frame
	}
	requests := era.Lookup(frame, part, "inputRequests")
	for all := jsonwire.ObjectMembers(requests); era.IsObject(requests) && all.Next(); {
		if key := all.KeyString(); era.LookupString(all.Value(), "method") == mcp.MethodElicit {
			frame = s.labelElicitation(frame, part, "inputRequests", key, "params", "message")
		}
	}
	return frame
}

// message returns a request or notification of the server as the client is to see it.
func (s *scope) message(frame []byte, m *jsonrpc.Message) []byte {
	switch string(m.Method) {
	case mcp.NotificationResourceUpdated:
		return replaceText(frame, func(uri string) string { return exposedURI(s.be.u.name, uri) }, "params", "uri")
	case mcp.NotificationTasks, mcp.NotificationTaskStatus: // requests name tasks of the client
		frame = s.labelElicitations(replaceText(frame, s.exposedTask, "params", "taskId"), "params")
	case mcp.MethodElicit:
		frame = s.labelElicitation(frame, "params", "message")
	}
	if hasURIs(frame) {
		frame = s.exposeURIs(frame, "params")
	}
	if bytes.Contains(frame, []byte(`"taskId"`)) {
		frame = replaceText(frame, s.exposedTask, append([]string{"params"}, relatedTask...)...)
	}
	return frame
}

// hides reports whether a message of the server is about a resource that the caller must not see:
// the view may have changed since the caller subscribed, and servers also announce changes of
// resources within the one that a client is subscribed to.
func (s *scope) hides(m *jsonrpc.Message) bool {
	if string(m.Method) != mcp.NotificationResourceUpdated {
		return false
	}
	view := s.g.state.Load().view(s.ctx)
	uri, _ := textParam(m, "uri")
	return view != nil && !view.Allows(KindResource, s.be.u.name, uri)
}

// ownRelated returns a message of the client with the server's own id of a related task. part is
// "params" or "result".
func (s *scope) ownRelated(frame []byte, part string) []byte {
	if !bytes.Contains(frame, []byte(`"taskId"`)) {
		return frame
	}
	return replaceText(frame, func(id string) string {
		if u, own := s.g.ownTask(s.ctx, id); u == s.be.u {
			return own
		}
		return ""
	}, append([]string{part}, relatedTask...)...)
}
