package translate

import (
	"bytes"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A legacyHandshake is the handshake of a legacy client with a modern server: what the two have
// declared, and what requests to the server repeat of it.
type legacyHandshake struct {
	*core
	session *era.Session
	// legacy is the negotiated revision, or the latest before the handshake.
	legacy     *era.Features
	negotiated bool
	// clientCaps holds the capabilities as declared by the client.
	clientCaps []byte
	// clientMeta is the result of buildClientMeta.
	clientMeta [2][]byte
	// logLevel is the level that the client wants, which requests repeat.
	logLevel mcp.LoggingLevel
	// serverKnown says that the server has answered server/discover.
	serverKnown bool
	// serverCaps holds the declared ServerCapabilities.
	serverCaps []byte
}

func newLegacyHandshake(c *core) *legacyHandshake {
	h := &legacyHandshake{core: c}
	h.reset()
	return h
}

// reset forgets the handshake.
func (h *legacyHandshake) reset() {
	var supported []mcp.Revision
	for _, r := range mcp.Revisions() {
		if r.Modern() {
			break
		}
		supported = append(supported, r)
		if r == h.opts.Legacy {
			break
		}
	}
	h.session = era.NewSession(era.Config{Revisions: supported, Lenient: true, Custom: func([]byte) bool { return true }})
	h.legacy, h.negotiated = era.Of(supported[len(supported)-1]), false
	h.clientCaps = nil
	h.clientMeta = h.buildClientMeta(nil)
}

// initialize takes the client's side of the handshake from the params of initialize.
func (h *legacyHandshake) initialize(m *jsonrpc.Message) *jsonrpc.Error {
	if len(m.Params) > maxPeerInfo {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: initialize has more than %d bytes", maxPeerInfo)
	}
	f, err := h.session.Initialize(&rpc.Request{Message: *m})
	if err != nil {
		return jsonrpc.ErrorOf(err)
	}
	h.legacy, h.negotiated = f, true
	if caps, ok := m.Param("capabilities"); ok && era.IsObject(caps) {
		h.clientCaps = era.DeclaredByClient(caps, f)
	}
	info, _ := m.Param("clientInfo")
	h.clientMeta = h.buildClientMeta(info)
	return nil
}

// buildClientMeta returns the _meta members that describe the client: for all requests, and for
// those that may become tasks.
func (h *legacyHandshake) buildClientMeta(info []byte) (meta [2][]byte) {
	for i := range meta {
		b := jsonwire.AppendQuote([]byte(`"`+mcp.MetaProtocolVersion+`":`), h.opts.Modern.String())
		b = append(b, `,"`+mcp.MetaClientCapabilities+`":`...)
		b = era.ConvertClientCapabilities(b, h.clientCaps, h.modern, i == 1)
		if era.IsObject(info) {
			b = append(append(b, `,"`+mcp.MetaClientInfo+`":`...), info...)
		}
		meta[i] = bytes.Clone(b) // without spare room
	}
	return meta
}

// namesOurRevision reports if a version error names the revision of the request.
func (h *legacyHandshake) namesOurRevision(e *jsonrpc.Error) bool {
	modern, _ := era.Common([]mcp.Revision{h.opts.Modern}, era.SupportedVersions(e))
	return modern != mcp.RevisionNone
}

// discovered takes the server's side of the handshake from the outcome of server/discover. It
// returns the result of initialize, or forgets the handshake and returns the error.
func (h *legacyHandshake) discovered(o outcome) ([]byte, *jsonrpc.Error) {
	var profile *era.ServerProfile
	e := o.err
	if e == nil {
		var err error
		if profile, err = era.ReadDiscover(o.result); err != nil {
			e = internalError("the server's response to server/discover is invalid: %s", clip.String(err.Error(), 100))
		} else if modern, _ := era.Common([]mcp.Revision{h.opts.Modern}, profile.Versions); modern == mcp.RevisionNone {
			e = internalError("the server does not speak revision %s", h.opts.Modern)
		}
	}
	if e != nil {
		h.reset()
		return nil, era.ConvertError(e, mcp.MethodDiscover, h.legacy)
	}
	h.serverKnown, h.serverCaps = true, bytes.Clone(profile.Capabilities)
	info := era.Lookup(o.result, "_meta", mcp.MetaServerInfo)
	if !era.IsObject(info) {
		// Optional for a modern server, required for a legacy one.
		info = []byte(`{"name":"unnamed","version":"0"}`)
	}
	result := jsonwire.AppendQuote([]byte(`{"protocolVersion":`), h.legacy.Revision.String())
	result = era.ConvertServerCapabilities(append(result, `,"capabilities":`...), profile.Capabilities, h.legacy)
	result = append(append(result, `,"serverInfo":`...), info...)
	if profile.Instructions != "" {
		result = jsonwire.AppendQuote(append(result, `,"instructions":`...), profile.Instructions)
	}
	return append(result, '}'), nil
}

// params returns the params of a request that the bridge makes: the text of members, and _meta.
// tasks declares the tasks extension.
func (h *legacyHandshake) params(members []byte, tasks bool) []byte {
	params := []byte{'{'}
	if members != nil {
		params = append(append(params, members...), ',')
	}
	params = append(append(params, `"_meta":`...), h.requestMeta(nil, tasks, nil)...)
	return append(params, '}')
}

// requestParams returns the params of a client request for the server. id is its call.
func (h *legacyHandshake) requestParams(r *legacyRequest, id int64) []byte {
	input := era.AllowsInput(r.method)
	change := func(m *jsonwire.Members) []byte {
		switch {
		case m.KeyIs("_meta"), r.method == mcp.MethodToolsCall && m.KeyIs("task"), input && (m.KeyIs("inputResponses") || m.KeyIs("requestState")):
			return nil
		}
		return m.Value()
	}
	params := r.params
	if !era.IsObject(params) {
		params = []byte("{}")
	}
	meta := era.Lookup(params, "_meta")
	var token []byte
	if r.progressToken != nil {
		token = appendInt(nil, mcp.MetaProgressToken, id)
	}
	added := append([]byte(`"_meta":`), h.requestMeta(meta, r.taskMode != noTask, token)...)
	if r.inputResponses != nil {
		added = append(append(added, `,"inputResponses":`...), r.inputResponses...)
	}
	if r.requestState != nil {
		added = append(append(added, `,"requestState":`...), r.requestState...)
	}
	return era.Rewrite(nil, params, change, added)
}

// requestMeta returns the _meta of a modern request: the client's own members, its description, and
// the text of another member.
func (h *legacyHandshake) requestMeta(own []byte, tasks bool, more []byte) []byte {
	if !era.IsObject(own) {
		own = []byte("{}")
	}
	client := h.clientMeta[0]
	if tasks {
		client = h.clientMeta[1]
	}
	added := bytes.Clone(client)
	if h.logLevel != mcp.LevelNone {
		added = jsonwire.AppendQuote(append(added, `,"`+mcp.MetaLogLevel+`":`...), h.logLevel.String())
	}
	if more != nil {
		added = append(append(added, ','), more...)
	}
	drop := era.Without(mcp.MetaProtocolVersion, mcp.MetaClientCapabilities, mcp.MetaClientInfo, mcp.MetaLogLevel, mcp.MetaProgressToken)
	return era.Rewrite(nil, own, drop, added)
}

// setLevel takes the level of logging/setLevel. It returns the rule too.
func (h *legacyHandshake) setLevel(m *jsonrpc.Message) (rule string, e *jsonrpc.Error) {
	v, _ := m.Param("level")
	name, _ := jsonrpc.ID(v).Text()
	level, ok := mcp.ParseLoggingLevel(name)
	switch {
	case h.serverKnown && era.Lookup(h.serverCaps, "logging") == nil:
		return "the server does not log", jsonrpc.MethodNotFound(string(m.Method))
	case !ok:
		return "", jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: unknown level")
	}
	h.logLevel = level
	return "logging/setLevel → logLevel in each _meta", nil
}

// hasExtension reports if the server has the tasks extension.
func (h *legacyHandshake) hasExtension() bool {
	return era.IsObject(era.Lookup(h.serverCaps, "extensions", mcp.ExtensionTasks))
}

// hasTasks reports if core tasks of the client map to tasks of the extension.
func (h *legacyHandshake) hasTasks() bool { return h.legacy.CoreTasks && h.hasExtension() }
