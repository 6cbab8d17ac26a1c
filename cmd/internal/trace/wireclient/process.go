package wireclient

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace/splitter"
	"mcpwire/internal/base/wait"
	"mcpwire/internal/proc/environ"
	"mcpwire/internal/trace/textlines"
	"mcpwire/stdio"
)

// maxQueued limits the messages on their way to a process.
const maxQueued = 64

// A Child is a running server. A [*stdio.Process] is one.
type Child interface {
	io.ReadWriteCloser
	// CloseWrite closes the server's standard input.
	CloseWrite() error
	// Done is closed when the process has ended.
	Done() <-chan struct{}
	// Wait waits for the end and returns a *stdio.ExitError for an unexpected one.
	Wait() error
	Pid() int
}

// A Starter starts a server whose standard error is written to stderr. ctx is for the start only.
type Starter func(ctx context.Context, stderr io.Writer) (Child, error)

// NewCommand returns a command that may take a second to end after SIGTERM, and two after SIGKILL.
// env has additional variables, as "NAME=value".
func NewCommand(command []string, dir string, env []string) *stdio.Cmd {
	c := stdio.Command(command[0], command[1:]...)
	c.Dir, c.Env, c.TermWait, c.KillWait = dir, env, time.Second, 2*time.Second
	return c
}

// Command returns a Starter for a command. The field StopWait is ignored: [Process.Close] waits
// itself, since it records meanwhile.
func Command(cmd *stdio.Cmd) Starter {
	return func(ctx context.Context, stderr io.Writer) (Child, error) {
		c := *cmd
		c.Stderr, c.StopWait = stderr, -1
		p, err := c.Start(ctx)
		if err != nil {
			return nil, err
		}
		return p, nil
	}
}

// ProcessOptions are the options of [StartProcess].
type ProcessOptions struct {
	// Start describes the process in the record. StartProcess sets PID.
	Start capture.Start
	// Session is the number of the session in the record.
	Session uint64
	// Record records an event and returns its number. Several goroutines call it. Nil records
	// nothing.
	Record func(*capture.Event) uint64
	// Stderr receives a copy of standard error. Its errors are ignored. It may be nil.
	Stderr io.Writer
	// MaxMessage limits a frame of the server, in bytes. The rest of a longer one is skipped.
	MaxMessage int
	// MaxOutput limits the output of the server, in bytes. Zero means no limit.
	MaxOutput int
	// GracePeriod is how long the process may take to end after its input was closed.
	GracePeriod time.Duration
}

// A Process is a connection to a server that reads and writes a pipe.
type Process struct {
	opts   *ProcessOptions
	child  Child
	lines  *textlines.Lines
	frames chan Frame
	out    chan queuedFrame
	// closing is closed when Close begins. Nobody reads frames then.
	closing chan struct{}
	// outputEnded is closed at the end of the output. endErr is the reason then.
	outputEnded chan struct{}
	endErr      error
	closeInput  sync.Once
	closeOnce   sync.Once
	exit        Exit
	wg          sync.WaitGroup
}

// A Frame is a line of the server, or anything in the place of one. The receiver owns it.
type Frame struct {
	// Text is the frame without its end and its header. Cut reports that it is only the beginning,
	// because the frame is above ProcessOptions.MaxMessage.
	Text    []byte
	Cut     bool
	Framing capture.Framing
	// N is the number of its event, or 0 if it was not recorded.
	N uint64
	// Err is why the output has ended. Such a frame is empty and the last.
	Err error
}

// A queuedFrame is a frame to write.
type queuedFrame struct {
	data    []byte
	written func(error)
}

// An Exit says how a process ended.
type Exit struct {
	// N is the number of its event.
	N uint64
	// Forced reports that the process did not end within the grace period.
	Forced bool
	// Err is the error of [Child.Wait].
	Err error
}

// StartProcess starts a server. The caller must close the process, and read its frames until then.
func StartProcess(ctx context.Context, start Starter, opts *ProcessOptions) (*Process, error) {
	p := &Process{
		opts: opts, frames: make(chan Frame), out: make(chan queuedFrame, maxQueued),
		closing: make(chan struct{}), outputEnded: make(chan struct{}),
	}
	p.lines = textlines.New(p.record, capture.Event{Kind: capture.KindStderr})
	started := make(chan struct{})
	defer close(started)
	child, err := start(ctx, &stderrWriter{p, started})
	if err != nil {
		return nil, err
	}
	p.child = child
	info := opts.Start
	info.PID = child.Pid()
	p.record(&capture.Event{Kind: capture.KindStart, Start: &info})
	p.wg.Go(p.read)
	p.wg.Go(p.write)
	return p, nil
}

// Child returns the running server.
func (p *Process) Child() Child { return p.child }

// Frames returns the channel of the server's output. The server blocks while nobody reads it. The
// channel is never closed.
func (p *Process) Frames() <-chan Frame { return p.frames }

