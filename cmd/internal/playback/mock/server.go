package mock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/base/defaults"
	"mcpwire/internal/era"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/internal/rpc"
	"mcpwire/internal/rpc/relay"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// Options are the options of [New]. nil and the zero value mean defaults.
type Options struct {
	// Latency is the response time.
	Latency Latency
	// Once uses each recorded response once. Further requests are not in the capture then.
	Once bool
	// Loose also accepts, if the params do not match, a recorded request of the same method with
	// the same tool, prompt, resource or task.
	Loose bool
	// Strict ends the server at a request that is not in the capture.
	Strict bool
	// Faults are the faults to inject.
	Faults []*Fault
	// Seed seeds the random numbers: the same seed and the same sequence of requests produce the
	// same faults.
	Seed uint64

	// ClientTimeout limits the wait for a client's response to an input request. Zero means 5 min.
	ClientTimeout time.Duration

	// Logger receives log messages. nil discards them.
	Logger *slog.Logger
}

const (
	drainTimeout = 10 * time.Second // for pending requests when a client's input ends
	maxInFlight  = 1024             // pending requests of a client; more are rejected
)

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	defaults.IfNotPositive(&d.ClientTimeout, 5*time.Minute)
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	return d
}

// Latency is the response time of a server. The zero value means no delay.
type Latency struct {
	// Keep uses the recorded delay of each message.
	Keep bool
	// Fixed is the delay of each response, unless Keep is set.
	Fixed time.Duration
}

// ParseLatency parses "keep", "fast", or a duration such as "200ms".
func ParseLatency(s string) (Latency, error) {
	switch s {
	case "keep":
		return Latency{Keep: true}, nil
	case "fast":
		return Latency{}, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return Latency{}, fmt.Errorf("want keep, fast, or a duration such as 200ms")
	}
	return Latency{Fixed: d}, nil
}

// ErrMissed is the reason for the end of a strict server: it got a request that is not in the
// capture.
var ErrMissed = errors.New("mock: request not in the capture")

// An ExitError is the reason for the end of a server that a fault ended.
type ExitError struct{ Code int }

func (e *ExitError) Error() string {
	return fmt.Sprintf("mock: a fault stops the server with status %d", e.Code)
}

// A Server answers clients from a [Recording]. Use [New] to create one; the caller must close it.
type Server struct {
	recording *Recording
	opts      Options
	misses    atomic.Uint64

	// ctx ends with the server. Its cause is the reason.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// waitCtx ends when the server stops waiting for clients.
	waitCtx context.Context
	drain   context.CancelFunc
	// activity counts the goroutines that work after responses.
	activity activity

	// mu guards the fields below and the state of faults.
	mu       sync.Mutex
	assigned map[*session]int
	chance   *rand.Rand
}

// New returns a server. opts may be nil; New copies it.
func New(t *Recording, opts *Options) *Server {
	s := &Server{recording: t, opts: opts.withDefaults(), assigned: map[*session]int{}}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.waitCtx, s.drain = context.WithCancel(s.ctx)
	s.chance = rand.New(rand.NewPCG(s.opts.Seed, 0x6d6f636b))
	faults := make([]*Fault, len(s.opts.Faults))
	for i, f := range s.opts.Faults {
		own := *f
		own.seen = 0
		faults[i] = &own
	}
	s.opts.Faults = faults
	return s
}

// Misses returns the number of requests that were not in the capture.
func (s *Server) Misses() uint64 { return s.misses.Load() }

// Ended returns a context that ends when the server is closed or ends for the reason in
// [Server.Err].
func (s *Server) Ended() context.Context { return s.ctx }

// Err returns the reason if the server has ended by itself: [ErrMissed] or an *[ExitError].
// Otherwise it returns nil.
func (s *Server) Err() error {
	err := context.Cause(s.ctx)
	if _, exit := errors.AsType[*ExitError](err); exit || errors.Is(err, ErrMissed) {
		return err
	}
	return nil
}

// Close cancels all activity and waits for its end. It may be called more than once.
func (s *Server) Close() {
	s.cancel(jsonrpc.ErrClosed)
	<-s.activity.close()
}

// assignSession returns the recorded session for a client: for the first test that a session
// passes, the one assigned least often.
func (s *Server) assignSession(suits ...func(*session) bool) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ok := range suits {
		var best *session
		for _, x := range s.recording.sessions {
			if ok(x) && (best == nil || s.assigned[x] < s.assigned[best]) {
				best = x
			}
		}
		if best != nil {
			s.assigned[best]++
			return best
		}
	}
	return nil
}

