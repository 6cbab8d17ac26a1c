package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/uritemplate"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/schema"
)

// Options are the options of New. The zero value is ready to use, and what nil means.
type Options struct {
	Title        string // shown to people
	Description  string
	WebsiteURL   string
	Icons        []mcp.Icon
	Instructions string // for the model: how to use the server

	Revisions []mcp.Revision // the only ones to speak; nil is all
	Lenient   bool           // take requests before the handshake is complete, as some hosts send them

	AdvertiseKinds []Kind // what to declare though nothing of the kind is registered yet, for servers that register later

	// View says what a caller sees of the server; nil, and a nil View, is everything. It is asked for each request, and must be quick.
	View func(ctx context.Context, p *Principal) *View

	PageSize     int           // items in one page of a list; 0 is 1000
	ListTTL      time.Duration // how long clients may keep a list or the answer to server/discover
	ListPublic   bool          // the lists are the same for all users, so a cache may serve them to others; not with a View
	ReadTTL      time.Duration // how long clients may keep what a resource holds, unless its function says otherwise
	ReadPublic   bool          // what the resources hold is the same for all users, likewise; not with a View, but for what a function's own result says
	SchemaEngine schema.Engine // for hand-written schemas with keywords that package schema lacks; see schema/fullschema

	Extensions   map[string]json.RawMessage // that the server has, by their identifiers: the settings object of each, {} if there is nothing to set
	Experimental map[string]json.RawMessage // capabilities that no specification has: an object for each

	RateLimit      RateLimit // of one caller's requests
	MaxConcurrent  int       // requests of one caller being handled at once, over all its connections; 0 is no limit but MaxInFlight
	LimitedMethods []string  // that both limits are for; nil is tools/call, prompts/get, resources/read and completion/complete

	Tasks *TaskOptions // lets tools run as tasks; nil does not

	// Bus connects servers, in this process or others, that serve the same clients, as those behind a load balancer do: what one announces, the sessions of all hear.
	// That is changes of lists and of views, updates of resources and of tasks, and [Server.ElicitationComplete]. Each server registers its tools by
	// itself; what one registers before it first serves is not announced. nil: this server is alone. With one, call [Server.Close] in the end.
	Bus Bus

	StateKeys      *StateKeys    // that seal what a client keeps between the rounds of a call that asks it, and cursors; nil is a random key, of this server alone
	StateTTL       time.Duration // how long a client may take to answer; 0 is 10 min. A legacy one may take until the handler's context ends, if that has a deadline
	MaxStateBytes  int           // of what a call remembers between rounds: the answers and what Once returned, sealed; 0 is 256 KiB
	MaxRounds      int           // how often one call may ask the client; 0 is 8. Legacy clients are asked by requests, which are not counted
	SingleUseState bool          // refuse a request state that this process has had before, and callers with more than 4096 in StateTTL. A client whose connection broke has to start over

	MaxInFlight      int           // requests of a connection being handled at once, subscriptions among them; 0 is 256
	MaxInFlightBytes int           // messages of these requests; 0 is 256 MiB
	MaxQueueBytes    int           // requests of a connection that wait for that; 0 is 16 MiB
	MaxDepth         int           // levels of nesting in a message; 0 is 512
	HandlerTimeout   time.Duration // after which a handler's context expires; 0 is never
	DrainTimeout     time.Duration // how long handlers may go on after the end of input; 0 is 10 s
	Goroutines       bool          // a goroutine for each request, see jsonrpc.Options

	Logger *slog.Logger                                // nil discards
	Trace  func(dir jsonrpc.Direction, message []byte) // sees each message; must not keep the slice
}

const defaultPageSize = 1000

// A Server is a set of tools, resources and prompts that any number of connections use at once. Make one with [New].
type Server struct {
	name     string
	opts     Options
	results  *era.Identity
	log      *slog.Logger
	instance [8]byte  // in cursors
	forms    sync.Map // by reflect.Type: forms that users were asked to fill in
	used     usedStates

	tools        registry[*tool]
	resources    registry[*resource]
	templates    registry[*template]
	prompts      registry[*prompt]
	tasks        *taskManager // nil without Options.Tasks
	advertised   listChange   // by Options.AdvertiseKinds
	hasCompleter atomic.Bool  // there is or was a Completer
	costs        methodCosts
	custom       customMethods
	limits       *limits    // nil if there are none
	bus          *busClient // nil without Options.Bus
	eras         eras

	startOnce sync.Once
	chain     HandlerFunc // all middleware; nil if there is none

	mu         sync.Mutex
	sessions   map[*session]struct{}
	middleware []Middleware
	serving    bool
}

// MustNew is [New] for options that are known to be valid: it panics instead of returning an error.
func MustNew(name, version string, opts *Options) *Server {
	s, err := New(name, version, opts)
	if err != nil {
		panic(err)
	}
	return s
}

