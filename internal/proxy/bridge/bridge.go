package bridge

import (
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
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// ErrClosed is what [Bridge.Serve] returns when the bridge was closed before.
var ErrClosed = errors.New("bridge: closed")

// A Bridge connects clients to one server. Make one with [New], and close it in the end. It may be used by many goroutines at once.
type Bridge struct {
	opts            Options
	instance        string // part of ids that the bridge makes up
	ctx             context.Context
	cancel          context.CancelFunc
	wg              sync.WaitGroup
	recording       *recording    // nil if nothing is recorded
	callCount       atomic.Uint64 // of clients, ever
	metrics         metrics
	openConnections atomic.Int64 // connections to the server
	health          health
	eras            eraCache

	mu             sync.Mutex
	closed         bool
	draining       bool
	clients        map[*client]struct{}
	servers        serverCounts
	pool           map[string]*sharedUpstream // by what is different between those who share
	detecting      *sharedAttempt             // nil unless it is being found out what the server is
	failedProbe    *eraProbe                  // with its line, which has found nobody; both may be nil
	failedUpstream *upstream
}

// New returns a bridge. Nothing is connected before there is something to send. The error says what is wrong with the options.
func New(o *Options) (*Bridge, error) {
	if o == nil || o.Connect == nil {
		return nil, errors.New("bridge: Options.Connect is missing")
	}
	b := &Bridge{opts: o.withDefaults(), instance: rand.Text()[:8], clients: map[*client]struct{}{}, pool: map[string]*sharedUpstream{}}
	b.recording = newRecording(b.opts.Record)
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b, nil
}

// Close ends all clients and connections to the server, and waits until the server's processes have ended: no longer than the connections take for it.
func (b *Bridge) Close() error {
	b.mu.Lock()
	b.closed, b.draining = true, true
	clients := make([]*client, 0, len(b.clients))
	for cl := range b.clients {
		clients = append(clients, cl)
	}
	b.mu.Unlock()
	for _, cl := range clients {
		cl.close()
	}
	b.mu.Lock()
	rest := slices.Collect(maps.Values(b.pool))
	if b.failedUpstream != nil {
		b.failedUpstream.close()
	}
	b.mu.Unlock()
	for _, s := range rest {
		s.idleTimer.Stop()
		s.handler.close()
	}
	timer := time.AfterFunc(closeTimeout, b.cancel)
	b.wg.Wait()
	timer.Stop()
	b.cancel()
	return nil
}

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

// serverCounts counts the connections to the server that clients, or what they share, have or may make. The zero value is ready to use. It is guarded by the Bridge's lock.
type serverCounts struct {
	total    int
	byCaller map[string]int // by caller
}

// reserveLocked counts a connection to the server for a caller, "" for one who is not limited, unless there are too many.
func (b *Bridge) reserveLocked(caller string) *streamable.RejectedError {
	n := &b.servers
	switch {
	case caller != "" && n.byCaller[caller] >= b.opts.MaxServersPerCaller:
		return newRejectedError(http.StatusTooManyRequests, "too many sessions with this server for one caller: end one, or wait until one has expired")
	case n.total >= b.opts.MaxServers, b.openConnections.Load() >= 2*int64(b.opts.MaxServers): // those that are ending count too
		return newRejectedError(http.StatusServiceUnavailable, "too many sessions with this server")
	}
	n.total++
	if caller != "" {
		if n.byCaller == nil {
			n.byCaller = map[string]int{}
		}
		n.byCaller[caller]++
	}
	return nil
}

// flushLocked takes back what reserveLocked did.
func (b *Bridge) releaseLocked(caller string) {
	n := &b.servers
	n.total--
	if caller == "" {
		return
	}
	if n.byCaller[caller]--; n.byCaller[caller] <= 0 {
		delete(n.byCaller, caller)
	}
}

// overLimitLocked reports for whom another connection to the server would be too many: all, or the caller.
func (b *Bridge) overLimitLocked(caller string) (all, own bool) {
	return b.servers.total >= b.opts.MaxServers, caller != "" && b.servers.byCaller[caller] >= b.opts.MaxServersPerCaller
}

// sessionRetryAfter is how long a client is asked to wait for room for its session.
const sessionRetryAfter = 10 * time.Second

func newRejectedError(status int, why string) *streamable.RejectedError {
	return &streamable.RejectedError{Status: status, RetryAfter: sessionRetryAfter, Reason: why}
}

// timeoutFor is how long a request may go without an answer, progress or question; 0 is for ever. What belongs to connecting has the time for that as a whole.
func (o *Options) timeoutFor(method string) time.Duration {
	switch method {
	case mcp.MethodInitialize, mcp.MethodDiscover:
		return max(o.ConnectTimeout, 0)
	case mcp.MethodSubscriptionsListen:
		return 0
	}
	return max(o.CallTimeout, 0)
}

// startTimer has expire called when nothing was heard of the call for too long, unless a user is about to log in. It counts from when the client has sent it.
func (c *call) startTimer(expire func()) {
	b := c.client.b
	d := b.opts.timeoutFor(c.method)
	if d == 0 {
		return
	}
	c.timeout = d
	t := time.AfterFunc(d, func() {
		if left := b.remaining(d); left > 0 {
			c.timer.Load().Reset(left)
			return
		}
		expire()
	})
	c.timer.Store(t)
	t.Reset(max(d-time.Since(c.began), 0)) // not before, since it may be now
	if c.done.Load() {
		t.Stop()
	}
}

// resetTimer gives the call the whole time again.
func (c *call) resetTimer() {
	if t := c.timer.Load(); t != nil {
		t.Reset(c.timeout)
	}
}

// expire fails a call that was watched in vain.
func (c *call) expire() {
	c.failTimeout(fmt.Errorf("the server has not answered %s for %v", c.method, c.timeout))
}

// failTimeout fails a call because the server has said nothing.
func (c *call) failTimeout(err error) {
	c.client.b.metrics.timeouts.Add(1)
	c.client.b.markUnhealthy(err)
	c.fail(jsonrpc.Errorf(jsonrpc.CodeInternalError, "%v", err))
}

// withDialTimeout is withConnectTimeout without regard to users who log in: a connection by itself needs none.
func (b *Bridge) withDialTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if b.opts.ConnectTimeout < 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, b.opts.ConnectTimeout)
}

// withConnectTimeout returns a context that ends when the time for a connection is over.
func (b *Bridge) withConnectTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return b.withTimeout(ctx, b.opts.ConnectTimeout)
}

// withTimeout is context.WithTimeoutCause, but that a user who has logged in meanwhile has the whole time afterwards, and that a negative time
// is for ever.
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

// remaining is how much is left of a time that has passed, because a user had to log in meanwhile.
func (b *Bridge) remaining(d time.Duration) time.Duration {
	return time.Until(b.opts.LastLogin().Add(d))
}

// timeoutError is the error of who has waited in vain for as long.
type timeoutError time.Duration

func (e timeoutError) Error() string { return fmt.Sprintf("nothing came for %v", time.Duration(e)) }

// Is makes it a deadline that was exceeded.
func (timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// isTimeout reports whether an error is that the server has said nothing in time.
func isTimeout(err error) bool { return errors.Is(err, context.DeadlineExceeded) }
