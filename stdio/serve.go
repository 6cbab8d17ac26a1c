package stdio

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"mcpwire/jsonrpc"
)

// A Server answers what a framer reads. *server.Server is one.
type Server interface {
	// Serve runs until the framer's input ends, what it accepted is answered or its own deadline for that has passed, or until ctx ends.
	Serve(ctx context.Context, f jsonrpc.Framer) error
}

// Config says how a server is run on standard input and output. The zero value is ready to use.
type Config struct {
	Framing  jsonrpc.Framing // the default takes the client's
	MaxFrame int             // bytes; 0 is jsonrpc.DefaultMaxFrame

	// Logger gets what Serve itself has to say. nil writes warnings and errors as text to stderr. If its handler is a LogHandler, Serve flushes it.
	Logger *slog.Logger

	// Stdin and Stdout take the place of the process's own, which nil means. Serve leaves them open.
	Stdin, Stdout *os.File

	// KeepSignals leaves SIGINT, SIGTERM and SIGPIPE to the program. Otherwise the first SIGINT or SIGTERM is the end of input, a second ends the
	// process at once, with the status a shell would show (130 or 143), and SIGPIPE does nothing, as long as Serve runs.
	KeepSignals bool

	// StopTimeout is how long Serve waits for the server after a signal, or after ctx ended, before it returns without it. 0 is 15 s. The server
	// has a deadline of its own for finishing what it accepted; this one is for servers that do not keep to theirs.
	StopTimeout time.Duration
}

const (
	defaultStopTimeout = 15 * time.Second
	exitFlushTimeout   = 100 * time.Millisecond // for the log, when the process is about to end
)

// ErrInUse is returned by Serve when another call of it has the process's standard input or output.
var ErrInUse = errors.New("standard input and output are being served already")

// inUse is process-wide because descriptors 0 and 1 are.
var inUse atomic.Bool

// Serve is Config.Serve with the defaults.
func Serve(ctx context.Context, srv Server) error { return new(Config).Serve(ctx, srv) }

// Serve runs srv on standard input and output until the input ends or the client stops reading,
// SIGINT or SIGTERM arrives, or ctx ends. In each case reading stops and srv finishes what it has
// accepted. The result is nil except when ctx ended first (its cause), when srv failed, when it did
// not finish in time (a *[jsonrpc.DrainError], if it says so), or when the descriptors are
// unusable; so a main function exits with status 0 after
//
//	if err := stdio.Serve(ctx, srv); err != nil {
//		log.Fatal(err)
//	}
//
// While it runs, what is written to os.Stdout or descriptor 1 is logged instead, and os.Stdin is empty (see the package documentation), unless
// the Config names other files.
//
// If srv does not return in time, its goroutine is left behind; so is a read that the system has no way to interrupt.
func (c *Config) Serve(ctx context.Context, srv Server) error {
	log, flush := c.logger()
	defer flush()
	r := &run{config: c, log: log}
	if err := r.open(); err != nil {
		return fmt.Errorf("stdio: %w", err)
	}
	defer r.close()
	return r.serve(ctx, srv)
}

// logger returns the logger and what flushes it.
func (c *Config) logger() (*slog.Logger, func()) {
	if c.Logger == nil {
		h := NewLogHandler(os.Stderr, &LogOptions{Level: slog.LevelWarn})
		return slog.New(h), func() { h.Close() }
	}
	return c.Logger, func() { flushLog(c.Logger, closeFlushTimeout) }
}

func flushLog(log *slog.Logger, d time.Duration) {
	if h, ok := log.Handler().(interface{ Flush(context.Context) error }); ok {
		ctx, cancel := context.WithTimeout(context.Background(), d)
		defer cancel()
		h.Flush(ctx)
	}
}

// A run is one call of Serve.
type run struct {
	config     *Config
	log        *slog.Logger
	stream     stream
	guard      *guard
	ownsStdio  bool // of inUse
	clientGone chan struct{}
}

// open takes the descriptors and puts the guard in their place.
func (r *run) open() (err error) {
	c := r.config
	ownIn, ownOut := c.Stdin == nil, c.Stdout == nil
	if ownIn || ownOut {
		if inUse.Swap(true) {
			return ErrInUse
		}
		r.ownsStdio = true
	}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if r.stream.in, err = openInput(c.Stdin); err != nil {
		return fmt.Errorf("stdin: %w", err)
	}
	if r.stream.out, err = openOutput(c.Stdout); err != nil {
		return fmt.Errorf("stdout: %w", err)
	}
	r.clientGone = make(chan struct{})
	r.stream.onBroken = func() { close(r.clientGone) }
	r.guard = newGuard(r.log, ownIn, ownOut)
	return nil
}

// close gives everything back.
func (r *run) close() {
	if r.stream.in != nil {
		r.stream.in.Close()
	}
	if r.stream.out != nil {
		r.stream.out.Close()
	}
	if r.guard != nil {
		r.guard.release()
	}
	if r.ownsStdio {
		inUse.Store(false)
	}
}

