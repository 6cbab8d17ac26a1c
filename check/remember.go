package check

import (
	"slices"

	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/mcp"
)

// revisionFor returns what a message is held against, and whether that is of the modern era.
//
// Nothing is concluded from one frame: what a client asks in the words of a modern revision is held against that, and says nothing of the server, which may not know it.
func (ck *Checker) revisionFor(v *view) (mcp.Revision, bool) {
	if r := ck.opts.Revision; r != mcp.RevisionNone {
		return r, era.Of(r).Modern
	}
	m, s := v.msg, v.session
	switch {
	case m.is(kindCall) && v.toServer():
		return ck.revisionOfClient(v)
	case m.is(kindResponse) && v.call != nil:
		if v.call.method == mcp.MethodInitialize && !v.call.modern {
			if r, ok := mcp.ParseRevision(stringValue(v.result("protocolVersion"))); ok {
				return r, era.Of(r).Modern
			}
		}
		return v.call.rev, v.call.modern
	case m.is(kindCall) && (v.meta(mcp.MetaSubscriptionID) != nil || m.method == mcp.NotificationAcknowledged):
		if s.initializeResult == 0 {
			return mcp.LatestRevision, true
		}
	case m.method == mcp.NotificationProgress:
		if p := progressOf(v); p != nil {
			return p.rev, p.modern
		}
	}
	if v.exchange != nil && v.exchange.call != nil && v.toClient() {
		return v.exchange.call.rev, v.exchange.call.modern
	}
	if s.initializeResult == 0 && s.initialize != nil {
		return s.initialize.rev, false
	}
	return ck.revisionOf(s)
}

// revisionOfClient is revisionFor for requests and notifications of the client.
func (ck *Checker) revisionOfClient(v *view) (mcp.Revision, bool) {
	m, s := v.msg, v.session
	header, hasHeader := mcp.RevisionNone, false
	if v.exchange != nil {
		header, hasHeader = mcp.ParseRevision(v.exchange.requestHeader("MCP-Protocol-Version"))
	}
	switch date := metaVersion(m); {
	case date != nil:
		if r, ok := mcp.ParseRevision(stringValue(date)); ok && era.Of(r).Modern {
			return r, true
		}
		return mcp.LatestRevision, true // in the manner of a modern one, whatever it says
	case hasHeader && era.Of(header).Modern:
		return header, true
	case s.initializeResult != 0:
		return s.rev, false
	case m.method == mcp.MethodInitialize:
		if r, ok := mcp.ParseRevision(stringValue(v.param("protocolVersion"))); ok && !era.Of(r).Modern {
			return r, false
		}
		return mcp.LatestLegacyRevision, false
	case m.method == mcp.MethodDiscover || m.method == mcp.MethodSubscriptionsListen:
		return mcp.LatestRevision, true
	case s.initialize != nil:
		return s.initialize.rev, false
	case hasHeader:
		return header, false
	case s.modern && s.transport == transportStdio:
		return mcp.LatestRevision, true
	case v.exchange != nil && v.exchange.method == "POST" && v.exchange.requestHeader("MCP-Protocol-Version") == "":
		return mcp.Revision20250326, false
	}
	return mcp.RevisionNone, false
}

// rememberMessage keeps what a message says, behind the rules.
func (ck *Checker) rememberMessage(v *view, method string) {
	m, s := v.msg, v.session
	switch {
	case m.is(kindRequest):
		ck.rememberRequest(v)
	case m.is(kindNotification):
		ck.rememberNotification(v)
	case m.is(kindResponse):
		ck.rememberResponse(v)
	}
	for i := range ck.rules.observers {
		o := &ck.rules.observers[i]
		if o.kinds&m.kind != 0 && (o.dir == "" || o.dir == v.e.Dir) && (len(o.methods) == 0 || slices.Contains(o.methods, method)) {
			o.observe(v)
		}
	}
	if m.is(kindResponse) && v.call != nil {
		ck.removeCall(s, v.call)
	}
	if v.exchange != nil {
		if v.toServer() {
			v.exchange.posted++
		} else {
			v.exchange.messages++
			if v.e.SSE != nil {
				v.exchange.events++
			}
		}
	}
}

func (ck *Checker) rememberRequest(v *view) {
	m, s, c := v.msg, v.session, v.call
	if m.paired() {
		if s.certain || s.key.id != "" {
			s.ids[v.e.Dir].add(idKey(m.id), ck.seed)
		}
		if c.pair != nil {
			ck.addCall(s, c)
		}
	}
	if v.exchange != nil && v.toServer() && v.exchange.call == nil {
		v.exchange.call = c
	}
	if m.method == mcp.MethodInitialize && v.toServer() && !v.modern {
		s.initialize, s.initializeCount = c, s.initializeCount+1
		if s.initializeResult == 0 {
			s.clientCaps = cloneBounded(v.param("capabilities"))
		}
	}
	rememberToken(v)
}

func (ck *Checker) rememberNotification(v *view) {
	m, s := v.msg, v.session
	switch m.method {
	case mcp.NotificationInitialized:
		if v.toServer() && s.initialized == 0 {
			s.initialized = v.e.N
		}
	case mcp.NotificationToolsChanged:
		s.tools.reset()
	case mcp.NotificationCancelled:
		if c := s.calls[openKey{v.e.Dir, idKey(v.param("requestId"))}]; c != nil && c.canceled == 0 {
			c.canceled, c.canceledT = v.e.N, v.e.T
		}
	case mcp.NotificationProgress:
		rememberProgress(v)
	}
}

func (ck *Checker) rememberResponse(v *view) {
	m, s, c := v.msg, v.session, v.call
	if c == nil {
		return
	}
	s.answered[c.dir].add(idKey(c.id), v.e.N)
	if c.exchange != nil && c.exchange.call == c {
		c.exchange.answered = true
	}
	forgetToken(v, c)
	if c.dir != capture.ToServer {
		return
	}
	if c.modern && modernAnswer(m) {
		s.modern = true
	}
	if !m.is(kindResult) {
		return
	}
	switch c.method {
	case mcp.MethodInitialize:
		if !c.modern && isObject(m.result) {
			s.serverVersion = clipBytes(stringValue(v.result("protocolVersion")), maxShown)
			s.rev, _ = mcp.ParseRevision(s.serverVersion)
			s.initializeResult, s.serverCaps = v.e.N, cloneBounded(v.result("capabilities"))
			s.clientCaps = cloneBounded(c.param("capabilities"))
		}
	case mcp.MethodDiscover:
		if caps := v.result("capabilities"); isObject(caps) && s.initializeResult == 0 {
			s.serverCaps = cloneBounded(caps)
		}
	case mcp.MethodToolsList:
		if v.complete() && c.listed == s.tools.changes { // else it may be the list of before
			s.tools.addPage(v.e.N, c.param("cursor"), m.result, ck.limits.MaxTools)
		}
	}
}

// modernAnswer reports whether an answer to a modern request shows that the server knows what that is.
func modernAnswer(m *message) bool {
	if m.is(kindError) {
		switch m.code() {
		case int64(mcp.CodeHeaderMismatch), int64(mcp.CodeMissingRequiredClientCapability), int64(mcp.CodeUnsupportedProtocolVersion):
			return true
		}
		return false
	}
	for _, name := range []string{"resultType", "supportedVersions", "ttlMs", "cacheScope"} {
		if member(m.result, name) != nil {
			return true
		}
	}
	return valueAt(m.result, "_meta", mcp.MetaServerInfo) != nil
}
