package mock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"mcpwire/internal/era"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// ErrMissed is why a strict server has ended: it was asked for what is not in the capture.
var ErrMissed = errors.New("mock: asked for what is not in the capture")

// An ExitError is why a server has ended that a fault has told to.
type ExitError struct{ Code int }

func (e *ExitError) Error() string {
	return fmt.Sprintf("mock: a fault ends the server with status %d", e.Code)
}

// A Server answers clients from a [Tape]. Make one with [New], and close it in the end.
type Server struct {
	tape   *Tape
	opts   Options
	misses atomic.Uint64

	ctx    context.Context // ends with the server; its cause is why
	cancel context.CancelCauseFunc
	quiet  context.Context // ends when clients are not waited for any more
	drain  context.CancelFunc
	crew   crew // what goes on behind answers

	mu     sync.Mutex // what follows, and the state of faults
	given  map[*session]int
	chance *rand.Rand
}

// New returns a server. opts may be nil; it is copied. The error is a *[FaultError].
func New(t *Tape, opts *Options) (*Server, error) {
	s := &Server{tape: t, opts: opts.withDefaults(), given: map[*session]int{}}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.quiet, s.drain = context.WithCancel(s.ctx)
	s.chance = rand.New(rand.NewPCG(s.opts.Seed, 0x6d6f636b))
	faults := make([]*Fault, len(s.opts.Faults))
	for i, f := range s.opts.Faults {
		faults[i] = f.fresh()
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
	<-s.crew.shut()
}

// stop ends the server by itself.
func (s *Server) stop(why error) { s.cancel(why) }

// bind returns the recorded session that a client is given: one that suits it and was given away least often, the first of them.
func (s *Server) bind(suits ...func(*session) bool) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ok := range suits {
		var best *session
		for _, x := range s.tape.sessions {
			if ok(x) && (best == nil || s.given[x] < s.given[best]) {
				best = x
			}
		}
		if best != nil {
			s.given[best]++
			return best
		}
	}
	return nil
}

// bindLegacy returns the recorded session for a client that shakes hands: best of all, one in which a client of its name agreed on the revision that it offers.
func (s *Server) bindLegacy(params []byte) *session {
	var offered mcp.Revision
	if era.IsObject(params) {
		offered, _ = mcp.ParseRevision(era.LookupString(params, "protocolVersion"))
	}
	name := clip(clientOf(params), 256)
	shook := func(x *session) bool { return x.hello != nil && x.hello.done && !x.hello.failed }
	agreed := func(x *session) bool { return shook(x) && x.revision == offered }
	return s.bind(
		func(x *session) bool { return agreed(x) && x.client == name },
		agreed,
		func(x *session) bool { return shook(x) && x.client == name },
		shook,
		func(x *session) bool { return x.hello != nil },
	)
}

// bindModern returns the recorded session for a client on a pipe that does not shake hands.
func (s *Server) bindModern() *session {
	return s.bind(func(x *session) bool { return x.modern && !x.http })
}