// assignLegacy returns the recorded session for a client that sends initialize. It prefers a
// session with the client's name and offered revision.
func (s *Server) assignLegacy(params []byte) *session {
	offered, _ := mcp.ParseRevision(era.LookupString(params, "protocolVersion"))
	name := clip.String(clientOf(params), 256)
	initialized := func(x *session) bool { return x.initialize != nil && x.initialize.hasResponse && !x.initialize.failed }
	negotiated := func(x *session) bool { return initialized(x) && x.revision == offered }
	return s.assignSession(
		func(x *session) bool { return negotiated(x) && x.client == name },
		negotiated,
		func(x *session) bool { return initialized(x) && x.client == name },
		initialized,
		func(x *session) bool { return x.initialize != nil },
	)
}

// assignModern returns the recorded session for a modern client on a byte stream.
func (s *Server) assignModern() *session {
	return s.assignSession(func(x *session) bool { return x.modern && !x.http })
}

// Eras reports in which eras the capture has responses.
func (r *Recording) Eras() (legacy, modern bool) { return len(r.legacy) > 0, len(r.modern) > 0 }

// Translate returns a bridge to the server for clients of the era without answers in the capture.
// Close it before the server. A translated request must match a recorded one.
func (s *Server) Translate(downstream bridge.Era) (*bridge.Bridge, error) {
	far := bridge.EraModern
	if downstream == bridge.EraModern {
		far = bridge.EraLegacy
	}
	return bridge.New(&bridge.Options{Connect: s.connect, Name: s.recording.Name, ClientEra: downstream, ServerEra: far, CallTimeout: -1, Logger: s.opts.Logger})
}

// connect opens a connection to the server within the process.
func (s *Server) connect(context.Context, io.Writer) (jsonrpc.Framer, error) {
	local, far := net.Pipe()
	framing := &jsonrpc.FramerOptions{Framing: jsonrpc.FramingLine}
	if !s.activity.begin() {
		return nil, jsonrpc.ErrClosed
	}
	go func() {
		defer s.activity.done()
		if err := s.Serve(s.ctx, jsonrpc.NewFramer(far, framing)); err != nil && s.ctx.Err() == nil {
			s.opts.Logger.Debug("connection ended", "error", err)
		}
	}()
	return jsonrpc.NewFramer(local, framing), nil
}

// A Handler serves a [Server] over HTTP, with the sessions, streams and checks of package
// streamable. Use [Server.Handler] to create one. It is safe for concurrent use.
type Handler struct {
	srv     *Server
	handler *streamable.Handler
}

// Handler returns a handler for clients of the revisions with answers in the capture. o may be nil.
// Shut it down before the server is closed. The error is that of invalid options.
func (s *Server) Handler(o *streamable.Options) (*Handler, error) {
	var opts streamable.Options
	if o != nil {
		opts = *o
	}
	opts.StreamAlways = opts.StreamAlways || s.recording.streams
	h, err := streamable.NewHandler(&relay.Server{Handler: httpHandler{s}}, &opts)
	if err != nil {
		return nil, err
	}
	return &Handler{s, h}, nil
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	h.srv.serveWithFaults(h.handler, rw, r)
}

// SSE returns a handler for the HTTP+SSE transport, see [streamable.Handler.SSE].
func (h *Handler) SSE(messages string) http.Handler {
	handler := h.handler.SSE(messages)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { h.srv.serveWithFaults(handler, rw, r) })
}

// Shutdown ends streams, rejects further requests and waits for pending ones, see
// [streamable.Handler.Shutdown]. It cancels requests that wait without a response.
func (h *Handler) Shutdown(ctx context.Context) error {
	h.srv.drain()
	return h.handler.Shutdown(ctx)
}

// An httpHandler implements [relay.Handler] for the server, with its Serve method.
type httpHandler struct{ *Server }

// Revisions implements relay.Handler.
func (h httpHandler) Revisions() []mcp.Revision { return h.recording.Revisions() }

// Stateless implements relay.Handler.
func (h httpHandler) Stateless() relay.Peer {
	if len(h.recording.modern) == 0 {
		return nil
	}
	return h.newConn(nil, false)
}

// Session implements relay.Handler.
func (h httpHandler) Session(_ context.Context, out rpc.Sender) relay.Peer {
	return h.newConn(out, false)
}
