package translate

import (
	"bytes"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// maxIntroduction is how much a peer may say of itself, in bytes: it is repeated with each request.
const maxIntroduction = 64 << 10

// initialize begins the handshake, which asks the server what it is.
func (t *LegacyClient) initialize(r *request, m *jsonrpc.Message) {
	if len(m.Params) > maxIntroduction {
		t.fail(r, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: initialize says more than %d bytes", maxIntroduction), "")
		return
	}
	f, err := t.session.Initialize(&jsonrpc.Request{Message: *m})
	if err != nil {
		t.fail(r, jsonrpc.ErrorOf(err), "")
		return
	}
	t.legacy, t.shaken = f, true
	if caps, ok := m.Param("capabilities"); ok && era.IsObject(caps) {
		t.client = era.DeclaredByClient(caps, f)
	}
	info, _ := m.Param("clientInfo")
	t.who = t.introduce(info)
	t.discover(r, false)
}

// introduce returns the members of _meta that say who the client is: for all requests, and for those that may become tasks.
func (t *LegacyClient) introduce(info []byte) (who [2][]byte) {
	for i := range who {
		b := jsonwire.AppendQuote([]byte(`"`+mcp.MetaProtocolVersion+`":`), t.opts.Modern.String())
		b = append(b, `,"`+mcp.MetaClientCapabilities+`":`...)
		b = era.ConvertClientCapabilities(b, t.client, t.modern, i == 1)
		if era.IsObject(info) {
			b = append(append(b, `,"`+mcp.MetaClientInfo+`":`...), info...)
		}
		who[i] = b
	}
	return who
}

// discover asks the server what it is, for the second time if again is set.
func (t *LegacyClient) discover(r *request, again bool) {
	if t.wait(r, func() { t.discover(r, again) }) {
		return
	}
	c := t.newCall(mcp.MethodDiscover, r, func(a answer) {
		if a.err != nil && !again && t.names(a.err) { // behind the address there may be several servers
			t.discover(r, true)
			return
		}
		t.discovered(r, a)
	})
	c.again = func() { t.discover(r, again) }
	params := append(append([]byte(`{"_meta":`), t.metaOf(nil, false, nil)...), '}')
	t.sendFar(c.id, mcp.MethodDiscover, params, "initialize → server/discover")
}

// names reports whether an error about the version names the one that the server was asked in.
func (t *LegacyClient) names(e *jsonrpc.Error) bool {
	modern, _ := era.Common([]mcp.Revision{t.opts.Modern}, era.Supported(e))
	return modern != mcp.RevisionNone
}

// discovered ends the handshake.
func (t *LegacyClient) discovered(r *request, a answer) {
	var hello *era.Hello
	e := a.err
	if e == nil {
		var err error
		if hello, err = era.ReadDiscover(a.result); err != nil {
			e = internal("the server's answer to server/discover is none: %s", clip(err.Error()))
		} else if modern, _ := era.Common([]mcp.Revision{t.opts.Modern}, hello.Versions); modern == mcp.RevisionNone {
			e = internal("the server does not speak revision %s", t.opts.Modern)
		}
	}
	if e != nil {
		t.restart()
		t.fail(r, era.ConvertError(e, mcp.MethodDiscover, t.legacy), "server/discover → initialize")
		return
	}
	t.server = serverHello{known: true, caps: bytes.Clone(hello.Capabilities)}
	t.listen.offer(t.server.caps)
	info := era.Lookup(a.result, "_meta", mcp.MetaServerInfo)
	if !era.IsObject(info) {
		info = []byte(`{"name":"unnamed","version":"0"}`) // a modern server need not say it, and a legacy one must
	}
	result := jsonwire.AppendQuote([]byte(`{"protocolVersion":`), t.legacy.Revision.String())
	result = era.ConvertServerCapabilities(append(result, `,"capabilities":`...), hello.Capabilities, t.legacy)
	result = append(append(result, `,"serverInfo":`...), info...)
	if hello.Instructions != "" {
		result = jsonwire.AppendQuote(append(result, `,"instructions":`...), hello.Instructions)
	}
	t.answer(r, append(result, '}'), "server/discover → initialize")
}
