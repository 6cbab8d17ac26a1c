package call

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/stdio"
)

// A pipe is a connection to a stdio server.
type pipe struct {
	*wireclient.Process
	v       *sender
	d       *targets.Dialer
	framing capture.Framing
}

// sendStdio sends the messages to a stdio server that it starts.
func (v *sender) sendStdio(ctx context.Context, d *targets.Dialer, r mcp.Revision) error {
	process, err := wireclient.StartProcess(ctx, wireclient.Command(d.Flags.Process(&d.Target, d.Tail)), &wireclient.ProcessOptions{
		Stderr: d.Tail, MaxMessage: maxBody, GracePeriod: targets.StopWait,
	})
	if err != nil {
		return err
	}
	p := &pipe{process, v, d, capture.FramingLF}
	defer p.Close() // the exit status doesn't matter
	if d.Flags.Framing == jsonrpc.FramingHeader {
		p.framing = capture.FramingHeader
	}
	if r != mcp.RevisionNone {
		if err := p.handshake(ctx, r); err != nil {
			return err
		}
	}
	if v.raw {
		p.framing = capture.FramingNone
	}
	v.began = time.Now()
	return p.exchange(ctx)
}

// handshake opens a legacy session.
func (p *pipe) handshake(ctx context.Context, r mcp.Revision) error {
	if _, err := p.Send(ctx, targets.HandshakeRequest(r), p.framing, nil); err != nil {
		return err
	}
	timer := time.NewTimer(targets.OrForever(p.d.Flags.ConnectTimeout))
	defer timer.Stop()
	for {
		select {
		case in := <-p.Frames():
			switch {
			case in.Err != nil:
				return ended(in.Err)
			case p.v.skip(&in):
				continue
			}
			if list := envelopes(in.Text); len(list) == 1 && list[0].method == "" && (list[0].answer || !list[0].json) {
				if _, err := p.v.readHandshake(in.Text); err != nil {
					return err
				}
				_, err := p.Send(ctx, initialized, p.framing, nil)
				return err
			}
			if err := p.v.received(in.Text, ""); err != nil {
				return err
			}
		case <-timer.C:
			return exit.Fail(exit.Unreachable, "timeout", "--no-init skips the handshake", p.d.WithTail(fmt.Errorf("no response to initialize within %v", p.d.Flags.ConnectTimeout)))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// skip reports whether a frame is not printed: a blank line, or a frame of which only the beginning
// was read.
func (v *sender) skip(in *wireclient.Frame) bool {
	if in.Cut {
		v.out.notes.Linef("← %9s  unreadable: a frame of more than %d bytes", v.clock(), maxBody)
	}
	return in.Cut || len(bytes.TrimSpace(in.Text)) == 0
}

// ended returns the error for the end of a server's output.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("the server has closed its output: %w", jsonrpc.ErrClosed)
	}
	return err
}

// exchange sends the messages one after the other, without a timeout, because the server may read
// slowly. Meanwhile it prints what comes back, until there is nothing more to wait for.
func (p *pipe) exchange(ctx context.Context) error {
	v, rest := p.v, p.v.messages
	open := newOutstanding(rest)
	idle := time.NewTimer(v.wait)
	defer idle.Stop()
	// ready gets the result of each write, and before the first one nil.
	ready := make(chan error, 1)
	ready <- nil
	writing, closed := true, false
	for {
		select {
		case err := <-ready:
			if err == nil && len(rest) > 0 {
				v.sent(rest[0], "")
				if _, err = p.Send(ctx, rest[0], p.framing, func(err error) { ready <- err }); err == nil {
					rest = rest[1:]
					continue
				}
			}
			if writing = false; err != nil {
				p.d.Notes.Linef("not everything was sent: %s", safe.Clip(err.Error(), 300))
			}
			idle.Reset(v.wait)
		case in := <-p.Frames():
			switch {
			case in.Err != nil:
				return v.endOf(in.Err, open)
			case v.skip(&in):
				continue
			}
			if err := v.received(in.Text, ""); err != nil {
				return err
			}
			if open.take(in.Text, v.count) && !writing {
				return nil
			}
			idle.Reset(v.wait)
		case <-idle.C:
			// Closing the input may make the server answer half a message.
			if !closed && (open.blind || len(open.ids) > 0) {
				closed = true
				if _, err := p.CloseWrite(); err == nil {
					idle.Reset(v.wait)
					continue
				}
			}
			return open.missing(v, p.d)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// endOf handles the end of the server's output: an error if requests are outstanding, else a note.
func (v *sender) endOf(err error, open *outstanding) error {
	if len(open.ids) > 0 {
		return ended(err)
	}
	text := "the server has closed its output"
	if e, ok := errors.AsType[*stdio.ExitError](err); ok {
		text = targets.ExitText(e).Error()
	}
	v.out.notes.Linef("← %9s  %s", v.clock(), safe.ClipText(text, 4000))
	return nil
}
