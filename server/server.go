package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/base/seal"
	"mcpwire/internal/base/sparse"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc"
	"mcpwire/internal/rpc/backend"
	"mcpwire/internal/text/uritemplate"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/middleware"
	"mcpwire/schema"
)

// Options are the options of [New]. The zero value is ready to use; a nil *Options means the same.
type Options struct {
	// Info describes the server to people, in addition to the name and the version.
	Info Info

	// Instructions tells the model how to use the server.
	Instructions string

	// Revisions limits the revisions that the server speaks. Nil means all.
	Revisions []mcp.Revision

	// Lenient accepts requests before the handshake is complete, as some hosts send them.
	Lenient bool

	// AdvertiseKinds lists the kinds to advertise before any item is registered. It is for servers
	// that register items later.
	AdvertiseKinds []Kind

	// StaticLists says that the lists do not change while clients are connected: the server does
	// not offer to announce changes, and announces none.
	StaticLists bool

	// View returns the part of the server that a caller sees. A nil function and a nil View show
	// everything. It is called for each request, possibly by multiple goroutines at once, and must
	// be quick. [CallOf] finds the request in ctx, which also has the values of the context of the
	// HTTP request, such as those of a middleware of net/http, or of [Server.Serve]. principal is
	// what [PrincipalID] returns.
	View func(ctx context.Context, principal string) *View

	// Cache controls how long clients may cache lists and resources. The zero value forbids it.
	Cache CacheOptions

	// Input controls how handlers ask the client for input.
	Input InputOptions

	// Tasks lets tools run as tasks. Nil means that none does.
	Tasks *TaskOptions

	// Limits bounds what one connection may use.
	Limits Limits

	// Callers limits the requests of one caller, over all its connections. The zero value sets no
	// limit.
	Callers CallerLimits

	// SchemaEngine validates hand-written schemas with keywords that package schema lacks. See
	// schema/fullschema. Nil means package schema alone.
	SchemaEngine schema.Engine

	// Schema has the options for the Go types of tools, prompts and AddMethod: whether members
	// without a field are ignored, how numbers in an any are decoded, and schemas for types of
	// other packages. Nil means the defaults of package schema. Its Engine is ignored for
	// SchemaEngine.
	Schema *schema.Options

	// Extensions holds the settings object of each extension that the server supports, by
	// identifier. Use {} for an extension without settings.
	Extensions map[string]json.RawMessage

	// Experimental holds the objects of experimental capabilities, by name.
	Experimental map[string]json.RawMessage

	// Bus connects servers that serve the same clients, for example behind a load balancer. A
	// change that one server announces reaches the sessions of all of them: changed lists and
	// views, updated resources and tasks, and [Server.ElicitationComplete]. Each server registers
	// its items itself; registrations before it first serves are not published. Nil means that the
	// server is alone. With a Bus, call [Server.Close] at the end.
	Bus Bus

	// StateKeys seals what clients keep: request states, list cursors, and over HTTP the ids of
	// legacy sessions. Servers of the same name that have the same keys continue each other's
	// calls, lists and sessions. Nil means a random key of this server.
	StateKeys *StateKeys

	// Goroutines starts a goroutine for each request, whatever its cost estimate. This is simpler,
	// and several times slower for quick handlers.
	Goroutines bool

	// Logger receives the server's log. Nil discards it.
	Logger *slog.Logger

	// Trace sees each message. It must not keep the slice. Nil disables tracing.
	Trace func(dir jsonrpc.Direction, message []byte)
}

// Info describes a server to people. Empty fields are left out. Modern clients get all of it with
// server/discover, and name, version and title with each result.
type Info struct {
	// Title is the name that hosts show instead of the server's name.
	Title string

	// Description says what the server is for.
	Description string

	// WebsiteURL is the address of a page about the server.
	WebsiteURL string

	// Icons are pictures of the server.
	Icons []mcp.Icon
}

