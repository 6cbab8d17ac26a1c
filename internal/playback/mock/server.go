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

	"mcpwire/internal/era"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// Options are the options of [New]. The zero value is ready to use, and what nil means.
type Options struct {
	// Latency says how time passes.
	Latency Latency
	// Once has each recorded answer given once: who asks more often than was recorded asks for what is not in the capture.
	Once bool
	// Loose takes, for want of one with the same params, a request of the same method about the same tool, prompt, resource or task.
	Loose bool
	// Strict ends the server when it is asked for what is not in the capture.
	Strict bool
	// Faults are what goes wrong.
	Faults []*Fault
	// Seed is what chance depends on: the same seed, and the same requests in the same order, meet the same faults.
	Seed uint64

	ClientTimeout time.Duration // for a client to answer what it is asked; 0 is 5 min
	DrainTimeout  time.Duration // for requests under way when a client's input ends; 0 is 10 s
	MaxInFlight   int           // requests of one client under way at once; 0 is 1024. Further ones are refused

	Logger *slog.Logger // nil discards
}

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	if d.ClientTimeout <= 0 {
		d.ClientTimeout = 5 * time.Minute
	}
	if d.DrainTimeout <= 0 {
		d.DrainTimeout = 10 * time.Second
	}
	if d.MaxInFlight <= 0 {
		d.MaxInFlight = 1024
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	return d
}

// A Latency says how long a server takes. The zero Latency is no time at all.
type Latency struct {
	Keep  bool          // as long as it took when it was recorded, for each message that it sends
	Fixed time.Duration // for each answer, unless Keep is set
}

// ParseLatency reads "keep", "fast", or a duration such as "200ms".
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

// ErrMissed is why a strict server has ended: it was asked for what is not in the capture.
var ErrMissed = errors.New("mock: asked for what is not in the capture")

// An ExitError is why a server has ended that a fault has told to.
type ExitError struct{ Code int }

func (e *ExitError) Error() string {
	return fmt.Sprintf("mock: a fault ends the server with status %d", e.Code)
}

// A Server answers clients from a [Recording]. Make one with [New], and close it in the end.
type Server struct {
	recording *Recording
	opts      Options
	misses    atomic.Uint64

	ctx      context.Context // ends with the server; its cause is why
	cancel   context.CancelCauseFunc
	waitCtx  context.Context // ends when clients are not waited for any more
	drain    context.CancelFunc
	activity activity // what goes on behind answers

	mu       sync.Mutex // what follows, and the state of faults
	assigned map[*session]int
	chance   *rand.Rand
}

// New returns a server. opts may be nil; it is copied. The error is a *[FaultError].
func New(t *Recording, opts *Options) (*Server, error) {
	s := &Server{recording: t, opts: opts.withDefaults(), assigned: map[*session]int{}}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.waitCtx, s.drain = context.WithCancel(s.ctx)
	s.chance = rand.New(rand.NewPCG(s.opts.Seed, 0x6d6f636b))
	faults := make([]*Fault, len(s.opts.Faults))
	for i, f := range s.opts.Faults {
		faults[i] = f.clone()
	}
	s.opts.Faults = faults
	return s, nil
}

// Misses returns how many requests were not in the capture.
func (s *Server) Misses() uint64 { return s.misses.Load() }

// Ended returns a context that ends with the server: when it is closed, or for what [Server.Err] says.
func (s *Server) Ended() context.Context { return s.ctx }

// Err returns why the server has ended by itself: [ErrMissed], or an *[ExitError]; nil if it has not.
func (s *Server) Err() error {
	err := context.Cause(s.ctx)
	if _, exit := errors.AsType[*ExitError](err); exit || errors.Is(err, ErrMissed) {
		return err
	}
	return nil
}

// Close gives up what is under way, and waits until it has ended. It may be called more than once.
func (s *Server) Close() {
	s.cancel(jsonrpc.ErrClosed)
	<-s.activity.close()
}

// stop ends the server by itself.
func (s *Server) stop(why error) { s.cancel(why) }

// assignSession returns the recorded session that a client is given: one that suits it and was given away least often, the first of them.
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

