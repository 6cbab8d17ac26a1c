package translate

import (
	"slices"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A modernHandshake is the handshake with a legacy server, on behalf of modern clients: its phase
// and the requests that wait for it.
type modernHandshake struct {
	*core
	server   *legacyServer
	requests *modernRequests
	// begin sends initialize with the params that start returns.
	begin func()

	phase phase
	// proposed is the revision in initialize.
	proposed mcp.Revision
	// retry repeats the handshake.
	retry *timer
	// waiting holds requests that need the handshake.
	waiting waitQueue[*modernRequest]
	// client and clientInfo are the client in the handshake.
	client     era.Client
	clientInfo []byte
	// logLevel is the level that the server has.
	logLevel mcp.LoggingLevel
	// down is set between UpstreamLost and UpstreamReady.
	down bool
}

// A phase is the state of the handshake.
type phase uint8

const (
	uninitialized phase = iota
	handshaking
	ready
)

// ready reports if the handshake is complete and the server is there.
func (h *modernHandshake) ready() bool { return h.phase == ready && !h.down }

// whenReady runs do for a request when the handshake is complete.
func (h *modernHandshake) whenReady(r *modernRequest, do func()) {
	if h.ready() {
		do()
		return
	}
	h.wait(r, do)
	if h.phase == uninitialized && !h.down {
		if h.clientInfo == nil {
			h.client = r.client
		}
		h.begin()
	}
}

// wait runs do for a request after the next handshake.
func (h *modernHandshake) wait(r *modernRequest, do func()) {
	h.waiting.add(r, len(h.requests.byKey), do)
}

// start begins the handshake. It returns the params of initialize.
func (h *modernHandshake) start() []byte {
	h.phase = handshaking
	if h.proposed == mcp.RevisionNone {
		h.proposed = h.opts.Legacy
	}
	f := era.Of(h.proposed)
	if h.clientInfo == nil {
		h.clientInfo = []byte(`{"name":"unnamed","version":"0"}`)
		if h.client.Info.Name != "" {
			h.clientInfo = era.NewIdentity(h.client.Info).AppendInfo(nil, f)
		}
	}
	params := jsonwire.AppendQuote([]byte(`{"protocolVersion":`), f.Revision.String())
	params = era.ConvertClientCapabilities(append(params, `,"capabilities":`...), h.client.Capabilities, f, false)
	return append(append(append(params, `,"clientInfo":`...), h.clientInfo...), '}')
}

// initialized takes the server's side of the handshake from the outcome of initialize. again says
// that the handshake must start again, with another revision.
func (h *modernHandshake) initialized(o outcome) (again bool, e *jsonrpc.Error) {
	h.phase = uninitialized
	profile, e := (*era.ServerProfile)(nil), o.err
	legacy := mcp.RevisionNone
	if e == nil {
		var err error
		if profile, err = era.ReadInitialize(o.result); err != nil {
			e = internalError("the server's response to initialize is invalid: %s", clip.String(err.Error(), 100))
		} else if _, legacy = era.Common(mcp.Revisions(), profile.Versions); legacy == mcp.RevisionNone {
			e = internalError("the server speaks revision %s, which the bridge does not", clip.String(profile.Versions[0], 100))
		}
	} else if _, other := era.Common(mcp.Revisions(), era.SupportedVersions(e)); other != mcp.RevisionNone && h.proposed == h.opts.Legacy && other != h.proposed {
		h.proposed = other // the server should have answered with it
		return true, nil
	} else {
		e = era.ConvertError(e, mcp.MethodInitialize, h.modern)
	}
	if e != nil {
		h.clientInfo, h.proposed = nil, mcp.RevisionNone
		return false, e
	}
	info := era.Lookup(o.result, "serverInfo")
	var short []byte
	if !era.IsObject(info) {
		info = nil
	} else {
		short = era.ShortInfo(info)
	}
	f := era.Of(legacy)
	caps := slices.Clone(era.ImpliedCapabilities(profile.Capabilities, f))
	if !f.CoreTasks { // the revision has no tasks
		caps = withoutMembers(caps, "tasks")
	}
	*h.server = legacyServer{f, caps, slices.Clone(info), short, profile.Instructions}
	h.phase = ready
	return false, nil
}

// lost forgets the handshake, because the server is lost.
func (h *modernHandshake) lost() {
	h.down, h.phase, h.logLevel = true, uninitialized, mcp.LevelNone
}

// retryIf begins the handshake again after some time, if wanted reports true then.
func (h *modernHandshake) retryIf(wanted func() bool) {
	h.timers.stop(h.retry)
	h.retry = h.after(maxBackoff, func() {
		if h.phase == uninitialized && !h.down && wanted() {
			h.begin()
		}
	})
}

// lowerLevel reports if the server must be sent a log level that a request wants. It then counts as
// sent.
func (h *modernHandshake) lowerLevel(level mcp.LoggingLevel) bool {
	if level == mcp.LevelNone || h.logLevel != mcp.LevelNone && level >= h.logLevel || era.Lookup(h.server.caps, "logging") == nil {
		return false
	}
	h.logLevel = level
	return true
}

// reconnected reports if the server was lost, and notes that it is back.
func (h *modernHandshake) reconnected() bool {
	lost := h.down
	h.down = false
	return lost
}

// discoverResult returns the result of server/discover.
func (h *modernHandshake) discoverResult() []byte {
	result := era.AppendRevisions([]byte(`{"supportedVersions":`), h.opts.Supported)
	result = era.ConvertServerCapabilities(append(result, `,"capabilities":`...), h.server.caps, h.modern)
	if h.server.instructions != "" {
		result = jsonwire.AppendQuote(append(result, `,"instructions":`...), h.server.instructions)
	}
	return append(result, '}')
}

// A legacyServer holds the server's description of itself. It is empty before the handshake.
type legacyServer struct {
	features *era.Features
	// caps holds the capabilities as declared.
	caps []byte
	// info is an Implementation, or nil. Results other than that of server/discover repeat short.
	info, short  []byte
	instructions string
}

// hasTasks reports if the server supports tasks for tool calls.
func (s *legacyServer) hasTasks() bool {
	return s.features != nil && s.features.CoreTasks && era.Lookup(s.caps, "tasks", "requests", "tools", "call") != nil
}

// featuresOr returns the features of the server, or of a revision before the handshake.
func (s *legacyServer) featuresOr(revision mcp.Revision) *era.Features {
	if s.features != nil {
		return s.features
	}
	return era.Of(revision)
}

// appendInfo appends the _meta member of a result with the server's info, after a comma, if it has
// any.
func (s *legacyServer) appendInfo(result []byte) []byte {
	if s.short == nil {
		return result
	}
	result = append(append(result, `,"_meta":{"`+mcp.MetaServerInfo+`":`...), s.short...)
	return append(result, '}')
}
