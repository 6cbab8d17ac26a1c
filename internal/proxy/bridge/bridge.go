package bridge

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/base/sparse"
	"mcpwire/internal/rpc/relay"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

var (
	// ErrClosed is returned by [Bridge.Serve] if the bridge is closed, or has ended the client.
	ErrClosed = errors.New("bridge: closed")
	// ErrFull is wrapped by the error of [Bridge.Serve] if the bridge cannot take another client.
	// The text of the error names the limit.
	ErrFull = errors.New("bridge: no room for another client")
)

// A Bridge connects clients to one server. Use [New] to make one, and close it after use. Its
// methods may be called by many goroutines at once.
type Bridge struct {
	opts Options
	// instance makes the ids of the bridge unique.
	instance string
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	// recording is nil if Options.Record is.
	recording *Recording
	// callCount counts the calls of all clients since the start.
	callCount atomic.Uint64
	metrics   metrics
	// openConnections counts the current connections to the server.
	openConnections atomic.Int64
	starting        startQueue
	health          health
	// responded says that the server has sent a message.
	responded atomic.Bool
	eras      eraCache

	mu       sync.Mutex
	closed   bool
	draining bool
	clients  map[*client]struct{}
	servers  serverCounts
	// pool holds the shared upstreams by shareKey.
	pool map[string]*sharedUpstream
	// spare is an upstream on which the era was detected and that no client uses, or nil.
	spare *upstream
	// detecting is set while a shared client detects the era of the server.
	detecting *sharedAttempt
	// failedUpstream is the upstream of a failed detection, for the next client, so that its
	// backoff applies. It may be nil.
	failedUpstream *upstream
	// leftOut has the malformed items that were logged.
	leftOut map[string]bool
}

// New returns a bridge, or an error if the options are invalid. The bridge connects to the server
// when there is a message to send.
func New(o *Options) (*Bridge, error) {
	if o == nil || o.Connect == nil {
		return nil, errors.New("bridge: Options.Connect is missing")
	}
	b := &Bridge{opts: o.withDefaults(), instance: rand.Text()[:8], clients: map[*client]struct{}{}, pool: map[string]*sharedUpstream{}, leftOut: map[string]bool{}}
	b.servers = serverCounts{opts: &b.opts, open: &b.openConnections}
	b.recording = NewRecording(b.opts.Record, nil)
	if b.behindGateway() {
		b.recording = b.opts.Recording
	}
	b.ctx, b.cancel = context.WithCancel(context.WithoutCancel(b.opts.BaseContext))
	return b, nil
}

// Close ends all clients and connections to the server, and waits for the server's processes to
// end. After a second it cancels the connections that are still open.
func (b *Bridge) Close() error {
	b.mu.Lock()
	b.closed, b.draining = true, true
	clients := slices.Collect(maps.Keys(b.clients))
	b.mu.Unlock()
	for _, cl := range clients {
		cl.close()
	}
	b.mu.Lock()
	rest := slices.Collect(maps.Values(b.pool))
	for _, up := range []*upstream{b.failedUpstream, b.spare} {
		if up != nil {
			up.close()
		}
	}
	b.mu.Unlock()
	for _, s := range rest {
		s.idleTimer.Stop()
		s.close()
	}
	timer := time.AfterFunc(closeTimeout, b.cancel)
	b.wg.Wait()
	timer.Stop()
	b.cancel()
	return nil
}

// An Era is one of the two eras of the protocol.
type Era uint8

// The eras. With EraAuto the bridge detects the era: of a client by its first message, of the
// server by asking it.
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

// ParseEra parses the text that [Era.String] returns.
func ParseEra(s string) (Era, error) {
	for _, e := range []Era{EraAuto, EraLegacy, EraModern} {
		if s == e.String() {
			return e, nil
		}
	}
	return 0, fmt.Errorf("want auto, legacy or modern")
}

// Revisions returns the revisions that clients of the era may use.
func (e Era) Revisions() []mcp.Revision {
	var list []mcp.Revision
	for _, r := range mcp.Revisions() {
		if e == EraAuto || r.Modern() == (e == EraModern) {
			list = append(list, r)
		}
	}
	return list
}

