package bridge

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"mcpwire/client"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/jsonrpc"
	"mcpwire/stdio"
	"mcpwire/streamable"
)

var (
	// ErrClosed is returned by [Bridge.Serve] if the bridge is closed, or has ended the client.
	ErrClosed = bridge.ErrClosed
	// ErrFull is wrapped by the error of [Bridge.Serve] if a limit rules out another client. The
	// text of the error names the limit.
	ErrFull = bridge.ErrFull
)

// Options configure a [Bridge]. The zero value is ready to use.
type Options struct {
	// Name is the name of the server in log messages. It must not contain secrets. Empty means "the
	// server".
	Name string
	// Shared lets the clients of one principal share connections to the server. See the package
	// documentation.
	Shared bool
	// ShowStderr adds the command and the last standard error of a process that failed, redacted,
	// to the errors that clients get. Set it if all clients belong to the user who runs the bridge.
	// Otherwise they only learn how the process ended, and the Logger gets the rest.
	ShowStderr bool

	// Timeouts limit how long the bridge waits.
	Timeouts Timeouts
	// Limits bound what clients can use.
	Limits Limits

	// Logger receives the log. Nil discards it.
	Logger *slog.Logger
}

// Timeouts limit how long a [Bridge] waits.
type Timeouts struct {
	// Connect limits the time to connect to the server and complete the handshake. Zero means 30 s;
	// a negative time means no limit.
	Connect time.Duration
	// Call limits the time that a request waits without a response, progress or an input request.
	// Zero means 5 min; a negative time means no limit.
	Call time.Duration
	// Restart limits how long a request waits for the next attempt to connect after a failure, such
	// as a refused connection. If the attempt would come later, the request fails at once. Zero
	// means 10 s; a negative time means no wait.
	Restart time.Duration
	// Idle limits how long a connection to the server stays open without use, if clients share it
	// or have no session. Zero means 30 min.
	Idle time.Duration
	// Drain limits how long pending requests may run when the input of a client ends. Zero means
	// 10 s.
	Drain time.Duration
}

// Limits bound what the clients of a [Bridge] can use.
type Limits struct {
	// MaxClients limits the clients. Zero means 1000.
	MaxClients int
	// MaxServers limits the connections to the server. Each is a process if the server is a
	// command. Over HTTP, a client beyond it gets status 503. Zero means MaxClients.
	MaxServers int
	// MaxServersPerCaller limits the connections to the server for one principal, or for one
	// network address if the client has no principal. Over HTTP, a client beyond it gets status
	// 429. Zero means MaxServers. It does not apply to [Bridge.Serve].
	MaxServersPerCaller int
	// MaxCalls limits the pending requests of one client. Zero means 10,000.
	MaxCalls int
}

// A Bridge connects clients to one server. Use [New] to make one, and close it after use.
type Bridge struct{ b *bridge.Bridge }

var _ jsonrpc.Server = (*Bridge)(nil)

// New returns a bridge to the server of upstream. It connects when there is a message to send. o
// may be nil; New copies it.
//
// Pass a *stdio.Cmd and a *streamable.Transport as they are, not wrapped in another transport: the
// bridge then reports how a process ended, and an HTTP request that fails does not end the
// connection. Their fields and options apply, such as the limit of a message's size; several
// processes may write to the Stderr of a Cmd at once. New returns an error if upstream is nil.
func New(upstream client.Transport, o *Options) (*Bridge, error) {
	if upstream == nil {
		return nil, errors.New("bridge: the upstream is missing")
	}
	if o == nil {
		o = &Options{}
	}
	_, isHTTP := upstream.(*streamable.Transport)
	cmd, isProcess := upstream.(*stdio.Cmd)
	readyFor := time.Duration(0)
	if isProcess {
		readyFor = time.Minute // a check starts a process
	}
	b, err := bridge.New(&bridge.Options{
		Connect: func(ctx context.Context, stderr io.Writer) (jsonrpc.Framer, error) {
			if isProcess {
				return withStderr(cmd, stderr).Connect(ctx)
			}
			return upstream.Connect(ctx)
		},
		HTTP: isHTTP, Name: o.Name, Shared: o.Shared, Remote: !o.ShowStderr, ReadyFor: readyFor,
		ConnectTimeout: o.Timeouts.Connect, CallTimeout: o.Timeouts.Call, RestartWait: o.Timeouts.Restart,
		IdleTimeout: o.Timeouts.Idle, DrainTimeout: o.Timeouts.Drain,
		MaxSessions: o.Limits.MaxClients, MaxServers: o.Limits.MaxServers, MaxServersPerCaller: o.Limits.MaxServersPerCaller,
		MaxCalls: o.Limits.MaxCalls, Logger: o.Logger,
	})
	if err != nil {
		return nil, err
	}
	return &Bridge{b}, nil
}

// withStderr returns a copy of cmd that also writes its standard error to w.
func withStderr(cmd *stdio.Cmd, w io.Writer) *stdio.Cmd {
	c := *cmd
	if c.Stderr != nil {
		w = io.MultiWriter(w, c.Stderr)
	}
	c.Stderr = w
	return &c
}

// Handler returns a handler for clients over HTTP, in all revisions. o has the options of
// [streamable.NewHandler] and may be nil; Handler returns an error if they are invalid.
// MaxInFlightPerCaller has another default: zero means 2048, because many agents may use one
// address and wait for one server. Shut the handler down before you close the bridge.
func (b *Bridge) Handler(o *streamable.Options) (*streamable.Handler, error) { return b.b.Handler(o) }

// Serve serves one client on f until its input ends. It then waits for pending requests, up to
// [Timeouts].Drain or the end of ctx, and closes f. It answers requests that are cut off with
// errors. It returns
//
//   - nil after the end of the input, if all requests were answered or the client reads no more
//   - a [*jsonrpc.DrainError] if requests were cut off
//   - the cause of ctx if that ended first
//   - [ErrClosed] if the bridge is closed or has ended the client
//   - an error with [ErrFull] if a limit rules out the client
//   - the error of f if reading or writing fails
func (b *Bridge) Serve(ctx context.Context, f jsonrpc.Framer) error { return b.b.Serve(ctx, f) }

// Ready returns nil if the server works. It asks the server, unless a message of the server in the
// last 2 s shows it, or in the last minute if asking would start a process. The error says what is
// wrong, and may contain the server's command and its last standard error. Ready suits a check of
// package health.
func (b *Bridge) Ready(ctx context.Context) error { return b.b.Ready(ctx) }

// Close ends all clients and connections to the server, and waits for the server's processes to
// end.
func (b *Bridge) Close() error { return b.b.Close() }
