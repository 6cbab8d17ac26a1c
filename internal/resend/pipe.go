package resend

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/frames"
	"mcpwire/stdio"
)

const (
	maxQueued = 64 // messages on their way to a process
	termWait  = time.Second
	killWait  = 2 * time.Second
)

// A pipe is a link to a process.
type pipe struct {
	s       *Session
	command []string
	proc    *stdio.Process
	err     *lines
	out     chan []byte
}

// open implements link.
func (p *pipe) open(ctx context.Context) error {
	s := p.s
	p.out = make(chan []byte, maxQueued)
	p.err = &lines{s: s, lines: s.rec.Lines(capture.Event{Kind: capture.KindStderr, Session: 1}), ready: make(chan struct{})}
	defer close(p.err.ready)
	c := stdio.Command(p.command[0], p.command[1:]...)
	c.Dir, c.Env, c.Stderr = s.o.Dir, s.opts.Env, p.err
	c.StopWait, c.TermWait, c.KillWait = -1, termWait, killWait // close waits itself
	proc, err := c.Start(ctx)
	if err != nil {
		return err
	}
	p.proc = proc
	dir := s.o.Dir
	if dir == "" {
		dir, _ = os.Getwd() // it is only for the record
	}
	s.record(&capture.Event{Kind: capture.KindStart, Session: 1, Start: &capture.Start{
		Command: slices.Clone(p.command), Dir: dir, Env: append(os.Environ(), s.opts.Env...), PID: proc.Pid(),
	}})
	s.wg.Go(p.read)
	s.wg.Go(p.write)
	return nil
}

// send implements link.
func (p *pipe) send(ctx context.Context, message []byte) (Sent, error) {
	frame, e := framed(message, p.s.o.Framed)
	sent := Sent{N: p.s.record(e)}
	select {
	case p.out <- frame:
		return sent, nil
	case <-p.s.ended:
		return sent, p.s.endErr
	case <-p.s.closing:
		return sent, ErrClosed
	case <-ctx.Done():
		return sent, context.Cause(ctx)
	}
}

// write sends what is queued, and ends the server's input behind it.
func (p *pipe) write() {
	defer func() {
		p.s.record(&capture.Event{Kind: capture.KindEOF, Dir: capture.ToServer, Session: 1})
		_ = p.proc.CloseWrite() // of a server that has ended already, whoever reads hears
	}()
	for {
		var frame []byte
		select {
		case frame = <-p.out:
		case <-p.s.closing:
			select {
			case frame = <-p.out:
			default:
				return
			}
		}
		if _, err := p.proc.Write(frame); err != nil {
			// What it wrote before may be on its way still, so this is not the end.
			p.s.note("the server did not take all of what was sent")
			<-p.s.closing
			return
		}
	}
}

// read hands over what the server writes, until that ends.
func (p *pipe) read() {
	in := frames.NewReader(p.proc, p.s.opts.MaxMessage)
	for {
		f, err := in.Next()
		if err == nil || len(f.Text) > 0 {
			e := f.Event()
			e.Session = 1
			if n := p.s.record(e); n > 0 {
				p.s.deliver(&Incoming{N: n, Data: f.Text})
			}
		}
		if err != nil {
			p.s.record(&capture.Event{Kind: capture.KindEOF, Dir: capture.ToClient, Session: 1})
			p.s.end(&EndedError{p.endOf(err)})
			return
		}
	}
}

// endOf is why the output has ended.
func (p *pipe) endOf(err error) error {
	if !errors.Is(err, io.EOF) {
		return err
	}
	select {
	case <-p.proc.Done():
		if err := p.proc.Wait(); err != nil {
			return err
		}
	default:
	}
	return io.EOF
}

// close implements link. The server has time to end by itself, and what it says meanwhile is recorded; of one that has to be told to, what comes then may not be.
func (p *pipe) close() {
	if p.proc == nil {
		return
	}
	timer := time.NewTimer(p.s.opts.StopWait)
	defer timer.Stop()
	select {
	case <-p.proc.Done():
	case <-timer.C:
	}
	err := p.proc.Close()
	p.s.wg.Wait()
	_ = p.err.lines.Close() // it never fails
	p.s.record(&capture.Event{Kind: capture.KindExit, Session: 1, Exit: ExitOf(err)})
}

// ExitOf is how a process ended, by what [stdio.Process.Wait] has returned.
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
