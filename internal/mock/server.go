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