// CacheOptions say how long clients, and caches that they share, may keep results.
type CacheOptions struct {
	// ListTTL is how long clients may cache a list or the result of server/discover. Zero means not
	// at all.
	ListTTL time.Duration

	// ListPublic lets shared caches serve the lists to all users. It is ignored if Options.View is
	// set.
	ListPublic bool

	// ReadTTL is how long clients may cache a resource's contents. A function's result can override
	// it. Zero means not at all.
	ReadTTL time.Duration

	// ReadPublic lets shared caches serve resources to all users. It is ignored if Options.View is
	// set. A function's result can override both.
	ReadPublic bool
}

// InputOptions control input requests to the client, and the request states that modern clients
// keep between the rounds. See [Options.StateKeys].
type InputOptions struct {
	// MaxRounds limits the input rounds of one call. Zero means 8. A request with a request state
	// but without a response to an input request repeats a round and does not count. MaxRounds does
	// not apply to legacy clients.
	MaxRounds int

	// StateTTL is how long a client may take to respond to an input request. Zero means 10 minutes.
	// A context with a deadline replaces it for legacy clients.
	StateTTL time.Duration

	// MaxStateBytes limits the size of a sealed request state: the responses and the results of
	// Once. Zero means 256 KiB.
	MaxStateBytes int

	// SingleUseState rejects a request state that was used before. It also rejects callers that use
	// more than 4096 states in StateTTL. A client whose connection broke must start over.
	SingleUseState bool

	// UsedStates remembers which states were used, for all servers that have the same StateKeys.
	// Nil means that this server remembers its own. It is for SingleUseState.
	UsedStates UsedStates
}

// UsedStates remembers the keys of request states that were used. An auth.ReplayCache is one. It
// must be safe for concurrent use.
type UsedStates interface {
	// Once reports whether key has not been passed to it in the last ttl. owner is the caller, for
	// limits by caller. If it returns an error, the request fails, over HTTP with status 503.
	Once(ctx context.Context, owner, key string, ttl time.Duration) (bool, error)
}

// Limits bounds what one connection may use.
type Limits struct {
	// PageSize is the number of items in a page of a list. Zero means 1000.
	PageSize int

	// MaxInFlight limits the requests that are in flight, including subscriptions. Zero means 256.
	MaxInFlight int

	// MaxInFlightBytes limits the size of the messages of these requests. Zero means 256 MiB.
	MaxInFlightBytes int

	// MaxQueueBytes limits the size of the requests that wait for MaxInFlight. Zero means 16 MiB.
	MaxQueueBytes int

	// MaxDepth limits the levels of nesting in a message. Zero means 512.
	MaxDepth int

	// HandlerTimeout is the time after which a handler's context expires. Zero means never.
	HandlerTimeout time.Duration

	// DrainTimeout limits how long handlers may run after the end of input. Zero means 10 seconds.
	DrainTimeout time.Duration
}

const defaultPageSize = 1000

// A Server is a set of tools, resources and prompts. It serves any number of connections at once.
// Create one with [New].
type Server struct {
	// link lets transports reach the server's transportBackend.
	link
	name string
	opts Options
	// keysGiven means that Options.StateKeys was not nil.
	keysGiven bool
	results   *era.Identity
	schema    schema.Options
	log       *slog.Logger
	// instance is a random identifier that list cursors carry.
	instance [8]byte
	// advertised holds the kinds of Options.AdvertiseKinds.
	advertised listChange
	costs      methodCosts
	// extensions has the settings of the declared extensions. The map does not change.
	extensions atomic.Pointer[map[string]json.RawMessage]
	eras       eras

	// The parts of a Server. Each has its own state and lock.
	tools       registry[*tool]
	resources   resourceSet
	prompts     registry[*prompt]
	completions completions
	custom      customMethods
	inputs      inputManager
	// tasks is nil without Options.Tasks.
	tasks *taskManager
	// limits is nil without limits on callers.
	limits   *limits
	sessions sessionSet
	// bus is nil without Options.Bus.
	bus *busClient

	startOnce sync.Once
	// chain runs all middleware. It is nil without middleware.
	chain *middleware.Chain
	// wrappedTool calls a tool's function through toolWrappers. It is nil without any.
	wrappedTool ToolFunc

	mu         sync.Mutex
	middleware []middleware.Func
	// toolWrappers are the functions of WrapTools.
	toolWrappers []func(ToolFunc) ToolFunc
	serving      bool
}