// Options configure a [Bridge]. Connect is required. For the other fields, the zero value is the
// default.
type Options struct {
	// Connect opens a connection to the server, for example by starting its process. It copies the
	// standard error of a process to stderr, whose Write never fails. It must return when ctx ends.
	Connect func(ctx context.Context, stderr io.Writer) (jsonrpc.Framer, error)
	// BaseContext has the values of the contexts of Connect and of HTTP requests to the server. Nil
	// means context.Background.
	BaseContext context.Context
	// HTTP says that Connect uses HTTP. An error of one request then does not end the connection.
	HTTP bool
	// Name is the name of the server in log messages. It must not contain secrets. Empty means "the
	// server".
	Name string
	// NameErrors begins the internal errors that the bridge makes for clients with Name, for
	// clients that use several servers.
	NameErrors bool
	// Hints say how the user of the bridge corrects its configuration.
	Hints Hints

	// ClientEra and ServerEra are the eras of the clients and of the server. Zero means EraAuto.
	ClientEra, ServerEra Era

	// Starts limit how many servers start at once, except over HTTP. The time until a server may
	// start does not count for ConnectTimeout. Nil means no limit.
	Starts *Starts

	// NoTranslation answers clients of an era that the server lacks as the server would, so that a
	// client that is a bridge translates by itself. It needs Shared.
	NoTranslation bool

	// PerAddress gives the clients without a session and without a principal an upstream for each
	// network address, in place of one for all of them. It does not apply with Shared.
	PerAddress bool
	// Shared lets the clients of one principal share upstreams: all of them if the server is
	// modern, those with the same handshake if it is legacy. See the package comment.
	Shared bool

	// LastLogin returns when a user last had to log in to the server: the current time while the
	// login is pending, and the zero time if there was none. Timeouts count from that time. It may
	// be nil.
	LastLogin func() time.Time

	// ConnectTimeout limits the time to connect to the server and complete the handshake. Zero
	// means 30 s; a negative time means no limit.
	ConnectTimeout time.Duration
	// CallTimeout limits the time that a request waits without a response, progress or an input
	// request. Zero means 5 min; a negative time means no limit.
	CallTimeout time.Duration
	// ReadyFor is how long [Bridge.Ready] trusts the last message of the server. Zero means 2 s.
	// Set it higher if each check starts a process.
	ReadyFor time.Duration
	// IdleTimeout limits how long an upstream stays open without use, if clients share it or its
	// clients have no session. Zero means 30 min.
	IdleTimeout time.Duration
	// DrainTimeout limits how long pending requests may run when the bridge or the input of a
	// client ends. Zero means 10 s.
	DrainTimeout time.Duration
	// MaxSessions limits the number of clients. Zero means 1000.
	MaxSessions int
	// MaxServers limits the number of upstreams. Each is a process if the server is a command. Zero
	// means MaxSessions.
	MaxServers int
	// MaxServersPerCaller limits the upstreams of one principal, or of one network address if the
	// client has no principal. Zero means MaxServers. It does not apply to clients on standard
	// input and output or a unix socket.
	MaxServersPerCaller int
	// MaxCalls limits the pending requests of one client. Zero means 10,000.
	MaxCalls int
	// MaxQueue limits the bytes that wait to be sent on one upstream, and over HTTP those of the
	// requests above 1 MiB that can wait for a restart. Zero means 16 MiB.
	MaxQueue int

	// MinBackoff is the pause before the first reconnection. It doubles with each failure until a
	// request is answered. Zero means 200 ms.
	MinBackoff time.Duration
	// MaxBackoff limits the pause between two connections. Zero means 30 s.
	MaxBackoff time.Duration
	// StableAfter is how long a connection must last to reset the backoff, with or without
	// requests. Zero means 30 s.
	StableAfter time.Duration
	// RestartWait limits how long a request waits for the next attempt to connect. If the attempt
	// would come later, the request fails at once with the last error. Zero means 10 s; a negative
	// time means no wait.
	RestartWait time.Duration
	// MaxBacklog limits the messages of one client that wait while the bridge detects the era of
	// the server. MaxQueue limits their bytes; the first message may be larger. The bridge rejects
	// messages above the limit, over HTTP with status 503. Zero means 4096.
	MaxBacklog int

	// Remote says that clients may belong to other users than the one who runs the bridge. They
	// then learn how a process ended, but not its command and its standard error. The Logger gets
	// both.
	Remote bool
	// Unredacted keeps secrets in the errors about a server's process that clients get.
	Unredacted bool

	// Record receives the traffic of both sides. The bridge does not close it. Nil records nothing.
	Record *capture.Writer
	// Recording replaces Record for a bridge behind a gateway that records the clients' side.
	Recording *Recording
	// Logger receives the log. Nil discards it.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, 30*time.Second)
	o.CallTimeout = cmp.Or(o.CallTimeout, 5*time.Minute)
	o.ReadyFor = cmp.Or(o.ReadyFor, 2*time.Second)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 30*time.Minute)
	o.DrainTimeout = cmp.Or(o.DrainTimeout, 10*time.Second)
	o.MaxSessions = cmp.Or(o.MaxSessions, 1000)
	o.MaxServers = cmp.Or(o.MaxServers, o.MaxSessions)
	o.MaxServersPerCaller = cmp.Or(o.MaxServersPerCaller, o.MaxServers)
	o.MaxCalls = cmp.Or(o.MaxCalls, 10_000)
	o.MaxQueue = cmp.Or(o.MaxQueue, 16<<20)
	o.MinBackoff = cmp.Or(o.MinBackoff, 200*time.Millisecond)
	o.MaxBackoff = cmp.Or(o.MaxBackoff, 30*time.Second)
	o.StableAfter = cmp.Or(o.StableAfter, 30*time.Second)
	o.RestartWait = cmp.Or(o.RestartWait, 10*time.Second)
	o.MaxBacklog = cmp.Or(o.MaxBacklog, 4096)
	o.Name = cmp.Or(o.Name, "the server")
	if o.BaseContext == nil {
		o.BaseContext = context.Background()
	}
	if o.LastLogin == nil {
		o.LastLogin = func() time.Time { return time.Time{} }
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o
}

