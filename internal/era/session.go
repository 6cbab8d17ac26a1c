package era

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// Config configures the sessions of a server.
type Config struct {
	// Revisions holds at least one revision, in ascending order.
	Revisions []mcp.Revision
	// Lenient accepts requests before the handshake is complete, because some hosts send them.
	Lenient bool

	// Offers reports if the server supports a method of the protocol. Other methods do not exist.
	// Nil means that it supports all.
	Offers func(method []byte) bool
	// Custom reports if the server supports a method that no revision has. Nil means that it has no
	// custom methods.
	Custom func(method []byte) bool
}

// has reports if the method exists for clients of the revision.
func (c *Config) has(f *Features, method []byte) bool {
	if f.HasMethod(method) {
		return c.Offers == nil || c.Offers(method)
	}
	return c.Custom != nil && c.Custom(method)
}

// Rules are shared by sessions. They are immutable.
type Rules struct {
	cfg Config
	// latest is the newest legacy revision, or RevisionNone.
	latest mcp.Revision
	// modern holds the modern revisions in descending order.
	modern []mcp.Revision
}

// NewRules returns the rules for a configuration.
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

// A Session is the state of one peer on one transport. A peer may mix requests of both eras; only
// legacy requests have state. The methods may be called by many goroutines at once. A Session with
// Rules is ready to use. It must not be copied.
type Session struct {
	*Rules
	memo  atomic.Pointer[Meta]
	state atomic.Pointer[State]
}

// A State is what a legacy peer has declared in the handshake and by logging/setLevel. It is
// immutable. Nil is the state before these messages.
type State struct {
	// features are negotiated by initialize. They are nil before.
	features *Features
	// ready says that notifications/initialized was received.
	ready  bool
	client Client
}

// negotiated reports if initialize was received.
func (st *State) negotiated() bool { return st != nil && st.features != nil }

// noClient is the shared client without a description.
var noClient = &Client{}

// NewSession returns the session of a new peer.
func NewSession(cfg Config) *Session { return &Session{Rules: NewRules(cfg)} }

// A Request is a request in canonical form, which does not depend on earlier messages.
type Request struct {
	*Features
	Meta   *Meta
	Client *Client
}

// State returns the current state.
func (s *Session) State() *State { return s.state.Load() }

// Open checks a request by the rules of its era. The error is for the response.
func (s *Session) Open(r *rpc.Request) (Request, error) { return s.OpenAt(r, s.state.Load()) }

// OpenAt is Open for a request that arrived in an earlier state. Use it if later messages may have
// been read before the request is handled.
func (s *Session) OpenAt(r *rpc.Request, state *State) (Request, error) {
	meta, err := s.metaOf(r)
	if err != nil {
		return Request{}, &FormError{err}
	}
	if s.isModern(meta, r.Method) {
		return s.openModern(r, meta)
	}
	return s.openLegacy(r, meta, state)
}

// A FormError is the error of Open for a request without the members that every request needs.
// Transports such as HTTP give it another status than an equal error about the params of a method.
type FormError struct{ err error }

func (e *FormError) Error() string { return e.err.Error() }

// Unwrap returns the *[jsonrpc.Error] for the response.
func (e *FormError) Unwrap() error { return e.err }

// OpenNotification converts a notification that arrived in a state. Without a version and a
// handshake it has RevisionNone. The peer does not get the error.
func (s *Session) OpenNotification(r *rpc.Request, state *State) (Request, error) {
	meta, err := s.metaOf(r)
	if err != nil {
		return Request{}, err
	}
	if meta.hasVersion && len(s.modern) > 0 {
		revision := meta.revision
		if !s.supports(revision) {
			return Request{}, UnsupportedProtocolVersion(s.modern, clip.String(meta.version, 100))
		}
		return Request{Of(revision), meta, &meta.client}, nil
	}
	if state.negotiated() {
		return Request{state.features, meta, &state.client}, nil
	}
	return Request{Of(mcp.RevisionNone), meta, noClient}, nil
}