type link = backend.Link

// MustNew is [New] for options that are known to be valid. It panics instead of returning an error.
func MustNew(name, version string, opts *Options) *Server {
	s, err := New(name, version, opts)
	if err != nil {
		panic(err)
	}
	return s
}

// New returns a server without items. It copies opts, which may be nil. It returns an error if
// Options.Revisions contains an invalid revision, or if Options.Extensions or Options.Experimental
// contain an invalid identifier (https://modelcontextprotocol.io/specification/2026-07-28/basic) or
// a value that isn't a JSON object.
func New(name, version string, opts *Options) (*Server, error) {
	s := &Server{name: name}
	s.link = backend.NewLink(transportBackend{s})
	rand.Read(s.instance[:]) // never fails
	s.tools.kind, s.prompts.kind = KindTool, KindPrompt
	s.resources.registered.kind, s.resources.templates.kind = KindResource, KindResourceTemplate
	s.resources.registered.normalize = uritemplate.Normalize
	if opts != nil {
		s.opts = *opts
	}
	o := &s.opts
	if len(o.Revisions) == 0 {
		o.Revisions = mcp.Revisions()
	}
	o.Revisions = slices.Clone(o.Revisions)
	slices.Sort(o.Revisions)
	o.Revisions = slices.Compact(o.Revisions)
	for _, r := range o.Revisions {
		if _, err := r.MarshalText(); err != nil {
			return nil, fmt.Errorf("server.New: Options.Revisions: %w", err)
		}
	}
	if o.Limits.PageSize <= 0 {
		o.Limits.PageSize = defaultPageSize
	}
	if o.Tasks != nil {
		s.tasks = newTaskManager(*o.Tasks, s.taskChanged)
		o.Extensions = maps.Clone(o.Extensions)
		sparse.Set(&o.Extensions, mcp.ExtensionTasks, json.RawMessage("{}"))
	}
	var err error
	if o.Extensions, err = checkDeclarations(o.Extensions, era.CheckExtensionID); err != nil {
		return nil, fmt.Errorf("server.New: Options.Extensions%w", err)
	}
	s.extensions.Store(&o.Extensions)
	if o.Experimental, err = checkDeclarations(o.Experimental, nil); err != nil {
		return nil, fmt.Errorf("server.New: Options.Experimental%w", err)
	}
	s.limits = newLimits(o)
	if o.View != nil {
		// A shared cache would ignore the View.
		o.Cache.ListPublic, o.Cache.ReadPublic = false, false
	}
	if s.keysGiven = o.StateKeys != nil; !s.keysGiven {
		o.StateKeys = new(StateKeys)
	}
	s.inputs.init(o.Input)
	for _, k := range o.AdvertiseKinds {
		list := k.listChange()
		if list == 0 {
			return nil, fmt.Errorf("server.New: Options.AdvertiseKinds: unknown kind %q", k)
		}
		s.advertised |= list
	}
	if s.log = o.Logger; s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.resources.log = s.log
	if o.Bus != nil {
		s.bus = newBusClient(o.Bus, s)
	}
	if o.Schema != nil {
		s.schema = *o.Schema
	}
	s.schema.Engine = o.SchemaEngine
	s.results = era.NewIdentity(mcp.Implementation{
		Name: name, Version: version, Title: o.Info.Title, Description: o.Info.Description, WebsiteURL: o.Info.WebsiteURL, Icons: o.Info.Icons,
	})
	s.initEras()
	return s, nil
}

