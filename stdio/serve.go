package stdio

import (
	"cmp"
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

// Config configures a server on standard input and output. The zero value is ready to use.
type Config struct {
	// Framing is the framing to use. The zero value detects the client's.
	Framing jsonrpc.Framing
	// MaxFrame limits a message, in bytes. Zero means jsonrpc.DefaultMaxFrame.
	MaxFrame int

	// Logger receives the log of Serve. Nil writes warnings and errors as text to stderr. Serve
	// flushes a LogHandler before it returns.
	Logger *slog.Logger

	// Stdin and Stdout replace the process's standard input and output. Nil means the process's
	// own. Serve leaves them open.
	Stdin, Stdout *os.File

	// KeepSignals leaves SIGINT, SIGTERM and SIGPIPE to the program. Otherwise, while Serve runs,
	// the first SIGINT or SIGTERM acts like the end of input, the second exits the process at once
	// with a shell's status (130 or 143), and SIGPIPE has no effect.
	KeepSignals bool

	// StopTimeout limits how long Serve waits for the server after a signal, after ctx ends, or
	// after the client stops reading. Zero means 15 s. A server has its own deadline to finish
	// accepted requests; this one is for servers that miss theirs.
	StopTimeout time.Duration
}

const (
	defaultStopTimeout = 15 * time.Second
	exitFlushTimeout   = 100 * time.Millisecond // for the log before an exit
)

// errInUse is returned by Serve if another call uses the process's standard input or output.
var errInUse = errors.New("standard input and output are already being served")

// inUse is process-wide because descriptors 0 and 1 are.
var inUse atomic.Bool

// Serve calls Config.Serve with the zero Config.
func Serve(ctx context.Context, srv jsonrpc.Server) error { return new(Config).Serve(ctx, srv) }

// Serve runs srv on standard input and output until the input ends, the client stops reading,
// SIGINT or SIGTERM arrives, or ctx ends. In each case Serve stops reading and srv finishes the
// accepted requests. Serve returns nil, except if ctx ended first (its cause), if srv failed, if
// srv did not finish in time (a *[jsonrpc.DrainError] if srv returns one), or if the descriptors
// are unusable. So a main function exits with status 0 after
//
//	if err := stdio.Serve(ctx, srv); err != nil {
//		log.Fatal(err)
//	}
//
// While Serve runs, output to os.Stdout or descriptor 1 is logged, and os.Stdin is empty (see the
// package documentation), unless the Config names other files.
//
// If srv does not return in time, its goroutine keeps running, and so does a read that the system
// cannot interrupt.
func (c *Config) Serve(ctx context.Context, srv jsonrpc.Server) error {
	log, flush := c.logger()
	defer flush()
	r := &run{config: c, log: log}
	if err := r.open(); err != nil {
		return fmt.Errorf("stdio: %w", err)
	}
	defer r.close()
	return r.serve(ctx, srv)
}

// logger returns the logger and a function that flushes it.
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
	config *Config
	log    *slog.Logger
	stream stream
	guard  *guard
	// ownsStdio is set if this run has set inUse.
	ownsStdio  bool
	clientGone chan struct{}
}

// open opens the streams and installs the guard.
func (r *run) open() (err error) {
	c := r.config
	ownIn, ownOut := c.Stdin == nil, c.Stdout == nil
	if ownIn || ownOut {
		if inUse.Swap(true) {
			return errInUse
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

// close closes the streams and restores the descriptors.
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

func (r *run) serve(ctx context.Context, srv jsonrpc.Server) error {
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
			r.log.Info("signal received: finishing requests in flight; a second signal exits at once", "signal", s.String())
		case <-clientGone:
			clientGone = nil
			r.log.Debug("the client has stopped reading")
			cancel() // nobody reads the responses
		case <-stop:
			stop = nil
		case <-timeout:
			r.log.Error("the server did not stop in time: its goroutines leak", "timeout", r.config.stopTimeout())
			return r.result(&stopError{r.config.stopTimeout(), context.Cause(parent)}, sig)
		}
		r.stream.in.stop()
		if timeout == nil {
			timeout = time.After(r.config.stopTimeout())
		}
	}
}

func (c *Config) stopTimeout() time.Duration {
	return cmp.Or(max(c.StopTimeout, 0), defaultStopTimeout)
}

// result returns the result of Serve after srv has returned err.
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

// isUnfinished reports whether err means that accepted requests were not finished.
func isUnfinished(err error) bool {
	if _, ok := errors.AsType[*stopError](err); ok {
		return true
	}
	_, ok := errors.AsType[*jsonrpc.DrainError](err)
	return ok
}

// A stopError means that a server did not return in time.
type stopError struct {
	after time.Duration
	// cause is the cause of the context's end, or nil if it has not ended.
	cause error
}

func (e *stopError) Error() string {
	return fmt.Sprintf("stdio: the server did not stop within %v: its goroutines leak", e.after)
}

func (e *stopError) Unwrap() error { return e.cause }

// signals returns a channel for the signals that end Serve, and a function that stops the
// notifications.
func (c *Config) signals() (<-chan os.Signal, func()) {
	if c.KeepSignals {
		return nil, func() {}
	}
	stop := make(chan os.Signal, 2)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	// A handler that prints to a closed stderr must not end the server: Go programs die of SIGPIPE
	// on descriptors 1 and 2 unless they are notified of it. Child processes would inherit an
	// ignored signal, but not a notification.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	return stop, func() {
		signal.Stop(stop)
		signal.Stop(pipe)
	}
}

// exit flushes the log and exits with the status that the signal would cause.
func (r *run) exit(s os.Signal) {
	status := 1
	if n, ok := s.(syscall.Signal); ok {
		status = 128 + int(n)
	}
	r.log.Warn("second signal: exiting at once", "signal", s.String())
	flushLog(r.log, exitFlushTimeout)
	os.Exit(status)
}

// An input is the source of requests. One goroutine may read at a time. Any goroutine may call the
// other methods.
type input interface {
	// Read waits in the runtime's poller if that supports the descriptor, so that a waiting
	// goroutine holds no processor.
	Read(p []byte) (int, error)
	// ReadIdle waits in one blocking read(2), which is cheapest if nothing else in the process
	// needs the processor.
	ReadIdle(p []byte) (int, error)
	// stop makes current and future reads return io.EOF.
	stop()
	// Close stops the input and releases its descriptors.
	Close() error
}

// An output is the sink of messages.
type output interface {
	// Write writes all of p and waits for room if necessary.
	Write(p []byte) (int, error)
	// tryWrite writes what fits without waiting. If that is less than len(p), the error is nil.
	tryWrite(p []byte) (int, error)
	// Close interrupts a Write if the system supports that, and releases the descriptors.
	Close() error
}

// A stream combines an input and an output for a framer.
type stream struct {
	in  input
	out output
	// broken is set when the client has stopped reading.
	broken atomic.Bool
	// onBroken is called once when broken is set.
	onBroken func()
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