func (r *run) serve(ctx context.Context, srv Server) error {
	parent := ctx
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	signals, restoreSignals := r.config.signals()
	defer restoreSignals()

	framer := jsonrpc.NewFramer(&r.stream, &jsonrpc.FramerOptions{Framing: r.config.Framing, MaxFrame: r.config.MaxFrame})
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ctx, framer) }()

	clientGone, stop := r.clientGone, ctx.Done()
	var sig os.Signal
	var timeout <-chan time.Time
	for {
		select {
		case err := <-ended:
			if err == nil && stop == nil {
				err = context.Cause(parent)
			}
			return r.result(err, sig)
		case s := <-signals:
			if sig != nil {
				r.exit(s)
			}
			sig = s
			r.log.Info("signal received: finishing what is under way; a second one ends the process at once", "signal", s.String())
		case <-clientGone:
			clientGone = nil
			r.log.Debug("the client has stopped reading")
			cancel() // nobody is left to answer
		case <-stop:
			stop = nil
		case <-timeout:
			r.log.Error("the server did not stop in time and is left behind", "timeout", r.config.stopTimeout())
			return r.result(&stopError{r.config.stopTimeout(), context.Cause(parent)}, sig)
		}
		r.stream.in.stop()
		if timeout == nil {
			timer := time.NewTimer(r.config.stopTimeout())
			defer timer.Stop()
			timeout = timer.C
		}
	}
}

func (c *Config) stopTimeout() time.Duration {
	if c.StopTimeout <= 0 {
		return defaultStopTimeout
	}
	return c.StopTimeout
}

// result says what Serve returns when srv has returned err.
func (r *run) result(err error, sig os.Signal) error {
	switch {
	case r.stream.broken.Load():
		return nil
	case sig != nil:
		if isUnfinished(err) {
			return err
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			r.log.Warn("the server stopped with an error", "error", err)
		}
		return nil
	}
	return err
}

// isUnfinished reports whether err says that something accepted was not finished.
func isUnfinished(err error) bool {
	if _, ok := errors.AsType[*stopError](err); ok {
		return true
	}
	_, ok := errors.AsType[*jsonrpc.DrainError](err)
	return ok
}

// A stopError says that a server was left behind.
type stopError struct {
	after time.Duration
	cause error // of the end of the context; nil if that has not ended
}

func (e *stopError) Error() string {
	return fmt.Sprintf("stdio: the server did not stop within %v and was left behind", e.after)
}

func (e *stopError) Unwrap() error { return e.cause }

// signals returns the channel on which the signals that end Serve arrive, and what gives them back to the program.
func (c *Config) signals() (<-chan os.Signal, func()) {
	if c.KeepSignals {
		return nil, func() {}
	}
	stop := make(chan os.Signal, 2)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	// A handler that prints to a closed stderr must not end the server: Go programs die of SIGPIPE on descriptors 1 and 2, unless somebody listens
	// for it. Ignoring it would be inherited by child processes; listening is not.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	return stop, func() {
		signal.Stop(stop)
		signal.Stop(pipe)
	}
}

// exit ends the process as the signal would have, except that the log is flushed.
func (r *run) exit(s os.Signal) {
	status := 1
	if n, ok := s.(syscall.Signal); ok {
		status = 128 + int(n)
	}
	r.log.Warn("second signal: exiting at once", "signal", s.String())
	flushLog(r.log, exitFlushTimeout)
	os.Exit(status)
}

// An input is where requests come from. One goroutine reads at a time; the other methods may be called by any.
type input interface {
	// Read waits in the runtime's poller where there is one for the descriptor: a waiting goroutine holds no processor.
	Read(p []byte) (int, error)
	// ReadIdle is the cheapest way to wait, one blocking read(2). It is for when nothing else in the process needs the processor.
	ReadIdle(p []byte) (int, error)
	// stop makes reads, those under way included, return io.EOF.
	stop()
	// Close stops the input and gives its descriptors back.
	Close() error
}

// An output is where replies go.
type output interface {
	// Write writes all of p, waiting as long as that takes.
	Write(p []byte) (int, error)
	// tryWrite writes what can be written without waiting. It returns less than len(p) with a nil error if that is not all.
	tryWrite(p []byte) (int, error)
	// Close interrupts a Write where the system has a way to, and gives the descriptors back.
	Close() error
}

// A stream joins the two for a framer.
type stream struct {
	in       input
	out      output
	broken   atomic.Bool // the client does not read any more
	onBroken func()      // called when broken becomes true
}

func (s *stream) Read(p []byte) (int, error)     { return s.in.Read(p) }
func (s *stream) ReadIdle(p []byte) (int, error) { return s.in.ReadIdle(p) }

func (s *stream) Write(p []byte) (int, error) {
	n, err := s.out.Write(p)
	if err != nil && isBrokenPipe(err) && !s.broken.Swap(true) {
		s.onBroken()
	}
	return n, err
}

func (s *stream) Close() error { return errors.Join(s.in.Close(), s.out.Close()) }