// Send records a message, and queues it with its framing: FramingHeader puts a header before it,
// FramingLF and FramingCRLF a line end after it, and FramingNone adds nothing. Send returns the
// number of the event. It waits while too many messages are queued. message must not change
// afterwards.
//
// written, if not nil, is called on another goroutine when the pipe has taken the whole message, or
// with the reason why it never will. It is not called for a message that is sent while Close runs.
//
// The error is [ErrClosed], an [*EndedError], or the cause of ctx.
func (p *Process) Send(ctx context.Context, message []byte, framing capture.Framing, written func(error)) (uint64, error) {
	select {
	case <-p.closing:
		return 0, ErrClosed
	default:
	}
	e := &capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: message, Framing: framing}
	data := message
	switch framing {
	case capture.FramingHeader:
		e.Prefix = "Content-Length: " + strconv.Itoa(len(message)) + "\r\n\r\n"
		data = append([]byte(e.Prefix), message...)
	case capture.FramingLF:
		data = append(bytes.Clone(message), '\n')
	case capture.FramingCRLF:
		data = append(bytes.Clone(message), "\r\n"...)
	}
	n := p.record(e)
	select {
	case p.out <- queuedFrame{data, written}:
		return n, nil
	default: // the queue is full
	}
	select {
	case p.out <- queuedFrame{data, written}:
		return n, nil
	case <-p.outputEnded:
		return n, &EndedError{p.endErr}
	case <-p.closing:
		return n, ErrClosed
	case <-ctx.Done():
		return n, context.Cause(ctx)
	}
}

// CloseWrite closes the server's input at once, also while a message is written. It returns the
// number of the event, or 0 if the input was closed before.
func (p *Process) CloseWrite() (n uint64, err error) {
	p.closeInput.Do(func() {
		n = p.record(&capture.Event{Kind: capture.KindEOF, Dir: capture.ToServer})
		err = p.child.CloseWrite()
	})
	return n, err
}

// Close writes the queued messages and closes the server's input. If the process does not end
// within the grace period, it is ended. Output in that time is recorded, but not delivered; output
// after it may be lost. Close returns when everything is recorded. It may be called more than once.
func (p *Process) Close() Exit {
	p.closeOnce.Do(func() {
		close(p.closing)
		p.exit.Forced = !wait.Closed(p.child.Done(), p.opts.GracePeriod)
		p.exit.Err = p.child.Close()
		p.wg.Wait()
		_ = p.lines.Close() // never fails
		p.exit.N = p.record(&capture.Event{Kind: capture.KindExit, Exit: ExitOf(p.exit.Err)})
	})
	return p.exit
}

// write writes the queued messages, then closes the server's input.
func (p *Process) write() {
	defer p.CloseWrite()
	var failed error
	send := func(f queuedFrame) {
		if failed == nil { // a second failure could take long to show
			_, failed = p.child.Write(f.data)
		}
		if f.written != nil {
			f.written(failed)
		}
	}
	for {
		select {
		case f := <-p.out:
			send(f)
			continue
		case <-p.closing:
		}
		for {
			select {
			case f := <-p.out:
				send(f)
			default:
				return
			}
		}
	}
}

// read delivers the output of the server, to its end.
func (p *Process) read() {
	var output io.Reader = p.child
	if p.opts.MaxOutput > 0 {
		output = &limitedReader{output, p.opts.MaxOutput, p.opts.MaxOutput}
	}
	in := splitter.New(capture.ToClient, p.opts.MaxMessage, p.readFrame)
	buf := make([]byte, 64<<10)
	var err error
	for err == nil {
		var n int
		n, err = output.Read(buf)
		in.Write(buf[:n])
	}
	in.Close()
	p.record(&capture.Event{Kind: capture.KindEOF, Dir: capture.ToClient})
	p.endErr = p.outputError(err)
	close(p.outputEnded)
	p.deliver(Frame{Err: p.endErr})
}

// readFrame records and delivers a frame.
func (p *Process) readFrame(e *capture.Event) {
	if len(e.Data) > p.opts.MaxMessage {
		e.Data, e.Cut = e.Data[:p.opts.MaxMessage], true
	}
	n := p.record(e)
	p.deliver(Frame{Text: bytes.Clone(e.Data), Cut: e.Cut, Framing: e.Framing, N: n})
}

// deliver passes a frame to the reader. Once Close has begun, it drops frames.
func (p *Process) deliver(f Frame) {
	select {
	case p.frames <- f:
	case <-p.closing:
	}
}

// outputError returns the reason for the end of the output.
func (p *Process) outputError(err error) error {
	if !errors.Is(err, io.EOF) {
		return err
	}
	select {
	case <-p.child.Done():
		if err := p.child.Wait(); err != nil {
			return err
		}
	default:
	}
	return io.EOF
}

func (p *Process) record(e *capture.Event) uint64 {
	if p.opts.Record == nil {
		return 0
	}
	e.Session = p.opts.Session
	return p.opts.Record(e)
}

// A stderrWriter records standard error by line, after the start of the process.
type stderrWriter struct {
	p       *Process
	started <-chan struct{}
}

// Write implements [io.Writer]. It never fails.
func (w *stderrWriter) Write(b []byte) (int, error) {
	<-w.started
	if w.p.opts.Stderr != nil {
		_, _ = w.p.opts.Stderr.Write(b)
	}
	return w.p.lines.Write(b)
}

// StartOf describes the process of a command, except its PID.
func StartOf(cmd *stdio.Cmd) capture.Start {
	dir := cmd.Dir
	if dir == "" {
		dir, _ = os.Getwd() // the record can do without it
	}
	return capture.Start{Command: slices.Concat([]string{cmd.Path}, cmd.Args), Dir: dir, Env: append(environ.Inherit(cmd.EnvAllow, nil), cmd.Env...)}
}

// ExitOf describes the end of a process by the error of [stdio.Process.Wait].
func ExitOf(err error) *capture.Exit {
	e, ok := errors.AsType[*stdio.ExitError](err)
	if !ok {
		return &capture.Exit{}
	}
	exit := &capture.Exit{Code: e.Code}
	if e.Signal != nil {
		exit.Signal = e.Signal.String()
	}
	return exit
}
