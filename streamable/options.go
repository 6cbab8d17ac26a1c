package streamable

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"mcpwire/auth"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A Server is what a [Handler] brings messages to. *server.Server is one; its documentation says what the methods do.
type Server interface {
	Revisions() []mcp.Revision
	WithIdentity(ctx context.Context, id, address string, scopes []string, claims any) context.Context
	OpenStateless() *jsonrpc.Conn
	OpenSession(ctx context.Context, out jsonrpc.Sender) (c *jsonrpc.Conn, end func())
	Serve(ctx context.Context, f jsonrpc.Framer) error
}

// Options are the options of [NewHandler]. The zero value is ready to use, and what nil means: safe on a developer's machine, where web pages must not reach
// the server.
type Options struct {
	// Hosts are the names and addresses, with or without a port, under which the server is reached besides localhost and the loopback addresses. Requests
	// with another Host header are refused, because a page whose name points at this machine (DNS rebinding) sends that name.
	Hosts []string
	// Origins are those of web pages that may use the server, such as https://app.example.com; they get CORS headers. Pages of the server's own
	// origin may; others, and all with the origin "null", are refused. "*" is no origin here.
	Origins []string
	// Guard lets in who has a good token, see package auth; nil lets in everyone who comes by an allowed host and origin. It stands here, and not around the
	// Handler, because what browsers ask before a request has no token. Serve its [auth.Guard.Metadata] at its [auth.Guard.MetadataPaths].
	Guard *auth.Guard
	// Scopes says which scopes a request needs, by its method and by the tool, prompt, URI or task that it is about; nil is none. A caller without them gets the
	// 403 that makes clients ask for more. It is asked for each request of each revision, after the Guard has let the caller in.
	Scopes func(method, name string) []string

	MaxBody      int           // bytes of a request's body; 0 is 4 MiB
	BodyTimeout  time.Duration // for a request's body to arrive; 0 is 30 s
	WriteTimeout time.Duration // for a client to take each 64 KiB of what is written; 0 is 10 s
	KeepAlive    time.Duration // between signs of life on a stream, and until a slow answer becomes a stream; 0 is 15 s
	MaxInFlight  int           // requests being handled at once, without streams; 0 is 4096. As many answers, notifications and DELETEs besides
	// MaxInFlightPerCaller limits the requests of one principal, or of one network address where
	// there is none, that are handled at once; as many answers and notifications besides. Zero means
	// 512, twice what a client of [Dial] sends at once. A caller that has it is answered with status
	// 429; so is the one with the most in flight when MaxInFlight is nearly reached, before others
	// are answered with 503.
	MaxInFlightPerCaller int
	// ClientAddr returns the address that a request comes from, for the limits by caller. Behind a
	// proxy it has to take it from what the proxy says, see [ForwardedFor]; give the Guard the same.
	// Nil, and an invalid address, mean that of the connection: all clients behind one proxy are one
	// caller then.
	ClientAddr func(*http.Request) netip.Addr

	// MaxUnread limits the bytes of answers that clients have not taken yet, not counting answers of up
	// to 64 KiB; zero means 256 MiB. One caller may have a quarter of it, and is answered with 429 while
	// it has. An answer that finds no room for 3 s is dropped, and its request fails with status 500.
	MaxUnread int

	MaxStreams   int // standing streams at once: subscriptions/listen, GET, bodies of lines; 0 is 10,000
	MaxPerCaller int // streams, and as many sessions, of one principal, or of one network address (IPv6: /64) where there is none; 0 is 1000
	MaxSessions  int // of legacy clients at once; 0 is 10,000
	// SessionTimeout is after which a session ends that has neither a stream nor a request, or up to
	// 30 s later. Zero means 30 min. One whose client has not sent notifications/initialized ends
	// after 30 s.
	SessionTimeout time.Duration
	// AbandonTimeout is after which a session ends whose client has gone, and has neither a stream nor
	// sends anything, though requests of it are still being handled; they are canceled. Zero means
	// 10 min.
	AbandonTimeout time.Duration
	StreamAlways   bool // answer requests by event streams whenever the client takes them, even if nothing precedes the result

	Events   EventStore    // of legacy streams, for clients that resume one; nil keeps them in memory
	Sessions SessionStore  // lets another process take a legacy session over; nil does not
	Retry    time.Duration // that legacy clients are asked to wait before they resume a stream; 0 is 1 s

	NDJSON bool // also take bodies of application/x-ndjson: any number of messages, answered in one body of lines as they come

	Logger *slog.Logger // nil discards
}

func (o *Options) setDefaults() {
	setDefault(&o.MaxBody, 4<<20)
	setDefault(&o.BodyTimeout, 30*time.Second)
	setDefault(&o.WriteTimeout, 10*time.Second)
	setDefault(&o.KeepAlive, 15*time.Second)
	setDefault(&o.MaxInFlight, 4096)
	setDefault(&o.MaxInFlightPerCaller, 512)
	setDefault(&o.MaxUnread, 256<<20)
	setDefault(&o.MaxStreams, 10_000)
	setDefault(&o.MaxPerCaller, 1000)
	setDefault(&o.MaxSessions, 10_000)
	setDefault(&o.SessionTimeout, 30*time.Minute)
	setDefault(&o.AbandonTimeout, 10*time.Minute)
	setDefault(&o.Retry, time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

func setDefault[T int | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}
