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
func (k *Checker) revisionFor(v *view) (mcp.Revision, bool) {
	if r := k.opts.Revision; r != mcp.RevisionNone {
		return r, era.Of(r).Modern
	}
	m, s := v.msg, v.sess
	switch {
	case m.is(kindCall) && v.toServer():
		return k.revisionOfClient(v)
	case m.is(kindResponse) && v.call != nil:
		if v.call.method == mcp.MethodInitialize && !v.call.modern {
			if r, ok := mcp.ParseRevision(text(v.result("protocolVersion"))); ok {
				return r, era.Of(r).Modern
			}
		}
		return v.call.rev, v.call.modern
	case m.is(kindCall) && (v.meta(mcp.MetaSubscriptionID) != nil || m.method == mcp.NotificationAcknowledged):
		if s.shaken == 0 {
			return mcp.LatestRevision, true
		}
	case m.method == mcp.NotificationProgress:
		if p := progressOf(v); p != nil {
			return p.rev, p.modern
		}
	}
	if v.x != nil && v.x.call != nil && v.toClient() {
		return v.x.call.rev, v.x.call.modern
	}
	if s.shaken == 0 && s.initialize != nil {
		return s.initialize.rev, false
	}
	return k.revisionOf(s)
}

// revisionOfClient is revisionFor for requests and notifications of the client.
func (k *Checker) revisionOfClient(v *view) (mcp.Revision, bool) {
	m, s := v.msg, v.sess
	header, hasHeader := mcp.RevisionNone, false
	if v.x != nil {
		header, hasHeader = mcp.ParseRevision(v.x.header("MCP-Protocol-Version"))
	}
	switch date := metaVersion(m); {
	case date != nil:
		if r, ok := mcp.ParseRevision(text(date)); ok && era.Of(r).Modern {
			return r, true
		}
		return mcp.LatestRevision, true // in the manner of a modern one, whatever it says
	case hasHeader && era.Of(header).Modern:
		return header, true
	case s.shaken != 0:
		return s.rev, false
	case m.method == mcp.MethodInitialize:
		if r, ok := mcp.ParseRevision(text(v.param("protocolVersion"))); ok && !era.Of(r).Modern {
			return r, false
		}
		return mcp.LatestLegacyRevision, false
	case m.method == mcp.MethodDiscover || m.method == mcp.MethodSubscriptionsListen:
		return mcp.LatestRevision, true
	case s.initialize != nil:
		return s.initialize.rev, false
	case hasHeader:
		return header, false
	case s.modern && s.carrier == carrierStdio:
		return mcp.LatestRevision, true
	case v.x != nil && v.x.method == "POST" && v.x.header("MCP-Protocol-Version") == "":
		return mcp.Revision20250326, false
	}
	return mcp.RevisionNone, false
}

// remember keeps what a message says, behind the rules.
func (k *Checker) remember(v *view, method string) {
	m, s := v.msg, v.sess
	switch {
	case m.is(kindRequest):
		k.rememberRequest(v)
	case m.is(kindNotification):
		k.rememberNotification(v)
	case m.is(kindResponse):
		k.rememberResponse(v)
	}
	for i := range k.plan.observers {
		o := &k.plan.observers[i]
		if o.kinds&m.kind != 0 && (o.dir == "" || o.dir == v.e.Dir) && (len(o.methods) == 0 || slices.Contains(o.methods, method)) {
			o.observe(v)
		}
	}
	if m.is(kindResponse) && v.call != nil {
		k.shut(s, v.call)
	}
	if v.x != nil {
		if v.toServer() {
			v.x.posted++
		} else {
			v.x.messages++
			if v.e.SSE != nil {
				v.x.events++
			}
		}
	}
}

func (k *Checker) rememberRequest(v *view) {
	m, s, c := v.msg, v.sess, v.call
	if m.paired() {
		if s.certain || s.key.id != "" {
			s.ids[v.e.Dir].add(canonical(m.id), k.seed)
		}
		if c.pair != nil {
			k.open(s, c)
		}
	}
	if v.x != nil && v.toServer() && v.x.call == nil {
		v.x.call = c
	}
	if m.method == mcp.MethodInitialize && v.toServer() && !v.modern {
		s.initialize, s.initializes = c, s.initializes+1
		if s.shaken == 0 {
			s.clientCaps = keep(v.param("capabilities"))
		}
	}
	rememberToken(v)
}

func (k *Checker) rememberNotification(v *view) {
	m, s := v.msg, v.sess
	switch m.method {
	case mcp.NotificationInitialized:
		if v.toServer() && s.initialized == 0 {
			s.initialized = v.e.N
		}
	case mcp.NotificationToolsChanged:
		s.tools.forget()
	case mcp.NotificationCancelled:
		if c := s.open[openKey{v.e.Dir, canonical(v.param("requestId"))}]; c != nil && c.cancelled == 0 {
			c.cancelled, c.cancelledT = v.e.N, v.e.T
		}
	case mcp.NotificationProgress:
		rememberProgress(v)
	}
}

func (k *Checker) rememberResponse(v *view) {
	m, s, c := v.msg, v.sess, v.call
	if c == nil {
		return
	}
	s.answered[c.dir].add(canonical(c.id), v.e.N)
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
			s.serverVersion = clipBytes(text(v.result("protocolVersion")), maxShown)
			s.rev, _ = mcp.ParseRevision(s.serverVersion)
			s.shaken, s.serverCaps = v.e.N, keep(v.result("capabilities"))
			s.clientCaps = keep(c.param("capabilities"))
		}
	case mcp.MethodDiscover:
		if caps := v.result("capabilities"); isObject(caps) && s.shaken == 0 {
			s.serverCaps = keep(caps)
		}
	case mcp.MethodToolsList:
		if v.complete() && c.listed == s.tools.changes { // else it may be the list of before
			s.tools.list(v.e.N, c.param("cursor"), m.result, k.limits.MaxTools)
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
	return at(m.result, "_meta", mcp.MetaServerInfo) != nil
}