// assignLegacy returns the recorded session for a client that shakes hands: best of all, one in which a client of its name agreed on the revision that it offers.
func (s *Server) assignLegacy(params []byte) *session {
	var offered mcp.Revision
	if era.IsObject(params) {
		offered, _ = mcp.ParseRevision(era.LookupString(params, "protocolVersion"))
	}
	name := clip(clientOf(params), 256)
	shook := func(x *session) bool { return x.initialize != nil && x.initialize.hasResponse && !x.initialize.failed }
	agreed := func(x *session) bool { return shook(x) && x.revision == offered }
	return s.assignSession(
		func(x *session) bool { return agreed(x) && x.client == name },
		agreed,
		func(x *session) bool { return shook(x) && x.client == name },
		shook,
		func(x *session) bool { return x.initialize != nil },
	)
}

// assignModern returns the recorded session for a client on a pipe that does not shake hands.
func (s *Server) assignModern() *session {
	return s.assignSession(func(x *session) bool { return x.modern && !x.http })
}

// Eras reports in which eras the capture has answers.
func (r *Recording) Eras() (legacy, modern bool) { return len(r.legacy) > 0, len(r.modern) > 0 }

// Translate returns a bridge to the server for clients of the era that the capture has no answers in. It is to be closed before the server. Requests reach the server translated, so
// they match if what they become is what was recorded.
func (s *Server) Translate(downstream bridge.Era) (*bridge.Bridge, error) {
	far := bridge.EraModern
	if downstream == bridge.EraModern {
		far = bridge.EraLegacy
	}
	return bridge.New(&bridge.Options{Connect: s.connect, Name: s.recording.Name, ClientEra: downstream, ServerEra: far, CallTimeout: -1, Logger: s.opts.Logger})
}

// connect opens a connection to the server within the process.
func (s *Server) connect(context.Context, io.Writer) (jsonrpc.Framer, error) {
	near, far := net.Pipe()
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
	return jsonrpc.NewFramer(near, framing), nil
}

// A Handler serves a [Server] over HTTP, with the sessions, streams and checks of package streamable. Make one with [Server.Handler]. It may be used by many goroutines at once.
type Handler struct {
	srv     *Server
	handler *streamable.Handler
}

// Handler returns a handler for clients of the revisions that the capture has answers in. o may be nil. Shut it down before the server is closed.
func (s *Server) Handler(o *streamable.Options) (*Handler, error) {
	var opts streamable.Options
	if o != nil {
		opts = *o
	}
	opts.StreamAlways = opts.StreamAlways || s.recording.streams
	h, err := streamable.NewRelay(relay{s}, &opts)
	if err != nil {
		return nil, err
	}
	return &Handler{s, h}, nil
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	h.srv.serveWithFaults(h.handler, rw, r)
}

// SSE returns a handler for the older transport, see [streamable.Handler.SSE].
func (h *Handler) SSE(messages string) http.Handler {
	handler := h.handler.SSE(messages)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { h.srv.serveWithFaults(handler, rw, r) })
}

// Shutdown ends streams, refuses further requests and waits for those under way, see [streamable.Handler.Shutdown]. What is held back for ever is given up.
func (h *Handler) Shutdown(ctx context.Context) error {
	h.srv.drain()
	return h.handler.Shutdown(ctx)
}

// A relay is the server as package streamable wants it.
type relay struct{ s *Server }

// Revisions implements streamable.Relay.
func (r relay) Revisions() []mcp.Revision { return r.s.recording.Revisions() }

// Stateless implements streamable.Relay.
func (r relay) Stateless() streamable.RelayPeer {
	if len(r.s.recording.modern) == 0 {
		return nil
	}
	return r.s.newConn(nil, false)
}

// Session implements streamable.Relay.
func (r relay) Session(_ context.Context, out jsonrpc.Sender) streamable.RelayPeer {
	return r.s.newConn(out, false)
}

// Serve implements streamable.Relay.
func (r relay) Serve(ctx context.Context, f jsonrpc.Framer) error { return r.s.Serve(ctx, f) }