// New returns a server that offers nothing yet. opts may be nil; New copies it. The error says which
// option is invalid: Options.Revisions may only have revisions that exist, and Options.Extensions
// and Options.Experimental must map identifiers (see [mcp.CheckExtensionID]) to JSON objects.
func New(name, version string, opts *Options) (*Server, error) {
	s := &Server{name: name, sessions: make(map[*session]struct{})}
	rand.Read(s.instance[:]) // never fails
	s.tools.kind, s.resources.kind, s.templates.kind, s.prompts.kind = KindTool, KindResource, KindResourceTemplate, KindPrompt
	s.resources.normalize = uritemplate.Normalize
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
	if o.PageSize <= 0 {
		o.PageSize = defaultPageSize
	}
	if o.Tasks != nil {
		s.tasks = newTaskManager(*o.Tasks)
		o.Extensions = maps.Clone(o.Extensions)
		if o.Extensions == nil {
			o.Extensions = make(map[string]json.RawMessage)
		}
		o.Extensions[mcp.ExtensionTasks] = json.RawMessage("{}")
	}
	var err error
	if o.Extensions, err = checkDeclarations("Extensions", o.Extensions, mcp.CheckExtensionID); err != nil {
		return nil, err
	}
	if o.Experimental, err = checkDeclarations("Experimental", o.Experimental, nil); err != nil {
		return nil, err
	}
	s.limits = newLimits(o)
	if o.View != nil {
		o.ListPublic, o.ReadPublic = false, false // a cache would show it to those who must not see it
	}
	o.setStateDefaults()
	for _, k := range o.AdvertiseKinds {
		s.advertised |= k.listChange()
	}
	if s.log = o.Logger; s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if o.Bus != nil {
		s.bus = newBusClient(o.Bus, s.receive, s.log)
	}
	s.results = era.NewIdentity(mcp.Implementation{
		Name: name, Version: version, Title: o.Title, Description: o.Description, WebsiteURL: o.WebsiteURL, Icons: o.Icons,
	})
	s.initEras()
	return s, nil
}

// Serve answers one peer on f until its input ends, ctx ends, or the transport fails; f is closed then. When the input or ctx ends, requests that were
// accepted are still answered, within [Options.DrainTimeout]. The error is nil at the end of input; see [jsonrpc.Conn.Run] for others.
// It may be called for many framers at once.
func (s *Server) Serve(ctx context.Context, f jsonrpc.Framer) error {
	s.start()
	sess := s.newSession(ctx, s.eras.both)
	sess.handshakeCost.Seed(0)
	sess.conn = jsonrpc.NewConn(f, s.connOptions(sess, sess.era.Policy(false)))
	s.trackSession(sess)
	defer sess.release()
	if err := sess.conn.Run(ctx); err != nil {
		return fmt.Errorf("serve %s: %w", s.name, err)
	}
	return nil
}

// newSession returns the session of a peer. ctx says on whose behalf it is; that it ends means nothing.
func (s *Server) newSession(ctx context.Context, rules *era.Rules) *session {
	sess := &session{srv: s, log: s.log, ownEra: era.Session{Rules: rules}, ctxValues: ctx, identity: identityOf(ctx)}
	sess.era = &sess.ownEra
	if s.tasks != nil {
		sess.anonymousTaskOwner = "session " + rand.Text()
	}
	return sess
}

// connOptions are those of a connection whose messages h handles.
func (s *Server) connOptions(h jsonrpc.Handler, p jsonrpc.Policy) *jsonrpc.Options {
	return &jsonrpc.Options{
		Handler:          h,
		Cancellation:     era.Cancellation{},
		Policy:           p,
		MaxInFlightBytes: s.opts.MaxInFlightBytes,
		MaxDepth:         s.opts.MaxDepth,
		MaxInFlight:      s.opts.MaxInFlight,
		MaxQueueBytes:    s.opts.MaxQueueBytes,
		DrainTimeout:     s.opts.DrainTimeout,
		CallTimeout:      s.opts.StateTTL, // all calls are questions to the client
		Goroutines:       s.opts.Goroutines,
		Logger:           s.log,
		Trace:            s.opts.Trace,
	}
}

// trackSession has the session told of what changes, until it leaves.
func (s *Server) trackSession(sess *session) {
	s.mu.Lock()
	s.sessions[sess] = struct{}{}
	s.mu.Unlock()
}

// Close ends the tasks of the server's tools and waits for their handlers, and then leaves the bus, as long as ctx lets it. A server without tasks and a bus need
// not be closed, nor one whose process ends anyway. Connections are none of its business: they end with their own contexts.
func (s *Server) Close(ctx context.Context) (err error) {
	if s.tasks != nil {
		err = s.tasks.close(ctx)
	}
	return errors.Join(err, s.bus.close(ctx))
}

// eras are the rules of sessions that have both eras, or only one; nil if the server speaks no revision of it.
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

// checkDeclarations checks and copies what New is given to declare: the settings of each name are on one line then.
func checkDeclarations(option string, all map[string]json.RawMessage, check func(name string) error) (map[string]json.RawMessage, error) {
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
			return nil, fmt.Errorf("server.New: Options.%s[%q]: %w", option, name, err)
		}
		own[name] = jsonwire.AppendCompact(nil, settings)
	}
	return own, nil
}

// appendDeclarations appends capabilities that somebody else than the protocol defines. Legacy revisions do not mention extensions, but their
// capabilities are an open set, and hosts look for extensions there. Tasks are the exception: those revisions have some of their own.
func (s *Server) appendDeclarations(dst []byte, f *era.Features) []byte {
	dst = appendObjectMember(dst, "experimental", s.opts.Experimental, "")
	omit := ""
	if !f.Modern {
		omit = era.ExtensionTasks
	}
	return appendObjectMember(dst, "extensions", s.opts.Extensions, omit)
}

// appendObjectMember appends a member behind others, unless it would be an empty object.
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

// ClientExtension returns the settings object that the client declared for an extension; ok is false if it did not declare it. Whatever belongs to the
// extension has to stay out of the answer then, or the request be refused ([mcp.MissingRequiredClientCapability]). Settings must not be changed.
func (c *Call) ClientExtension(id string) (settings json.RawMessage, ok bool) {
	settings = c.ex.Client.Extension(c.ex.Features, id)
	return settings, settings != nil
}
