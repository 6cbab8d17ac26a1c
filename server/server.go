package server

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/era"
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

	PageSize     int           // tools in one page of a list; 0 is 1000
	ListTTL      time.Duration // how long clients may keep a list or the answer to server/discover
	ListPublic   bool          // the list is the same for all users, so a cache may serve it to others
	SchemaEngine schema.Engine // for hand-written schemas with keywords that package schema lacks; see schema/fullschema

	MaxInFlight      int           // requests of a connection being handled at once, subscriptions among them; 0 is 256
	MaxInFlightBytes int           // messages of these requests; 0 is 256 MiB
	MaxQueueBytes    int           // requests of a connection that wait for that; 0 is 16 MiB
	MaxDepth         int           // levels of nesting in a message; 0 is 512
	ToolTimeout      time.Duration // after which a tool's context expires; 0 is never
	DrainTimeout     time.Duration // how long tools may go on after the end of input; 0 is 10 s
	Goroutines       bool          // a goroutine for each request, see jsonrpc.Options

	Logger *slog.Logger                                // nil discards
	Trace  func(dir jsonrpc.Direction, message []byte) // sees each message; must not keep the slice
}

const (
	defaultPageSize  = 1000
	maxSubscriptions = 64 // of one connection
)

// A Server is a set of tools that any number of connections use at once. Make one with [New].
type Server struct {
	name     string
	opts     Options
	identity *era.Identity
	log      *slog.Logger
	cursors  cursorKey

	mu       sync.Mutex
	tools    map[string]*tool
	nextSeq  uint64
	sessions map[*session]struct{}
	set      atomic.Pointer[toolSet] // what tools looked like at the last use; nil after a change
}

// New returns a server without tools. opts may be nil; it is copied. New panics if Options.Revisions holds what is no revision.
func New(name, version string, opts *Options) *Server {
	s := &Server{name: name, tools: make(map[string]*tool), sessions: make(map[*session]struct{})}
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
			panic("server.New: Options.Revisions: " + err.Error())
		}
	}
	if o.PageSize <= 0 {
		o.PageSize = defaultPageSize
	}
	if s.log = o.Logger; s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.identity = era.NewIdentity(mcp.Implementation{
		Name: name, Version: version, Title: o.Title, Description: o.Description, WebsiteURL: o.WebsiteURL, Icons: o.Icons,
	})
	return s
}

// Serve answers one peer on f until its input ends, ctx ends, or the carrier fails; f is closed then. When the input or ctx ends, requests that were
// accepted are still answered, within [Options.DrainTimeout]. The error is nil at the end of input; see [jsonrpc.Conn.Run] for others.
// It may be called for many framers at once.
func (s *Server) Serve(ctx context.Context, f jsonrpc.Framer) error {
	e := era.NewSession(era.Config{Revisions: s.opts.Revisions, Lenient: s.opts.Lenient})
	x := &session{srv: s, era: e, log: s.log}
	x.conn = jsonrpc.NewConn(f, &jsonrpc.Options{
		Handler:       x,
		Cancellation:  era.Cancellation{},
		Policy:        e.Policy(false),
		MaxDepth:      s.opts.MaxDepth,
		MaxInFlight:   s.opts.MaxInFlight,
		MaxQueueBytes: s.opts.MaxQueueBytes,
		DrainTimeout:  s.opts.DrainTimeout,
		Goroutines:    s.opts.Goroutines,
		Logger:        s.log,
		Trace:         s.opts.Trace,
	})
	s.mu.Lock()
	s.sessions[x] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.sessions, x)
		s.mu.Unlock()
		x.waitAnnouncer()
	}()
	if err := x.conn.Run(ctx); err != nil {
		return fmt.Errorf("serve %s: %w", s.name, err)
	}
	return nil
}