// metaOf checks the form of params and returns their _meta.
func (s *Session) metaOf(r *rpc.Request) (*Meta, error) {
	if len(r.Params) > 0 && r.Params[0] != '{' {
		return nil, invalidParams("params must be an object")
	}
	if r.DuplicateParam() {
		return nil, invalidParams("a member of params appears twice")
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

// IsModern reports if the rules of modern revisions apply to a message: if its _meta has a version,
// or only modern revisions have its method.
func (s *Session) IsModern(m *jsonrpc.Message) bool {
	meta := noMeta
	if text, ok := m.Param("_meta"); ok && text[0] == '{' {
		meta = s.meta(text)
	}
	return s.isModern(meta, m.Method)
}

// maxMemo limits the _meta text that a session stores, in bytes.
const maxMemo = 16 << 10

// meta parses _meta. It caches the last result, because most requests of a client have the same
// _meta.
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

func (s *Session) openModern(r *rpc.Request, meta *Meta) (Request, error) {
	if string(r.Method) == mcp.MethodInitialize && !meta.hasVersion {
		return Request{}, s.refuseInitialize(r)
	}
	// Check the version first, because the other rules depend on it.
	revision := meta.revision
	if meta.versionIsString && !s.supports(revision) {
		return Request{}, UnsupportedProtocolVersion(s.modern, clip.String(meta.version, 100))
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

// supports reports if the server supports the modern revision, which may be RevisionNone.
func (s *Session) supports(revision mcp.Revision) bool { return slices.Contains(s.modern, revision) }

// refuseInitialize returns the error for a legacy client of a modern server.
func (s *Session) refuseInitialize(r *rpc.Request) error {
	requested, _ := r.Param("protocolVersion")
	e := UnsupportedProtocolVersion(s.modern, clip.String(jsonwire.Text(requested), 100))
	e.Message += fmt.Sprintf(": this server has no handshake and speaks %v", s.modern)
	return e
}

func (s *Session) openLegacy(r *rpc.Request, meta *Meta, st *State) (Request, error) {
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
			return Request{}, invalidRequest("initialize was already answered; it must be sent only once")
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

func (s *Session) handshakeError(r *rpc.Request, missing string) error {
	hint := ""
	if len(s.modern) > 0 {
		hint = fmt.Sprintf(", or put %s and %s into params._meta", mcp.MetaProtocolVersion, mcp.MetaClientCapabilities)
	}
	return invalidRequest("%s was sent before the handshake was complete: send %s first%s", clip.String(string(r.Method), 100), missing, hint)
}

// Initialize handles an initialize request that Open has accepted. It returns the features of the
// negotiated revision.
func (s *Session) Initialize(r *rpc.Request) (*Features, error) {
	return s.negotiate(r, true)
}

// Reinitialize replaces the result of Initialize, for a request that was changed after its arrival.
func (s *Session) Reinitialize(r *rpc.Request) (*Features, error) { return s.negotiate(r, false) }

// negotiate handles an initialize request. once makes it fail after another.
func (s *Session) negotiate(r *rpc.Request, once bool) (*Features, error) {
	st, err := s.parseInitialize(r)
	if err != nil {
		return nil, err
	}
	replaced := s.update(func(next *State) bool {
		if once && next.negotiated() {
			return false
		}
		next.features, next.client.Info, next.client.Capabilities = st.features, st.client.Info, st.client.Capabilities
		return true
	})
	if !replaced {
		return nil, invalidRequest("initialize was already answered; it must be sent only once")
	}
	return st.features, nil
}

// update changes a copy of the state and stores it, unless change reports false. change may be
// called again if another goroutine changes the state meanwhile.
func (s *Session) update(change func(next *State) bool) bool {
	for {
		was := s.state.Load()
		next := new(State)
		if was != nil {
			*next = *was
		}
		if !change(next) {
			return false
		}
		if s.state.CompareAndSwap(was, next) {
			return true
		}
	}
}

func (s *Session) parseInitialize(r *rpc.Request) (*State, error) {
	text, _ := r.Param("protocolVersion")
	version, ok := jsonwire.String(text)
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
		st.client.Info = parseImplementation(info)
	}
	return st, nil
}

// Initialized handles notifications/initialized. It reports if that was expected.
func (s *Session) Initialized() bool {
	return s.update(func(next *State) bool {
		if !next.negotiated() || next.ready {
			return false
		}
		next.ready = true
		return true
	})
}

// SetLogLevel handles logging/setLevel.
func (s *Session) SetLogLevel(level mcp.LoggingLevel) {
	s.update(func(next *State) bool {
		next.client.LogLevel = level
		return true
	})
}

// Legacy returns the negotiated features, or nil before the handshake is complete.
func (s *Session) Legacy() *Features {
	if st := s.state.Load(); st.negotiated() && (st.ready || s.cfg.Lenient) {
		return st.features
	}
	return nil
}

// Policy returns the policy for a transport: of the negotiated revision, or of the newest modern
// one if modernSeen is set.
func (s *Session) Policy(modernSeen bool) rpc.Policy {
	st := s.state.Load()
	var f *Features
	switch {
	case st.negotiated():
		f = st.features
	case modernSeen:
		f = Of(s.modern[0])
	default:
		// The peer's revision is unknown. Errors without an id are those of JSON-RPC, unless all
		// supported revisions differ from it. No revision has batches before its handshake.
		return rpc.Policy{NoBatches: true, OmitNullID: !Of(s.cfg.Revisions[0]).NullErrorID}
	}
	return rpc.Policy{NoBatches: !f.Batches, OmitNullID: !f.NullErrorID}
}

func invalidParams(message string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "invalid params: " + message}
}

func invalidRequest(format string, args ...any) error {
	return jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: "+format, args...)
}

// A Meta is the parsed _meta of a request. It owns its slices. Requests with the same text share
// it, so it must not be changed.
type Meta struct {
	// ProgressToken is JSON text, a string or an integer, or nil.
	ProgressToken []byte
	// Trace is the trace context.
	Trace rpc.Trace
	// LogLevel is the log level of a modern request. LevelNone means no log messages.
	LogLevel mcp.LoggingLevel

	client  Client
	version string
	// revision is the revision of version, or RevisionNone.
	revision        mcp.Revision
	hasVersion      bool
	versionIsString bool
	hasCaps         bool
	// problem says why a modern request is invalid, or is "".
	problem string
	// text is the parsed text.
	text []byte
}

// A Client is a client's description, from the handshake or a request.
type Client struct {
	Info mcp.Implementation
	// Capabilities is the JSON text of a ClientCapabilities object, or nil.
	Capabilities []byte

	// LogLevel is the level that a legacy client has set. LevelNone means all messages.
	LogLevel mcp.LoggingLevel
}

// Has reports if the client declared the capability at a path of names.
func (c *Client) Has(path ...string) bool { return c.Capability(path...) != nil }

// Capability returns the JSON text of a capability, or nil. It must not be changed.
func (c *Client) Capability(path ...string) []byte {
	at := c.Capabilities
	for _, name := range path {
		if len(at) == 0 || at[0] != '{' {
			return nil
		}
		members := jsonwire.ObjectMembers(at)
		at = nil
		for members.Next() {
			if members.KeyIs(name) {
				at = members.Value()
			}
		}
		if at == nil || string(at) == "null" {
			return nil
		}
	}
	return at
}

// Extension returns the JSON object that the client declared for an extension, or nil. It ignores
// the tasks extension in legacy revisions, which have core tasks.
func (c *Client) Extension(f *Features, id string) []byte {
	settings := c.Capability("extensions", id)
	if len(settings) == 0 || settings[0] != '{' || !f.Modern && id == mcp.ExtensionTasks {
		return nil
	}
	return settings
}

var noMeta = &Meta{}

// Text returns the JSON text of the _meta object, or nil.
func (m *Meta) Text() []byte { return m.text }

// parseMeta parses a _meta object, which must be valid JSON.
func parseMeta(text []byte) *Meta {
	m := &Meta{text: bytes.Clone(text)}
	var seen [8]bool
	members := jsonwire.ObjectMembers(m.text)
	for members.Next() {
		key := members.RawKey()
		if bytes.IndexByte(key, '\\') >= 0 {
			key = jsonwire.AppendUnquote(nil, key)
		}
		if i := m.read(key, members.Value()); i > 0 {
			if seen[i] && m.problem == "" {
				m.problem = fmt.Sprintf("member %s of _meta appears twice", key)
			}
			seen[i] = true
		}
	}
	if seen[5] {
		m.Trace = rpc.TraceOfMeta(m.text)
	}
	return m
}

// read parses a member. It returns a number for each known name, and 0 for others. It ignores null
// for optional members.
func (m *Meta) read(key, v []byte) int {
	text, isText := jsonwire.String(v)
	null := string(v) == "null"
	switch string(key) {
	case mcp.MetaProtocolVersion:
		m.version, m.hasVersion, m.versionIsString = text, true, isText
		m.revision, _ = mcp.ParseRevision(text)
		if !isText {
			m.setProblem(key, "a string")
		}
		return 1
	case mcp.MetaClientCapabilities:
		m.hasCaps = true
		if m.client.Capabilities = v; v[0] != '{' {
			m.setProblem(key, "an object")
		}
		return 2
	case mcp.MetaClientInfo:
		m.client.Info = parseImplementation(v)
		return 3
	case mcp.MetaLogLevel:
		var ok bool
		if m.LogLevel, ok = mcp.ParseLoggingLevel(text); !ok && !null {
			m.setProblem(key, "one of debug, info, notice, warning, error, critical, alert, emergency")
		}
		return 4
	case "traceparent":
		return 5
	case mcp.MetaProgressToken:
		if jsonrpc.ID(v).Valid() {
			m.ProgressToken = v
		} else if !null {
			m.setProblem(key, "a string or an integer")
		}
		return 6
	}
	return 0
}

func (m *Meta) setProblem(key []byte, want string) {
	if m.problem == "" {
		m.problem = fmt.Sprintf("params._meta[%q] must be %s", key, want)
	}
}

// checkModern returns why the metadata is invalid for a modern request, or "".
func (m *Meta) checkModern(supported []mcp.Revision) string {
	switch {
	case m.problem != "":
		return m.problem
	case !m.hasVersion:
		return fmt.Sprintf("params._meta[%q] is missing (supported: %v)", mcp.MetaProtocolVersion, supported)
	case !m.hasCaps:
		return fmt.Sprintf("params._meta[%q] is missing ({} for none)", mcp.MetaClientCapabilities)
	}
	return ""
}

// IsSubresource reports if uri is the resource whole, or a part of it. A server that reports a
// change of a part has changed the whole.
func IsSubresource(uri, whole string) bool {
	rest, ok := strings.CutPrefix(uri, whole)
	return ok && (rest == "" || strings.HasSuffix(whole, "/") || strings.ContainsRune("/?#", rune(rest[0])))
}

// Cancellation implements [rpc.Cancellation] for all revisions
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/cancellation).
type Cancellation struct{}

// Target implements [rpc.Cancellation].
func (Cancellation) Target(n *jsonrpc.Message) (jsonrpc.ID, string, bool) {
	if string(n.Method) != mcp.NotificationCancelled {
		return nil, "", false
	}
	id, ok := n.Param("requestId")
	if !ok || !jsonrpc.ID(id).Valid() {
		return nil, "", true // ignored as malformed
	}
	return id, rpc.CancelReason(n, "reason"), true
}

// Notice implements [rpc.Cancellation]. The handshake cannot be canceled.
func (Cancellation) Notice(id jsonrpc.ID, method, reason string) (string, []byte) {
	if method == mcp.MethodInitialize {
		return "", nil
	}
	params := append(append([]byte(`{"requestId":`), id...), `,"reason":`...)
	return mcp.NotificationCancelled, append(jsonwire.AppendQuote(params, reason), '}')
}
