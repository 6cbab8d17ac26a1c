package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/stdio"
)

// A frameRead is a result of reading a server's standard output.
type frameRead struct {
	frame []byte
	err   error
}

// A pipe is a connection to a stdio server.
type pipe struct {
	process *stdio.Process
	framer  jsonrpc.Framer
	framing jsonrpc.Framing
	frames  chan frameRead
	done    chan struct{}
	wg      sync.WaitGroup
}

// openPipe starts the server and begins to read.
func openPipe(ctx context.Context, d *dialer) (*pipe, error) {
	child, err := d.flags.process(&d.target, d.tail).Start(ctx)
	if err != nil {
		return nil, err
	}
	framing := d.flags.framing
	if framing == jsonrpc.FramingAuto {
		framing = jsonrpc.FramingLine
	}
	p := &pipe{
		process: child, framing: framing, framer: jsonrpc.NewFramer(child, &jsonrpc.FramerOptions{Framing: framing}),
		frames: make(chan frameRead), done: make(chan struct{}),
	}
	p.wg.Go(p.read)
	return p, nil
}

// read passes the server's frames to p.frames until its output ends or the pipe is closed.
func (p *pipe) read() {
	for {
		frame, err := p.framer.ReadFrame()
		select {
		case p.frames <- frameRead{bytes.Clone(frame), err}:
		case <-p.done:
			return
		}
		if _, odd := errors.AsType[*jsonrpc.FrameError](err); err != nil && !odd {
			return
		}
	}
}

// close stops the server and waits for it.
func (p *pipe) close() {
	close(p.done)
	_ = p.process.Close() // the exit status doesn't matter
	p.wg.Wait()
}

// framed returns a message with its framing.
func (p *pipe) framed(message []byte) []byte {
	if p.framing == jsonrpc.FramingHeader {
		head := "Content-Length: " + strconv.Itoa(len(message)) + "\r\n\r\n"
		return append([]byte(head), message...)
	}
	return append(bytes.Clone(message), '\n')
}

// sendStdio sends the messages to a stdio server that it starts.
func (v *sender) sendStdio(ctx context.Context, d *dialer, r mcp.Revision) error {
	p, err := openPipe(ctx, d)
	if err != nil {
		return err
	}
	defer p.close()
	stop := context.AfterFunc(ctx, func() { p.process.Close() })
	defer stop()
	if r != mcp.RevisionNone {
		if err := v.handshake(ctx, d, p, r); err != nil {
			return err
		}
	}
	v.began = time.Now()
	written := make(chan error, 1)
	p.wg.Go(func() { written <- v.writeAll(p) })
	return v.await(ctx, d, p, written)
}

// handshake opens a legacy session.
func (v *sender) handshake(ctx context.Context, d *dialer, p *pipe, r mcp.Revision) error {
	if _, err := p.process.Write(p.framed(initializeRequest(r))); err != nil {
		return err
	}
	timer := time.NewTimer(orForever(d.flags.connectTimeout))
	defer timer.Stop()
	for {
		select {
		case in := <-p.frames:
			if in.err != nil {
				return ended(in.err)
			}
			if list := envelopes(in.frame); len(list) == 1 && list[0].method == "" && (list[0].answer || !list[0].json) {
				if _, err := v.greeted(in.frame); err != nil {
					return err
				}
				_, err := p.process.Write(p.framed(jsonrpc.AppendNotification(nil, mcp.NotificationInitialized, nil)))
				return err
			}
			if err := v.received(in.frame, ""); err != nil {
				return err
			}
		case <-timer.C:
			return fail(exitUnreachable, "timeout", "--no-init skips the handshake", d.withTail(fmt.Errorf("no response to initialize within %v", d.flags.connectTimeout)))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ended returns the error for the end of a server's output.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("the server has closed its output: %w", jsonrpc.ErrClosed)
	}
	return err
}

// writeAll sends the messages one after the other. It has no timeout: the server may read slowly.
func (v *sender) writeAll(p *pipe) error {
	for _, m := range v.messages {
		data := m
		if !v.raw {
			data = p.framed(m)
		}
		v.sent(m, "")
		if _, err := p.process.Write(data); err != nil {
			return err
		}
	}
	return nil
}

// await prints messages until there is nothing more to wait for.
func (v *sender) await(ctx context.Context, d *dialer, p *pipe, written <-chan error) error {
	open := newOutstanding(v.messages)
	idle := time.NewTimer(v.wait)
	defer idle.Stop()
	closed := false
	for {
		select {
		case err := <-written:
			written = nil
			if err != nil {
				d.notes.linef("not everything was sent: %s", clipLine(err.Error(), 300))
			}
			idle.Reset(v.wait)
		case in := <-p.frames:
			if odd, ok := errors.AsType[*jsonrpc.FrameError](in.err); ok {
				d.notes.linef("← %9s  unreadable: %s", v.clock(), clipLine(odd.Error(), 300))
				continue
			}
			if in.err != nil {
				return v.endOf(in.err, open)
			}
			if err := v.received(in.frame, ""); err != nil {
				return err
			}
			if open.take(in.frame, v.count) && written == nil {
				return nil
			}
			idle.Reset(v.wait)
		case <-idle.C:
			// Closing the input may make the server answer half a message.
			if !closed && (open.blind || len(open.ids) > 0) && p.process.CloseWrite() == nil {
				closed = true
				idle.Reset(v.wait)
				continue
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
		text = exitText(e).Error()
	}
	v.out.notes.linef("← %9s  %s", v.clock(), clipText(text, 4000))
	return nil
}
