package translate

import (
	"bytes"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// maxPeerInfo is how much a peer may say of itself, in bytes: it is repeated with each request.
const maxPeerInfo = 64 << 10

// initialize begins the handshake, which asks the server what it is.
func (t *LegacyToModern) initialize(r *legacyRequest, m *jsonrpc.Message) {
	if len(m.Params) > maxPeerInfo {
		t.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: initialize says more than %d bytes", maxPeerInfo), "")
		return
	}
	f, err := t.session.Initialize(&jsonrpc.Request{Message: *m})
	if err != nil {
		t.fail(r, jsonrpc.ErrorOf(err), "")
		return
	}
	t.legacy, t.negotiated = f, true
	if caps, ok := m.Param("capabilities"); ok && era.IsObject(caps) {
		t.clientCaps = era.DeclaredByClient(caps, f)
	}
	info, _ := m.Param("clientInfo")
	t.clientMeta = t.buildClientMeta(info)
	t.discover(r, false)
}

// buildClientMeta returns the members of _meta that say who the client is: for all requests, and for those that may become tasks.
func (t *LegacyToModern) buildClientMeta(info []byte) (meta [2][]byte) {
	for i := range meta {
		b := jsonwire.AppendQuote([]byte(`"`+mcp.MetaProtocolVersion+`":`), t.opts.Modern.String())
		b = append(b, `,"`+mcp.MetaClientCapabilities+`":`...)
		b = era.ConvertClientCapabilities(b, t.clientCaps, t.modern, i == 1)
		if era.IsObject(info) {
			b = append(append(b, `,"`+mcp.MetaClientInfo+`":`...), info...)
		}
		meta[i] = b
	}
	return meta
}

// discover asks the server what it is, for the second time if again is set.
func (t *LegacyToModern) discover(r *legacyRequest, retry bool) {
	if t.queueIfNotReady(r, func() { t.discover(r, retry) }) {
		return
	}
	c := t.newCall(mcp.MethodDiscover, r, func(o outcome) {
		if o.err != nil && !retry && t.namesOurRevision(o.err) { // behind the address there may be several servers
			t.discover(r, true)
			return
		}
		t.discovered(r, o)
	})
	c.resend = func() { t.discover(r, retry) }
	params := append(append([]byte(`{"_meta":`), t.requestMeta(nil, false, nil)...), '}')
	t.sendUpstream(c.id, mcp.MethodDiscover, params, "initialize → server/discover")
}

// namesOurRevision reports whether an error about the version names the one that the server was asked in.
func (t *LegacyToModern) namesOurRevision(e *jsonrpc.Error) bool {
	modern, _ := era.Common([]mcp.Revision{t.opts.Modern}, era.SupportedVersions(e))
	return modern != mcp.RevisionNone
}

// discovered ends the handshake.
func (t *LegacyToModern) discovered(r *legacyRequest, o outcome) {
	var profile *era.ServerProfile
	e := o.err
	if e == nil {
		var err error
		if profile, err = era.ReadDiscover(o.result); err != nil {
			e = internalError("the server's answer to server/discover is none: %s", clip(err.Error()))
		} else if modern, _ := era.Common([]mcp.Revision{t.opts.Modern}, profile.Versions); modern == mcp.RevisionNone {
			e = internalError("the server does not speak revision %s", t.opts.Modern)
		}
	}
	if e != nil {
		t.resetHandshake()
		t.fail(r, era.ConvertError(e, mcp.MethodDiscover, t.legacy), "server/discover → initialize")
		return
	}
	t.server = modernServer{known: true, caps: bytes.Clone(profile.Capabilities)}
	t.subscription.setCapabilities(t.server.caps)
	info := era.Lookup(o.result, "_meta", mcp.MetaServerInfo)
	if !era.IsObject(info) {
		info = []byte(`{"name":"unnamed","version":"0"}`) // a modern server need not say it, and a legacy one must
	}
	result := jsonwire.AppendQuote([]byte(`{"protocolVersion":`), t.legacy.Revision.String())
	result = era.ConvertServerCapabilities(append(result, `,"capabilities":`...), profile.Capabilities, t.legacy)
	result = append(append(result, `,"serverInfo":`...), info...)
	if profile.Instructions != "" {
		result = jsonwire.AppendQuote(append(result, `,"instructions":`...), profile.Instructions)
	}
	t.respond(r, append(result, '}'), "server/discover → initialize")
}