// uncountedKey is the context key of clients that do not count for the limits.
type uncountedKey struct{}

// Uncounted returns a context for clients that Options.MaxServers and Options.MaxServersPerCaller
// do not count, such as the connection with which a gateway reads lists.
func Uncounted(ctx context.Context) context.Context {
	return context.WithValue(ctx, uncountedKey{}, true)
}

const (
	// uncounted is the caller of uncounted clients.
	uncounted = "\x00"
	// maxUncounted is how many connections of uncounted clients the other limits expect.
	maxUncounted = 4
)

// callerOf returns the caller to charge for a client.
func callerOf(ctx context.Context) string {
	if ctx.Value(uncountedKey{}) != nil {
		return uncounted
	}
	return relay.CallerOf(ctx)
}

// serverCounts counts the upstreams that clients, or groups of clients, have reserved. Bridge.mu
// guards it.
type serverCounts struct {
	opts *Options
	// open counts the current connections to the server.
	open     *atomic.Int64
	total    int
	byCaller map[string]int
}

// reserve reserves an upstream for a caller, or returns an error if a limit is reached. Only the
// limit for all callers applies to the caller "".
func (n *serverCounts) reserve(caller string) *relay.RejectedError {
	switch {
	case caller == uncounted:
		return nil
	case caller != "" && n.byCaller[caller] >= n.opts.MaxServersPerCaller:
		return newRejectedError(http.StatusTooManyRequests, "too many sessions with this server for one caller: end one, or wait until one expires")
	// open includes the connections that are closing, and those of uncounted clients.
	case n.total >= n.opts.MaxServers, n.open.Load() >= 2*int64(n.opts.MaxServers+maxUncounted):
		return newRejectedError(http.StatusServiceUnavailable, "too many sessions with this server")
	}
	n.total++
	if caller != "" {
		sparse.Set(&n.byCaller, caller, n.byCaller[caller]+1)
	}
	return nil
}

// release releases a reservation of reserve.
func (n *serverCounts) release(caller string) {
	if caller == uncounted {
		return
	}
	n.total--
	if caller == "" {
		return
	}
	if n.byCaller[caller]--; n.byCaller[caller] <= 0 {
		delete(n.byCaller, caller)
	}
}

