package resend

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/trace/frames"
	"mcpwire/stdio"
)

const (
	maxQueued = 64 // messages on their way to a process
	termWait  = time.Second
	killWait  = 2 * time.Second
)

// A stdioConn is a connection to a process.
type stdioConn struct {
	s       *Session
	command []string
	proc    *stdio.Process
	stderr  *stderrRecorder
	out     chan []byte
}

// open implements conn.
func (sc *stdioConn) open(ctx context.Context) error {
	s := sc.s
	sc.out = make(chan []byte, maxQueued)
	sc.stderr = &stderrRecorder{s: s, lines: frames.NewLines(s.rec, capture.Event{Kind: capture.KindStderr, Session: 1}), ready: make(chan struct{})}
	defer close(sc.stderr.ready)
	c := stdio.Command(sc.command[0], sc.command[1:]...)
	c.Dir, c.Env, c.Stderr = s.o.Dir, s.opts.Env, sc.stderr
	c.StopWait, c.TermWait, c.KillWait = -1, termWait, killWait // close waits itself
	proc, err := c.Start(ctx)
	if err != nil {
		return err
	}
	sc.proc = proc
	dir := s.o.Dir
	if dir == "" {
		dir, _ = os.Getwd() // only for the record
	}
	s.record(&capture.Event{Kind: capture.KindStart, Session: 1, Start: &capture.Start{
		Command: slices.Clone(sc.command), Dir: dir, Env: append(os.Environ(), s.opts.Env...), PID: proc.Pid(),
	}})
	s.wg.Go(sc.read)
	s.wg.Go(sc.write)
	return nil
}

// send implements conn.
func (sc *stdioConn) send(ctx context.Context, message []byte) (Sent, error) {
	frame, e := frameMessage(message, sc.s.o.HeaderFraming)
	sent := Sent{N: sc.s.record(e)}
	select {
	case sc.out <- frame:
		return sent, nil
	case <-sc.s.ended:
		return sent, sc.s.endErr
	case <-sc.s.closing:
		return sent, ErrClosed
	case <-ctx.Done():
		return sent, context.Cause(ctx)
	}
}

// write sends the queued messages, then closes the server's input.
func (sc *stdioConn) write() {
	defer func() {
		sc.s.record(&capture.Event{Kind: capture.KindEOF, Dir: capture.ToServer, Session: 1})
		_ = sc.proc.CloseWrite() // the reader reports a server that has ended
	}()
	for {
		var frame []byte
		select {
		case frame = <-sc.out:
		case <-sc.s.closing:
			select {
			case frame = <-sc.out:
			default:
				return
			}
		}
		if _, err := sc.proc.Write(frame); err != nil {
			// Earlier output may still be on its way, so this is not the end.
			sc.s.note("the server did not read everything that was sent")
			<-sc.s.closing
			return
		}
	}
}

// read delivers the output of the server, to its end.
func (sc *stdioConn) read() {
	in := frames.NewReader(sc.proc, sc.s.opts.MaxMessage)
	for {
		f, err := in.Next()
		if err == nil || len(f.Text) > 0 {
			e := f.Event()
			e.Session = 1
			if n := sc.s.record(e); n > 0 {
				sc.s.deliver(&Incoming{N: n, Data: f.Text})
			}
		}
		if err != nil {
			sc.s.record(&capture.Event{Kind: capture.KindEOF, Dir: capture.ToClient, Session: 1})
			sc.s.end(&EndedError{sc.endError(err)})
			return
		}
	}
}

// endError returns the reason for the end of the output.
func (sc *stdioConn) endError(err error) error {
	if !errors.Is(err, io.EOF) {
		return err
	}
	select {
	case <-sc.proc.Done():
		if err := sc.proc.Wait(); err != nil {
			return err
		}
	default:
	}
	return io.EOF
}

// close implements conn. The server gets time to end by itself; output in that time is recorded.
// Output after it must be stopped may be lost.
func (sc *stdioConn) close() {
	if sc.proc == nil {
		return
	}
	timer := time.NewTimer(sc.s.opts.GracePeriod)
	defer timer.Stop()
	select {
	case <-sc.proc.Done():
	case <-timer.C:
	}
	err := sc.proc.Close()
	sc.s.wg.Wait()
	_ = sc.stderr.lines.Close() // never fails
	sc.s.record(&capture.Event{Kind: capture.KindExit, Session: 1, Exit: ExitOf(err)})
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
