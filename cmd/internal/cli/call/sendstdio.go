package call

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
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
	framing capture.Framing
}

// openPipe starts the server and begins to read.
func openPipe(ctx context.Context, d *targets.Dialer) (*pipe, error) {
	p, err := wireclient.StartProcess(ctx, wireclient.Command(d.Flags.Process(&d.Target, d.Tail)), &wireclient.ProcessOptions{
		Stderr: d.Tail, MaxMessage: maxBody, GracePeriod: targets.StopWait,
	})
	if err != nil {
		return nil, err
	}
	framing := capture.FramingLF
	if d.Flags.Framing == jsonrpc.FramingHeader {
		framing = capture.FramingHeader
	}
	return &pipe{p, framing}, nil
}

// sendStdio sends the messages to a stdio server that it starts.
func (v *sender) sendStdio(ctx context.Context, d *targets.Dialer, r mcp.Revision) error {
	p, err := openPipe(ctx, d)
	if err != nil {
		return err
	}
	defer p.Close() // the exit status doesn't matter
	if r != mcp.RevisionNone {
		if err := v.handshake(ctx, d, p, r); err != nil {
			return err
		}
	}
	v.began = time.Now()
	writing, stop := context.WithCancel(ctx)
	written := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { written <- v.writeAll(writing, p) })
	defer wg.Wait()
	defer stop()
	return v.await(ctx, d, p, written)
}

// handshake opens a legacy session.
func (v *sender) handshake(ctx context.Context, d *targets.Dialer, p *pipe, r mcp.Revision) error {
	if _, err := p.Send(ctx, targets.HandshakeRequest(r), p.framing, nil); err != nil {
		return err
	}
	timer := time.NewTimer(targets.OrForever(d.Flags.ConnectTimeout))
	defer timer.Stop()
	for {
		select {
		case in := <-p.Frames():
			switch {
			case in.Err != nil:
				return ended(in.Err)
			case v.skip(&in):
				continue
			}
			if list := envelopes(in.Text); len(list) == 1 && list[0].method == "" && (list[0].answer || !list[0].json) {
				if _, err := v.greeted(in.Text); err != nil {
					return err
				}
				_, err := p.Send(ctx, initialized, p.framing, nil)
				return err
			}
			if err := v.received(in.Text, ""); err != nil {
				return err
			}
		case <-timer.C:
			return exit.Fail(exit.Unreachable, "timeout", "--no-init skips the handshake", d.WithTail(fmt.Errorf("no response to initialize within %v", d.Flags.ConnectTimeout)))
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

// writeAll sends the messages one after the other. It has no timeout: the server may read slowly.
func (v *sender) writeAll(ctx context.Context, p *pipe) error {
	framing := p.framing
	if v.raw {
		framing = capture.FramingNone
	}
	for _, m := range v.messages {
		v.sent(m, "")
		written := make(chan error, 1)
		if _, err := p.Send(ctx, m, framing, func(err error) { written <- err }); err != nil {
			return err
		}
		select {
		case err := <-written:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// await prints messages until there is nothing more to wait for.
func (v *sender) await(ctx context.Context, d *targets.Dialer, p *pipe, written <-chan error) error {
	open := newOutstanding(v.messages)
	idle := time.NewTimer(v.wait)
	defer idle.Stop()
	closed := false
	for {
		select {
		case err := <-written:
			written = nil
			if err != nil {
				d.Notes.Linef("not everything was sent: %s", safe.Clip(err.Error(), 300))
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
			if open.take(in.Text, v.count) && written == nil {
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
			return open.missing(v, d)
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
