package era

import (
	"bytes"
	"fmt"
	"slices"
	"sync/atomic"

	"mcpwire/internal/json/jsonwire"
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

// Meta is what a request's _meta says. Its slices are its own; it is shared by requests with the same text, so it must not be changed.
type Meta struct {
	ProgressToken []byte // JSON text, a string or an integer; nil if there is none
	Trace         jsonrpc.Trace
	LogLevel      mcp.LoggingLevel // modern; LevelNone if the client wants no log messages

	client          Client
	version         string
	revision        mcp.Revision // that version names; RevisionNone if it is none that is known
	hasVersion      bool
	versionIsString bool // the version is a string, as it must be
	hasCaps         bool
	problem         string // what makes it unusable for a modern request
	text            []byte // what it was parsed from
}

// A Client is what a client says of itself: once in the handshake, or with each request.
type Client struct {
	Info         mcp.Implementation
	Capabilities []byte // JSON text of the ClientCapabilities object; nil if none were given

	// LogLevel is the level that a legacy client has set by logging/setLevel. LevelNone is all.
	LogLevel mcp.LoggingLevel
}

// Has reports whether the client declared a capability, and each nested one that is named after it.
func (c *Client) Has(path ...string) bool { return c.Capability(path...) != nil }

// Capability returns the JSON text of what the client declared, nil if it did not. It must not be changed.
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

// Extension returns the settings that the client declared for an extension, the text of an object; nil if it did not declare it. Legacy revisions have
// tasks of their own, so the extension for them does not count there.
func (c *Client) Extension(f *Features, id string) []byte {
	settings := c.Capability("extensions", id)
	if len(settings) == 0 || settings[0] != '{' || !f.Modern && id == ExtensionTasks {
		return nil
	}
	return settings
}

var noMeta = &Meta{}

// Text returns the JSON text of the _meta object; nil if there is none.
func (m *Meta) Text() []byte { return m.text }

// parseMeta reads the text of a _meta object, which is valid JSON.
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
				m.problem = fmt.Sprintf("member %s of _meta stands twice", key)
			}
			seen[i] = true
		}
	}
	if seen[5] {
		m.Trace = jsonrpc.TraceOfMeta(m.text)
	}
	return m
}

// read takes one member and returns a number for each known one. null stands for the absence of what is optional.
func (m *Meta) read(key, v []byte) int {
	text, isText := stringValue(v)
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
		m.client.Info = mcp.ParseImplementation(v)
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

// checkModern says what keeps the metadata from being that of a modern request, of which spoken are the revisions that are spoken here.
func (m *Meta) checkModern(supported []mcp.Revision) string {
	switch {
	case m.problem != "":
		return m.problem
	case !m.hasVersion:
		return fmt.Sprintf("params._meta[%q] is missing (supported: %v)", mcp.MetaProtocolVersion, supported)
	case !m.hasCaps:
		return fmt.Sprintf("params._meta[%q] is missing ({} means none)", mcp.MetaClientCapabilities)
	}
	return ""
}

func stringValue(v []byte) (s string, ok bool) {
	if len(v) < 2 || v[0] != '"' {
		return "", false
	}
	return jsonwire.UnquoteString(v[1 : len(v)-1]), true
}

// Cancellation is how requests are cancelled in MCP, in all revisions
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/cancellation).
type Cancellation struct{}

// Target implements [jsonrpc.Cancellation].
func (Cancellation) Target(n *jsonrpc.Message) (jsonrpc.ID, string, bool) {
	if string(n.Method) != mcp.NotificationCancelled {
		return nil, "", false
	}
	id, ok := n.Param("requestId")
	if !ok || !jsonrpc.ID(id).Valid() {
		return nil, "", true // malformed cancellations are ignored
	}
	return id, jsonrpc.CancelReason(n, "reason"), true
}

// Notice implements [jsonrpc.Cancellation]. The handshake must not be cancelled.
func (Cancellation) Notice(id jsonrpc.ID, method, reason string) (string, []byte) {
	if method == mcp.MethodInitialize {
		return "", nil
	}
	params := append(append([]byte(`{"requestId":`), id...), `,"reason":`...)
	return mcp.NotificationCancelled, append(jsonwire.AppendQuote(params, reason), '}')
}
