package era

import (
	"bytes"
	"fmt"
	"slices"
	"sync/atomic"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// Config says which revisions a server speaks, and how strictly it takes the handshake.
type Config struct {
	Revisions []mcp.Revision // in ascending order, at least one
	Lenient   bool           // take requests before the handshake is complete, as some hosts send them

	// Offers reports whether the server has what a method of the protocol is about; without the capability for it, a method does not exist. nil is all.
	Offers func(method []byte) bool
	// Custom reports whether the server has a method that no revision has. nil is none.
	Custom func(method []byte) bool
}

// has reports whether the method exists for clients of the revision.
func (c *Config) has(f *Features, method []byte) bool {
	if f.HasMethod(method) {
		return c.Offers == nil || c.Offers(method)
	}
	return c.Custom != nil && c.Custom(method)
}

// Rules are what sessions have in common. They do not change.
type Rules struct {
	cfg    Config
	latest mcp.Revision   // legacy; RevisionNone if the server has none
	modern []mcp.Revision // in descending order
}

// NewRules returns the rules of sessions of which cfg holds.
func NewRules(cfg Config) *Rules {
	r := &Rules{cfg: cfg, latest: latest(cfg.Revisions, func(r mcp.Revision) bool { return !r.Modern() })}
	for _, revision := range cfg.Revisions {
		if revision.Modern() {
			r.modern = append(r.modern, revision)
		}
	}
	slices.Reverse(r.modern)
	return r
}

// A Session is one peer on one transport. Requests of both eras may come mixed; only the legacy ones have a state. [Session.Open] may be called by
// many goroutines at once. It is ready to use once it has rules, and must not be copied.
type Session struct {
	*Rules
	memo  atomic.Pointer[Meta]
	state atomic.Pointer[State]
}

// A State is what a legacy peer has said by messages of their own. It does not change: the next
// such message makes another. A nil one is that of a peer that has said nothing.
type State struct {
	features *Features // that initialize agreed on; nil as long as it has not come
	ready    bool      // notifications/initialized has come
	client   Client
}

// negotiated reports whether initialize has come.
func (st *State) negotiated() bool { return st != nil && st.features != nil }

// noClient is the client that has said nothing of itself. It is shared.
var noClient = &Client{}

// NewSession returns the session of a peer that has not said anything.
func NewSession(cfg Config) *Session { return &Session{Rules: NewRules(cfg)} }

// An Request is a request in canonical form: it carries everything by itself.
type Request struct {
	*Features
	Meta   *Meta
	Client *Client
}

// State returns what the peer has said by now.
func (s *Session) State() *State { return s.state.Load() }

// Open judges a request by the rules of the era it belongs to. The error is the one to answer with.
func (s *Session) Open(r *jsonrpc.Request) (Request, error) { return s.OpenAt(r, s.state.Load()) }

// OpenAt is Open for a request that arrived in the state at. One that is handled when messages
// behind it may have been read must be judged so.
func (s *Session) OpenAt(r *jsonrpc.Request, state *State) (Request, error) {
	meta, err := s.metaOf(r)
	if err != nil {
		return Request{}, &FormError{err}
	}
	if s.isModern(meta, r.Method) {
		return s.openModern(r, meta)
	}
	return s.openLegacy(r, meta, state)
}

// A FormError is what Open returns for a request that lacks what every request must have. Transports that tell errors apart, as HTTP does by its status, want
// to know it from those that say the same of what is particular to a method.
type FormError struct{ err error }

func (e *FormError) Error() string { return e.err.Error() }

// Unwrap returns the *[jsonrpc.Error] to answer with.
func (e *FormError) Unwrap() error { return e.err }

// OpenNotification puts a notification into canonical form, which arrived in the state at. It is of
// no revision if it names none and there was no handshake. Nobody is told of the error.
func (s *Session) OpenNotification(r *jsonrpc.Request, state *State) (Request, error) {
	meta, err := s.metaOf(r)
	if err != nil {
		return Request{}, err
	}
	if meta.hasVersion && len(s.modern) > 0 {
		revision := meta.revision
		if !s.supports(revision) {
			return Request{}, mcp.UnsupportedProtocolVersion(s.modern, clip(meta.version))
		}
		return Request{Of(revision), meta, &meta.client}, nil
	}
	if state.negotiated() {
		return Request{state.features, meta, &state.client}, nil
	}
	return Request{Of(mcp.RevisionNone), meta, noClient}, nil
}

// metaOf checks the form of params and returns what their _meta says.
func (s *Session) metaOf(r *jsonrpc.Request) (*Meta, error) {
	if len(r.Params) > 0 && r.Params[0] != '{' {
		return nil, invalidParams("params must be an object")
	}
	if r.DuplicateParam() {
		return nil, invalidParams("a member of params stands twice")
	}
	text, ok := r.Param("_meta")
	if !ok || string(text) == "null" {
		return noMeta, nil
	}
	if text[0] != '{' {
		return nil, invalidParams("params._meta must be an object")
	}
	return s.meta(text), nil
}

// IsModern reports whether a message is judged by the rules of modern revisions: it names a version
// in its _meta, or only they have its method.
func (s *Session) IsModern(m *jsonrpc.Message) bool {
	meta := noMeta
	if text, ok := m.Param("_meta"); ok && text[0] == '{' {
		meta = s.meta(text)
	}
	return s.isModern(meta, m.Method)
}

// maxMemo is the longest _meta text that a session keeps, in bytes.
const maxMemo = 16 << 10

// meta parses the text, unless it is that of the last request: most of a client's requests say the same of it.
func (s *Session) meta(text []byte) *Meta {
	if m := s.memo.Load(); m != nil && bytes.Equal(m.text, text) {
		return m
	}
	m := parseMeta(text)
	if len(text) <= maxMemo {
		s.memo.Store(m)
	}
	return m
}

func (s *Session) isModern(meta *Meta, method []byte) bool {
	switch {
	case len(s.modern) == 0:
		return false
	case s.latest == mcp.RevisionNone || meta.hasVersion:
		return true
	}
	return Of(s.modern[0]).HasMethod(method) && !Of(s.latest).HasMethod(method)
}

func (s *Session) openModern(r *jsonrpc.Request, meta *Meta) (Request, error) {
	if string(r.Method) == mcp.MethodInitialize && !meta.hasVersion {
		return Request{}, s.refuseInitialize(r)
	}
	// The version comes first: what else a request needs is for its revision to say.
	revision := meta.revision
	if meta.versionIsString && !s.supports(revision) {
		return Request{}, mcp.UnsupportedProtocolVersion(s.modern, clip(meta.version))
	}
	if problem := meta.checkModern(s.modern); problem != "" {
		return Request{}, &FormError{invalidParams(problem)}
	}
	if r.InBatch() {
		return Request{}, invalidRequest("revision %s has no batches", revision)
	}
	f := Of(revision)
	if !s.cfg.has(f, r.Method) {
		return Request{}, jsonrpc.MethodNotFound(string(r.Method))
	}
	return Request{f, meta, &meta.client}, nil
}

// supports reports whether the revision is one of the modern ones that are spoken here.
func (s *Session) supports(revision mcp.Revision) bool {
	for _, r := range s.modern { // none of them is RevisionNone
		if r == revision {
			return true
		}
	}
	return false
}

// refuseInitialize answers the handshake of a legacy client that is met by a modern server only.
func (s *Session) refuseInitialize(r *jsonrpc.Request) error {
	requested := ""
	if v, ok := r.Param("protocolVersion"); ok {
		requested, _ = stringValue(v)
	}
	e := mcp.UnsupportedProtocolVersion(s.modern, clip(requested))
	e.Message += fmt.Sprintf(": this server has no handshake and speaks %v", s.modern)
	return e
}

func (s *Session) openLegacy(r *jsonrpc.Request, meta *Meta, st *State) (Request, error) {
	f := Of(s.latest)
	negotiated := st.negotiated()
	if negotiated {
		f = st.features
	}
	if !s.cfg.has(f, r.Method) {
		return Request{}, jsonrpc.MethodNotFound(string(r.Method))
	}
	switch {
	case string(r.Method) == mcp.MethodInitialize:
		if r.InBatch() {
			return Request{}, invalidRequest("initialize must not be in a batch")
		}
		if negotiated {
			return Request{}, invalidRequest("initialize was answered already; it must be sent once")
		}
	case string(r.Method) == mcp.MethodPing:
	case !negotiated && !s.cfg.Lenient:
		return Request{}, s.handshakeError(r, mcp.MethodInitialize+", then "+mcp.NotificationInitialized)
	case negotiated && !st.ready && !s.cfg.Lenient:
		return Request{}, s.handshakeError(r, mcp.NotificationInitialized)
	}
	if st == nil {
		return Request{f, meta, noClient}, nil
	}
	return Request{f, meta, &st.client}, nil
}

func (s *Session) handshakeError(r *jsonrpc.Request, missing string) error {
	hint := ""
	if len(s.modern) > 0 {
		hint = fmt.Sprintf(", or put %s and %s into params._meta", mcp.MetaProtocolVersion, mcp.MetaClientCapabilities)
	}
	return invalidRequest("%s came before the handshake was complete: send %s first%s", clip(string(r.Method)), missing, hint)
}

// Initialize acts on an initialize request that Open let pass, and returns the features of the revision it agrees to.
func (s *Session) Initialize(r *jsonrpc.Request) (*Features, error) {
	return s.negotiate(r, true)
}

// Reinitialize puts what r agrees on in the place of what Initialize agreed on, for a request that
// was changed after it had arrived.
func (s *Session) Reinitialize(r *jsonrpc.Request) (*Features, error) { return s.negotiate(r, false) }

// negotiate acts on an initialize request; once makes it fail if there was another.
func (s *Session) negotiate(r *jsonrpc.Request, once bool) (*Features, error) {
	st, err := s.parseInitialize(r)
	if err != nil {
		return nil, err
	}
	for {
		was := s.state.Load()
		if once && was.negotiated() {
			return nil, invalidRequest("initialize was answered already; it must be sent once")
		}
		next := *st
		if was != nil {
			next.ready, next.client.LogLevel = was.ready, was.client.LogLevel
		}
		if s.state.CompareAndSwap(was, &next) {
			return next.features, nil
		}
	}
}

// parseInitialize reads an initialize request.
func (s *Session) parseInitialize(r *jsonrpc.Request) (*State, error) {
	text, _ := r.Param("protocolVersion")
	version, ok := stringValue(text)
	if !ok {
		return nil, invalidParams("params.protocolVersion must be a string such as " + s.latest.String())
	}
	revision, ok := mcp.ParseRevision(version)
	if !ok || revision.Modern() || !slices.Contains(s.cfg.Revisions, revision) {
		revision = s.latest
	}
	st := &State{features: Of(revision)}
	if caps, ok := r.Param("capabilities"); ok && caps[0] == '{' {
		st.client.Capabilities = bytes.Clone(caps)
	}
	if info, ok := r.Param("clientInfo"); ok {
		st.client.Info = mcp.ParseImplementation(info)
	}
	return st, nil
}

// Initialized acts on notifications/initialized and reports whether it was in place.
func (s *Session) Initialized() bool {
	for {
		st := s.state.Load()
		if !st.negotiated() || st.ready {
			return false
		}
		ready := *st
		ready.ready = true
		if s.state.CompareAndSwap(st, &ready) {
			return true
		}
	}
}

// SetLogLevel acts on logging/setLevel.
func (s *Session) SetLogLevel(level mcp.LoggingLevel) {
	for {
		was := s.state.Load()
		next := new(State)
		if was != nil {
			*next = *was
		}
		next.client.LogLevel = level
		if s.state.CompareAndSwap(was, next) {
			return
		}
	}
}

// Legacy returns the features that the handshake agreed on, or nil as long as it is not complete.
func (s *Session) Legacy() *Features {
	if st := s.state.Load(); st.negotiated() && (st.ready || s.cfg.Lenient) {
		return st.features
	}
	return nil
}

// Policy returns what holds for a transport: what the handshake agreed on, else what a peer that has sent a modern request expects.
func (s *Session) Policy(modernSeen bool) jsonrpc.Policy {
	st := s.state.Load()
	var f *Features
	switch {
	case st.negotiated():
		f = st.features
	case modernSeen:
		f = Of(s.modern[0])
	default:
		// Nobody knows yet what the peer speaks. It gets what JSON-RPC says, unless all that is spoken here says otherwise.
		return jsonrpc.Policy{
			NoBatches:  !slices.ContainsFunc(s.cfg.Revisions, func(r mcp.Revision) bool { return Of(r).Batches }),
			OmitNullID: !Of(s.cfg.Revisions[0]).NullErrorID,
		}
	}
	return jsonrpc.Policy{NoBatches: !f.Batches, OmitNullID: !f.NullErrorID}
}

func invalidParams(message string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "invalid params: " + message}
}

func invalidRequest(format string, args ...any) error {
	return jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: "+format, args...)
}

func clip(s string) string {
	if len(s) > 100 {
		return s[:100] + "…"
	}
	return s
}