// Serve answers the peer on f until its input ends, ctx ends, or the transport fails. Then it
// closes f. When the input or ctx ends, Serve still answers the accepted requests within
// [Limits.DrainTimeout]. It returns nil at the end of input, the context's cause when ctx ended,
// and otherwise the read or write error. If requests were cut off, the error is a
// *[jsonrpc.DrainError]. Serve may be called by multiple goroutines, each with its own framer.
func (s *Server) Serve(ctx context.Context, f jsonrpc.Framer) error {
	s.start()
	sess := s.newSession(ctx, s.eras.both)
	sess.id = rand.Text()
	sess.handshake.cost.Seed(0)
	sess.attach(rpc.NewConn(f, s.connOptions(sess)))
	s.sessions.add(sess)
	defer sess.release()
	if err := sess.peer.conn.Run(ctx); err != nil {
		return fmt.Errorf("serve %s: %w", s.name, err)
	}
	return nil
}

// newSession returns a session for a peer. ctx supplies the peer's identity and context values; its
// cancellation has no effect.
func (s *Server) newSession(ctx context.Context, rules *era.Rules) *session {
	sess := &session{srv: s, log: s.log, identity: identityOf(ctx), peer: peer{chain: s.chain, values: ctx, log: s.log}}
	sess.handshake.own.Rules, sess.handshake.early = rules, s.chain != nil
	sess.handshake.era = &sess.handshake.own
	sess.tasks = s.newTaskServer(sess.identity.principal)
	sess.init()
	return sess
}

// connOptions returns the options of the session's connection.
func (s *Server) connOptions(sess *session) *rpc.Options {
	return &rpc.Options{
		Handler:          sess,
		Cancellation:     era.Cancellation{},
		Policy:           sess.handshake.policy(),
		MaxInFlightBytes: s.opts.Limits.MaxInFlightBytes,
		MaxDepth:         s.opts.Limits.MaxDepth,
		MaxInFlight:      s.opts.Limits.MaxInFlight,
		MaxQueueBytes:    s.opts.Limits.MaxQueueBytes,
		DrainTimeout:     s.opts.Limits.DrainTimeout,
		CallTimeout:      s.inputs.opts.StateTTL, // all outgoing calls are input requests
		Goroutines:       s.opts.Goroutines,
		Logger:           s.log,
		Trace:            s.opts.Trace,
	}
}

// WaitForTasks waits until no tool runs as a task. It returns the cause of ctx if that ends first.
// Call it after the last request and before [Server.Close], so that tasks can finish.
func (s *Server) WaitForTasks(ctx context.Context) error {
	if s.tasks == nil {
		return nil
	}
	return s.tasks.wait(ctx)
}

// Close cancels all tasks, waits for their handlers, and then disconnects from the bus, all until
// ctx ends. Only servers with tasks or a bus need it, and only if the process goes on. Connections
// are not affected: they end with their own contexts.
func (s *Server) Close(ctx context.Context) (err error) {
	if s.tasks != nil {
		err = s.tasks.close(ctx)
	}
	return errors.Join(err, s.bus.close(ctx))
}

// eras holds the rules of sessions with both eras or only one. A field is nil if the server speaks
// no revision of that era.
type eras struct{ both, legacy, modern *era.Rules }

func (s *Server) initEras() {
	rules := func(revisions []mcp.Revision) *era.Rules {
		if len(revisions) == 0 {
			return nil
		}
		return era.NewRules(era.Config{Revisions: revisions, Lenient: s.opts.Lenient, Offers: s.offers, Custom: s.custom.hasMethod})
	}
	var legacy, modern []mcp.Revision
	for _, r := range s.opts.Revisions {
		if r.Modern() {
			modern = append(modern, r)
		} else {
			legacy = append(legacy, r)
		}
	}
	s.eras = eras{both: rules(s.opts.Revisions), legacy: rules(legacy), modern: rules(modern)}
}

