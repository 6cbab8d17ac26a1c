package stdio

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/defaults"
	"mcpwire/internal/wait"
)

// SuperviseOptions are the options of Supervise. The zero value is ready to use.
type SuperviseOptions struct {
	// MinBackoff is the wait before the first restart. It doubles with each consecutive failure.
	// Zero means 200 ms.
	MinBackoff time.Duration
	// MaxBackoff limits that wait. Zero means 30 s.
	MaxBackoff time.Duration
	// StableAfter is the age from which the end of a process does not count as a failure. After
	// [Supervisor.Served] it never does. Zero means 30 s.
	StableAfter time.Duration
	// MaxFailures is the number of consecutive failures after which the supervisor gives up. Zero
	// means 8; negative means no limit.
	MaxFailures int
	// ConnectTimeout limits the connect function. Zero means 30 s.
	ConnectTimeout time.Duration

	// Logger receives the starts and ends of processes. Nil discards them.
	Logger *slog.Logger
}

func (o *SuperviseOptions) setDefaults() {
	defaults.IfNotPositive(&o.MinBackoff, 200*time.Millisecond)
	defaults.IfNotPositive(&o.MaxBackoff, 30*time.Second)
	defaults.IfNotPositive(&o.StableAfter, 30*time.Second)
	defaults.IfNotPositive(&o.ConnectTimeout, 30*time.Second)
	o.MaxFailures = cmp.Or(o.MaxFailures, 8)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// Phase is a phase of a Supervisor.
type Phase int

// The phases.
const (
	PhaseStarting Phase = iota // starting a process or connecting to it
	PhaseRunning
	PhaseWaiting // until the next start
	PhaseGaveUp
	PhaseClosed
)

func (p Phase) String() string {
	names := [...]string{"starting", "running", "waiting", "gave up", "closed"}
	if p < 0 || int(p) >= len(names) {
		return fmt.Sprintf("Phase(%d)", int(p))
	}
	return names[p]
}

// SupervisorState is a snapshot of a Supervisor's state.
type SupervisorState struct {
	Phase Phase
	// Since is the start of the phase.
	Since time.Time
	// Pid is the id of the process, or 0 without one.
	Pid int
	// Starts counts the attempts to start a process.
	Starts int
	// Failures counts the consecutive failures.
	Failures int
	// LastErr is the reason why the last process ended or could not be started. It is nil at first.
	LastErr error
	// NextStart is the time of the next start in PhaseWaiting.
	NextStart time.Time
}

// A GaveUpError is returned by a Supervisor that has given up.
type GaveUpError struct {
	Failures int
	// Last is the last failure, often an *ExitError with the end of the server's standard error.
	Last error
}

func (e *GaveUpError) Error() string {
	return fmt.Sprintf("gave up after %d failures in a row: %v", e.Failures, e.Last)
}

func (e *GaveUpError) Unwrap() error { return e.Last }

// ErrSupervisorClosed is returned by Supervisor.Conn after Close.
var ErrSupervisorClosed = errors.New("stdio: supervisor is closed")

// A childProcess is the part of a Process that a Supervisor uses.
type childProcess interface {
	Pid() int
	Done() <-chan struct{}
	Wait() error
	Close() error
}

// A Supervisor restarts a server when its process ends and connects to the new process. C is the
// type of a connection. Multiple goroutines may call its methods at once.
type Supervisor[C any] struct {
	start   func(context.Context) (childProcess, error)
	connect func(context.Context, childProcess) (C, error)
	opts    SuperviseOptions
	// random returns a number in [0, 1).
	random func() float64

	cancel context.CancelFunc
	wg     sync.WaitGroup

	// served is set if the current process has answered a request.
	served atomic.Bool

	mu    sync.Mutex
	state SupervisorState
	conn  C
	// changed is closed and replaced when state changes.
	changed chan struct{}
}

// Supervise starts a server with start, such as (*Cmd).Start, and starts it again whenever its
// process ends. The wait before is MinBackoff, doubled for each consecutive failure up to
// MaxBackoff, minus a random part of up to half, so that many servers do not restart in step. A
// failure is a failed start, a failed connect, or a process that ends before StableAfter without
// having served (see [Supervisor.Served]). After MaxFailures of them the supervisor gives up.
//
// Supervise calls connect for each process. It returns the value for Conn, typically after it has
// wrapped the process in a connection and done the handshake. Its context ends with the process,
// after ConnectTimeout, and with Close. If connect fails, the supervisor closes the process.
// connect does not own the process, but it or the user of the connection may close it; the
// supervisor then starts another one.
//
// Calls in flight fail when their process ends, because reads from it return an *ExitError.
func Supervise[C any](start func(context.Context) (*Process, error), connect func(context.Context, *Process) (C, error), opts *SuperviseOptions) *Supervisor[C] {
	return newSupervisor(
		func(ctx context.Context) (childProcess, error) {
			p, err := start(ctx)
			if err != nil {
				return nil, err
			}
			return p, nil
		},
		func(ctx context.Context, p childProcess) (C, error) { return connect(ctx, p.(*Process)) },
		opts, rand.Float64)
}

func newSupervisor[C any](start func(context.Context) (childProcess, error), connect func(context.Context, childProcess) (C, error), opts *SuperviseOptions, random func() float64) *Supervisor[C] {
	s := &Supervisor[C]{start: start, connect: connect, random: random, changed: make(chan struct{})}
	if opts != nil {
		s.opts = *opts
	}
	s.opts.setDefaults()
	s.state.Since = time.Now()
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.wg.Go(func() { s.run(ctx) })
	return s
}

// run starts processes until Close or until the supervisor gives up.
func (s *Supervisor[C]) run(ctx context.Context) {
	for {
		err := s.runOnce(ctx)
		if ctx.Err() != nil {
			s.updateState(func(st *SupervisorState) { st.Phase = PhaseClosed })
			return
		}
		failures := s.State().Failures
		if s.opts.MaxFailures > 0 && failures >= s.opts.MaxFailures {
			s.opts.Logger.Error("server is no longer restarted", "failures", failures, "error", err)
			s.updateState(func(st *SupervisorState) { st.Phase = PhaseGaveUp })
			return
		}
		delay := wait.Backoff(s.opts.MinBackoff, s.opts.MaxBackoff, failures, s.random())
		s.opts.Logger.Warn("server restarted", "in", delay, "failures", failures, "error", err)
		s.updateState(func(st *SupervisorState) {
			st.Phase, st.NextStart = PhaseWaiting, time.Now().Add(delay)
		})
		wait.Sleep(ctx, delay)
	}
}

// runOnce runs one process to its end, records whether that is a failure, and returns the reason.
func (s *Supervisor[C]) runOnce(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.updateState(func(st *SupervisorState) {
		st.Phase, st.NextStart = PhaseStarting, time.Time{}
		st.Starts++
	})
	p, err := s.start(ctx)
	if err != nil {
		return s.recordEnd(err, false)
	}
	defer p.Close()
	s.updateState(func(st *SupervisorState) { st.Pid = p.Pid() })
	conn, err := s.connectTo(ctx, p)
	if err != nil {
		return s.recordEnd(err, false)
	}
	s.served.Store(false)
	s.updateState(func(st *SupervisorState) { st.Phase, s.conn = PhaseRunning, conn })
	s.opts.Logger.Info("server is running", "pid", p.Pid())
	stable := false
	timer := time.NewTimer(s.opts.StableAfter)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			stable = true
			s.updateState(func(st *SupervisorState) { st.Failures = 0 })
		case <-p.Done():
			if err = p.Wait(); err == nil {
				err = errors.New("the server was closed")
			}
			return s.recordEnd(err, stable || s.served.Load())
		case <-ctx.Done():
			return s.recordEnd(ctx.Err(), stable)
		}
	}
}

