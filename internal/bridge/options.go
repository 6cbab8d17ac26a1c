package bridge

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"mcpwire/capture"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// An Era says which of the protocol's two eras a side speaks.
type Era uint8

// The eras. EraAuto finds it out: of clients by their first message, of a server by asking it.
const (
	EraAuto Era = iota
	EraLegacy
	EraModern
)

func (e Era) String() string {
	switch e {
	case EraLegacy:
		return "legacy"
	case EraModern:
		return "modern"
	}
	return "auto"
}

// ParseEra reads what String returns.
func ParseEra(s string) (Era, error) {
	for _, e := range []Era{EraAuto, EraLegacy, EraModern} {
		if s == e.String() {
			return e, nil
		}
	}
	return 0, fmt.Errorf("want auto, legacy or modern")
}

// revisions are those that clients of an era may use.
func (e Era) revisions() []mcp.Revision {
	var list []mcp.Revision
	for _, r := range mcp.Revisions() {
		if e == EraAuto || r.Modern() == (e == EraModern) {
			list = append(list, r)
		}
	}
	return list
}

// Options are the options of [New]. Connect must be set; of the others the zero value is the default.
type Options struct {
	// Connect opens a connection to the server: it starts its process, say. What a process writes to standard error goes to stderr too, which never fails. It must
	// return when ctx ends.
	Connect func(ctx context.Context, stderr io.Writer) (jsonrpc.Framer, error)
	// HTTP says that the server is on HTTP: its connections carry each request by itself, so that what is wrong with one does not end them.
	HTTP bool
	// Name is the server's in messages. Nothing in it is secret.
	Name string

	ClientEra, ServerEra Era // of the clients and the server

	// Shared has clients share connections, those of one principal: all of them before a modern server, before a legacy one those that introduce themselves alike. See the
	// package.
	Shared bool

	// LastLogin returns when a user was last waited for who has to log in to the server: now while it is so, since when no time counts, and the zero time if never. It may be nil.
	LastLogin func() time.Time

	ConnectTimeout time.Duration // for the server to be connected to and to answer the handshake; 0 is 30 s, negative for ever
	CallTimeout    time.Duration // without an answer, progress or question, after which a request fails; 0 is 5 min, negative never
	ReadyFor       time.Duration // that a server counts as ready which has answered something; 0 is 2 s. Make it longer where it takes a process to ask
	IdleTimeout    time.Duration // of what clients without a session have at the server, and of what they share; 0 is 30 min
	DrainTimeout   time.Duration // for requests under way when the bridge or a client's input ends; 0 is 10 s
	MaxSessions    int           // at once; 0 is 1000
	// MaxServers limits the connections to the server at once, each of which is a process if the
	// server is a command. Zero means MaxSessions.
	MaxServers int
	// MaxServersPerCaller limits those of one principal, or of one network address where there is
	// none. Zero means MaxServers. Clients on standard input and output or a unix socket are not
	// limited by it.
	MaxServersPerCaller int
	MaxCalls            int // requests of one client under way at once; 0 is 10,000
	MaxQueue            int // bytes that wait for the server to take them, for each connection to it; 0 is 16 MiB

	MinBackoff  time.Duration // before the server is started again; it doubles with each failure in a row, which an answered request ends. 0 is 200 ms
	MaxBackoff  time.Duration // that it does not exceed; 0 is 30 s
	StableAfter time.Duration // a server that ran as long has not failed, whether it was asked for something or not; 0 is 30 s
	// RestartWait is how long a request waits for the next attempt to start a server that has ended.
	// One for which it would be too late fails at once, with the reason of the last failure. Zero
	// means 10 s; a negative time does not wait.
	RestartWait time.Duration
	// MaxBacklog limits the messages of one client that wait until it is known what the server is,
	// while it starts; those of Options.MaxQueue bytes wait at most, besides the first. What exceeds
	// it is refused, over HTTP with status 503. Zero means 4096.
	MaxBacklog int

	// Remote says that clients may be others than the user who runs the bridge: of a server's
	// process they hear how it ended, and not its command and what it wrote to standard error. The
	// Logger gets that.
	Remote bool
	// Unredacted leaves secrets in what clients hear of a server's process.
	Unredacted bool

	// Record gets what passes on both sides. It is left open. nil records nothing.
	Record *capture.Writer
	Logger *slog.Logger // nil discards
}

func (o Options) withDefaults() Options {
	setDefault(&o.ConnectTimeout, 30*time.Second)
	setDefault(&o.CallTimeout, 5*time.Minute)
	setDefault(&o.ReadyFor, 2*time.Second)
	setDefault(&o.IdleTimeout, 30*time.Minute)
	setDefault(&o.DrainTimeout, 10*time.Second)
	setDefault(&o.MaxSessions, 1000)
	setDefault(&o.MaxServers, o.MaxSessions)
	setDefault(&o.MaxServersPerCaller, o.MaxServers)
	setDefault(&o.MaxCalls, 10_000)
	setDefault(&o.MaxQueue, 16<<20)
	setDefault(&o.MinBackoff, 200*time.Millisecond)
	setDefault(&o.MaxBackoff, 30*time.Second)
	setDefault(&o.StableAfter, 30*time.Second)
	setDefault(&o.RestartWait, 10*time.Second)
	setDefault(&o.MaxBacklog, 4096)
	setDefault(&o.Name, "the server")
	if o.LastLogin == nil {
		o.LastLogin = func() time.Time { return time.Time{} }
	}
	setDefault(&o.Logger, slog.New(slog.DiscardHandler))
	return o
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}