// checkDeclarations checks and copies a map of New's options. The copied settings contain no
// line breaks.
func checkDeclarations(all map[string]json.RawMessage, check func(name string) error) (map[string]json.RawMessage, error) {
	own := make(map[string]json.RawMessage, len(all))
	for name, settings := range all {
		var err error
		if check != nil {
			err = check(name)
		}
		if err == nil {
			err = checkObject(settings)
		}
		if err != nil {
			return nil, fmt.Errorf("[%q]: %w", name, err)
		}
		own[name] = jsonwire.AppendCompact(nil, settings)
	}
	return own, nil
}

// AddExtension declares that the server supports an extension, as [Options.Extensions] does.
// settings is an object. Packages that implement an extension call it; a later declaration replaces
// an earlier one. Clients that are connected already may not learn of it.
func (s *Server) AddExtension(id string, settings json.RawMessage) error {
	added, err := checkDeclarations(map[string]json.RawMessage{id: settings}, era.CheckExtensionID)
	if err != nil {
		return fmt.Errorf("server: extension %w", err)
	}
	for {
		old := s.extensions.Load()
		all := maps.Clone(*old)
		maps.Copy(all, added)
		if s.extensions.CompareAndSwap(old, &all) {
			return nil
		}
	}
}

// appendInitialize appends the result of initialize
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#initialization).
func (s *Server) appendInitialize(dst []byte, f *era.Features) []byte {
	dst = jsonwire.AppendQuote(append(dst, `{"protocolVersion":`...), f.Revision.String())
	dst = s.appendCapabilities(append(dst, `,"capabilities":`...), f)
	dst = s.results.AppendInfo(append(dst, `,"serverInfo":`...), f)
	return append(s.appendInstructions(dst), '}')
}

// appendDiscover appends the result of server/discover
// (https://modelcontextprotocol.io/specification/2026-07-28/server/discover).
func (s *Server) appendDiscover(dst []byte, f *era.Features) []byte {
	newest := slices.Clone(s.opts.Revisions)
	slices.Reverse(newest)
	dst = era.AppendRevisions(append(dst, `{"supportedVersions":`...), newest)
	dst = s.appendCapabilities(append(dst, `,"capabilities":`...), f)
	dst = s.appendInstructions(dst)
	dst = era.AppendCacheHints(dst, f, s.cacheHints())
	meta := s.results.AppendInfo([]byte(`{"`+mcp.MetaServerInfo+`":`), f) // whole here alone
	return s.results.EndWithMeta(dst, f, append(meta, '}'))
}

// appendCapabilities appends the server's capabilities.
func (s *Server) appendCapabilities(dst []byte, f *era.Features) []byte {
	changes := !s.opts.StaticLists
	dst = append(dst, `{"logging":{}`...)
	if f.Completions && s.completions.offered.Load() {
		dst = append(dst, `,"completions":{}`...)
	}
	if s.advertises(promptsChanged) {
		dst = append(strconv.AppendBool(append(dst, `,"prompts":{"listChanged":`...), changes), '}')
	}
	if s.advertises(resourcesChanged) {
		dst = append(strconv.AppendBool(append(dst, `,"resources":{"subscribe":true,"listChanged":`...), changes), '}')
	}
	if f.CoreTasks && s.tasks != nil {
		dst = append(dst, `,"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`...)
	}
	if s.advertises(toolsChanged) {
		dst = append(strconv.AppendBool(append(dst, `,"tools":{"listChanged":`...), changes), '}')
	}
	return append(s.appendDeclarations(dst, f), '}')
}

// appendDeclarations appends the experimental capabilities and the extensions. Legacy revisions do
// not define extensions, but their capabilities are an open set, and hosts look for extensions
// there. The tasks extension is left out for them because they have their own design of tasks.
func (s *Server) appendDeclarations(dst []byte, f *era.Features) []byte {
	dst = appendObjectMember(dst, "experimental", s.opts.Experimental, "")
	omit := ""
	if !f.Modern {
		omit = mcp.ExtensionTasks
	}
	return appendObjectMember(dst, "extensions", *s.extensions.Load(), omit)
}