// Served records that the running server has answered a request. The end of the process is then not
// a failure, and earlier failures are forgotten. Call it with each answer, or with the first of
// each process; repeated calls are cheap.
func (s *Supervisor[C]) Served() {
	if s.served.Load() || s.served.Swap(true) {
		return
	}
	s.updateState(func(st *SupervisorState) {
		if st.Phase == PhaseRunning {
			st.Failures = 0
		}
	})
}

// recordEnd records the end of a process or a failed start. It counts as a failure unless stable is
// set.
func (s *Supervisor[C]) recordEnd(err error, stable bool) error {
	var none C
	s.updateState(func(st *SupervisorState) {
		st.Phase, st.Pid, st.LastErr, s.conn = PhaseWaiting, 0, err, none
		if !stable {
			st.Failures++
		}
	})
	return err
}

// connectTo calls connect. If the process ends meanwhile, the error wraps the reason.
func (s *Supervisor[C]) connectTo(ctx context.Context, p childProcess) (C, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.opts.ConnectTimeout, fmt.Errorf("no connection within %v", s.opts.ConnectTimeout))
	defer cancel()
	ctx, ended := context.WithCancelCause(ctx)
	connected := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-p.Done():
			ended(p.Wait())
		case <-connected:
		}
	})
	conn, err := s.connect(ctx, p)
	close(connected)
	wg.Wait()
	defer ended(nil)
	if err != nil {
		// The cause says more than "context canceled".
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", err, cause)
		}
		return conn, fmt.Errorf("connect: %w", err)
	}
	return conn, nil
}

// updateState changes the state with f and wakes the goroutines that wait for a change.
func (s *Supervisor[C]) updateState(f func(*SupervisorState)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.state.Phase
	f(&s.state)
	if s.state.Phase != before {
		s.state.Since = time.Now()
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// State returns the current state.
func (s *Supervisor[C]) State() SupervisorState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Conn returns the connection to the running server and waits until there is one. It fails with the
// cause of ctx, a *GaveUpError or ErrSupervisorClosed. The server may end right after Conn returns.
func (s *Supervisor[C]) Conn(ctx context.Context) (C, error) {
	var none C
	for {
		s.mu.Lock()
		conn, state, changed := s.conn, s.state, s.changed
		s.mu.Unlock()
		switch state.Phase {
		case PhaseRunning:
			return conn, nil
		case PhaseGaveUp:
			return none, &GaveUpError{state.Failures, state.LastErr}
		case PhaseClosed:
			return none, ErrSupervisorClosed
		}
		select {
		case <-changed:
		case <-ctx.Done():
			err := context.Cause(ctx)
			if state.LastErr != nil {
				err = fmt.Errorf("%w; the server's last failure: %w", err, state.LastErr)
			}
			return none, err
		}
	}
}

// Close ends the server's process like Process.Close and waits for the end of everything. It may be
// called more than once.
func (s *Supervisor[C]) Close() error {
	s.cancel()
	s.wg.Wait()
	s.updateState(func(st *SupervisorState) { st.Phase = PhaseClosed })
	return nil
}