// overLimit reports if the limit for all callers, or the limit for this one, is reached.
func (n *serverCounts) overLimit(caller string) (all, own bool) {
	if caller == uncounted {
		return false, false
	}
	return n.total >= n.opts.MaxServers, caller != "" && n.byCaller[caller] >= n.opts.MaxServersPerCaller
}

// sessionRetryAfter is the Retry-After of a rejected session.
const sessionRetryAfter = 10 * time.Second

func newRejectedError(status int, why string) *relay.RejectedError {
	return &relay.RejectedError{Status: status, RetryAfter: sessionRetryAfter, Reason: why}
}

// timeoutFor returns how long a request may go without a response, progress or an input request.
// Zero means no limit. For handshakes it is ConnectTimeout.
func (o *Options) timeoutFor(method string) time.Duration {
	switch method {
	case mcp.MethodInitialize, mcp.MethodDiscover:
		return max(o.ConnectTimeout, 0)
	case mcp.MethodSubscriptionsListen:
		return 0
	}
	return max(o.CallTimeout, 0)
}

// An expirer gives up calls that timed out.
type expirer interface{ expire(c *call) }

// startTimer calls expire of e when the timeout of the call is over, unless a user is logging in.
// The timeout counts from the time when the request arrived.
func (c *call) startTimer(e expirer) {
	d := c.client.b.opts.timeoutFor(c.method)
	if d == 0 {
		return
	}
	c.timeout = d
	t := c.afterTimeout(max(d-time.Since(c.began), 0), e)
	if !c.timer.CompareAndSwap(nil, t) {
		return // it has fired already, and the user is logging in
	}
	if c.done.Load() {
		t.Stop()
	}
}

// afterTimeout returns a timer that calls expire of e after d, or later if a user is logging in.
func (c *call) afterTimeout(d time.Duration, e expirer) *time.Timer {
	return time.AfterFunc(d, func() {
		left := c.client.b.remaining(c.timeout)
		if left <= 0 {
			e.expire(c)
			return
		}
		t := c.afterTimeout(left, e)
		c.timer.Store(t)
		if c.done.Load() {
			t.Stop()
		}
	})
}

// resetTimer restarts the timeout of the call.
func (c *call) resetTimer() {
	if t := c.timer.Load(); t != nil {
		t.Reset(c.timeout)
	}
}

// expire fails a call that timed out.
func (c *call) expire() {
	c.failTimeout(fmt.Errorf("the server has not responded to %s for %v", c.method, c.timeout))
}

// failTimeout fails a call because the server did not answer in time.
func (c *call) failTimeout(err error) {
	c.client.b.metrics.timeouts.Add(1)
	c.client.b.markUnhealthy(err, nil)
	c.fail(jsonrpc.Errorf(jsonrpc.CodeInternalError, "%v", err))
}

// withDialTimeout is withConnectTimeout without the exception for logins, because dialing needs
// none.
func (o *Options) withDialTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.ConnectTimeout < 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, o.ConnectTimeout)
}

// withConnectTimeout returns a context that ends after Options.ConnectTimeout.
func (b *Bridge) withConnectTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return b.withTimeout(ctx, b.opts.ConnectTimeout)
}

// withTimeout is like context.WithTimeoutCause, but a login restarts the timeout, and a negative
// duration means no limit.
func (b *Bridge) withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d < 0 {
		return context.WithCancel(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var timer *time.Timer
	started := make(chan struct{}) // guards timer
	timer = time.AfterFunc(d, func() {
		<-started
		if left := b.remaining(d); left > 0 {
			timer.Reset(left)
			return
		}
		cancel(timeoutError(d))
	})
	close(started)
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}

// remaining returns how much of an expired timeout is left because of a login, or because a server
// could not start at once.
func (b *Bridge) remaining(d time.Duration) time.Duration {
	last := b.opts.LastLogin()
	if waited := b.starting.waited(); d <= b.opts.ConnectTimeout && waited.After(last) {
		last = waited
	}
	return time.Until(last.Add(d))
}

// A timeoutError says that nothing arrived for the duration.
type timeoutError time.Duration

func (e timeoutError) Error() string { return fmt.Sprintf("no data for %v", time.Duration(e)) }

// Is reports that the error is a context.DeadlineExceeded.
func (timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// isTimeout reports if the server did not answer in time.
func isTimeout(err error) bool { return errors.Is(err, context.DeadlineExceeded) }