// appendObjectMember appends a member, preceded by a comma, unless its object would be empty. The
// object leaves out the key omit.
func appendObjectMember(dst []byte, name string, members map[string]json.RawMessage, omit string) []byte {
	start := len(dst)
	dst = append(jsonwire.AppendQuote(append(dst, ','), name), ":{"...)
	empty := true
	for _, key := range slices.Sorted(maps.Keys(members)) {
		if key == omit {
			continue
		}
		if !empty {
			dst = append(dst, ',')
		}
		empty = false
		dst = append(append(jsonwire.AppendQuote(dst, key), ':'), members[key]...)
	}
	if empty {
		return dst[:start]
	}
	return append(dst, '}')
}

func (s *Server) appendInstructions(dst []byte) []byte {
	if s.opts.Instructions == "" {
		return dst
	}
	return jsonwire.AppendQuote(append(dst, `,"instructions":`...), s.opts.Instructions)
}

func (s *Server) cacheHints() era.CacheHints {
	return era.CacheHints{TTLMillis: max(s.opts.Cache.ListTTL.Milliseconds(), 0), Public: s.opts.Cache.ListPublic}
}

// readHints returns the default cache hints of resources.
func (s *Server) readHints() era.CacheHints {
	return era.CacheHints{TTLMillis: max(s.opts.Cache.ReadTTL.Milliseconds(), 0), Public: s.opts.Cache.ReadPublic}
}

// A transportBackend is the server as a backend.Backend, for transports that deliver each
// message separately.
type transportBackend struct{ srv *Server }

func (b transportBackend) OpenSession(ctx context.Context, out rpc.Sender, key string) (c *rpc.Conn, missed func(), end func(over bool)) {
	s := b.srv
	s.start()
	sess := s.newSession(ctx, s.eras.legacy)
	sess.detached = true
	if sess.id = rand.Text(); key != "" {
		// The key is a secret of the client, and may get into logs.
		sum := sha256.Sum256([]byte(key))
		sess.id = hex.EncodeToString(sum[:16])
	}
	sess.attach(rpc.NewDetached(out, s.connOptions(sess)))
	if sess.tasks != nil {
		sess.tasks.share(key)
	}
	s.sessions.add(sess)
	return sess.peer.conn, func() { s.sessions.missed(sess) }, func(over bool) {
		sess.peer.conn.Close()
		if over || key == "" {
			sess.release()
		} else {
			sess.untrack()
		}
	}
}

func (b transportBackend) OpenStateless() *rpc.Conn {
	s := b.srv
	if s.eras.modern == nil {
		return nil
	}
	s.start()
	sess := s.newSession(context.Background(), s.eras.modern)
	sess.detached, sess.stateless = true, true
	sess.handshake.modern.Store(true)
	sess.attach(rpc.NewDetached(discardSender{}, s.connOptions(sess)))
	return sess.peer.conn
}

func (b transportBackend) Revisions() []mcp.Revision {
	return append([]mcp.Revision(nil), b.srv.opts.Revisions...)
}

func (b transportBackend) SharedKeys() (ring *seal.Ring, name string) {
	if !b.srv.keysGiven {
		return nil, b.srv.name
	}
	return &b.srv.opts.StateKeys.ring, b.srv.name
}

func (b transportBackend) HasBus() bool { return b.srv.bus != nil }

func (b transportBackend) WithIdentity(ctx context.Context, id, address string) context.Context {
	if id == "" && b.srv.limits == nil && !b.srv.opts.Input.SingleUseState {
		return ctx // the identity is never used
	}
	return context.WithValue(ctx, identityKey{}, &identity{id, address})
}

// discardSender is the Sender of a stateless connection for messages that belong to no request.
// There are no such messages.
type discardSender struct{}

func (discardSender) Send([]byte) error { return nil }
