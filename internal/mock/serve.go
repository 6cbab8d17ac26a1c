package mock

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"mcpwire/jsonrpc"
)

// closeTimeout is how long a client has to take what it was answered when the server ends.
const closeTimeout = time.Second

// A pipe is one client on a stream of bytes.
type streamConn struct {
	*conn
	framer   jsonrpc.Framer
	activity activity // requests under way
}

// Serve answers one client, which speaks by f, until its input ends: then what it has asked for is still answered, within [Options.DrainTimeout]. It returns nil then, the
// cause of ctx when that ended first, what [Server.Err] says, and otherwise the error that reading met. It closes f.
func (s *Server) Serve(ctx context.Context, f jsonrpc.Framer) error {
	l := &frameSender{f: f}
	c := &streamConn{conn: s.newConn(l, true), framer: f}
	if !s.activity.begin() {
		f.Close()
		return jsonrpc.ErrClosed
	}
	defer s.activity.done()
	defer c.cancel()
	defer context.AfterFunc(ctx, c.cancel)()
	halted := make(chan struct{})
	halt := context.AfterFunc(c.ctx, func() {
		defer close(halted)
		t := time.NewTimer(closeTimeout)
		defer t.Stop()
		select {
		case <-c.activity.close(): // what is answered already is sent
		case <-t.C: // to a client that reads
		}
		f.Close()
	})
	err := c.read()
	c.drain()
	c.finish()
	if halt() {
		f.Close()
	} else {
		<-halted
	}
	switch {
	case s.ctx.Err() != nil:
		return context.Cause(s.ctx)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}

// finish waits for what is under way when the input has ended.
func (c *streamConn) finish() {
	t := time.NewTimer(c.srv.opts.DrainTimeout)
	defer t.Stop()
	done := c.activity.close()
	select {
	case <-done:
	case <-t.C:
		c.cancel()
		<-done
	case <-c.ctx.Done():
		<-done
	}
}

// read takes messages until the input ends.
func (c *streamConn) read() error {
	for {
		frame, err := c.framer.ReadFrame()
		switch {
		case err == nil:
			c.handleFrame(frame)
		case errors.Is(err, io.EOF):
			return nil
		default:
			var bad *jsonrpc.FrameError
			var call *jsonrpc.CallError
			if errors.As(err, &bad) {
				c.reject(nil, &jsonrpc.Error{Code: bad.Code, Message: bad.Reason})
				continue
			}
			if errors.As(err, &call) || errors.Is(err, jsonrpc.ErrGap) {
				continue
			}
			return err
		}
		if c.ctx.Err() != nil {
			return nil
		}
	}
}

// handleFrame takes a frame.
func (c *streamConn) handleFrame(frame []byte) {
	if jsonrpc.IsBatch(frame) {
		c.handleBatch(frame)
		return
	}
	var m jsonrpc.Message
	if err := jsonrpc.Parse(frame, &m, 0); err != nil {
		if m.Kind != jsonrpc.KindResponse && m.Kind != jsonrpc.KindError {
			c.reject(m.ID, jsonrpc.ErrorOf(err))
		}
		return
	}
	if m.Kind != jsonrpc.KindRequest {
		c.handleOneWay(frame, &m)
		return
	}
	a := c.begin(&m)
	if a == nil || !c.activity.begin() {
		return
	}
	if a.isImmediate() {
		c.respond(a)
		return
	}
	go c.respond(a)
}

// handleOneWay takes what is not answered.
func (c *streamConn) handleOneWay(frame []byte, m *jsonrpc.Message) {
	if m.Kind == jsonrpc.KindNotification {
		c.Notification(c.ctx, frame, m)
		return
	}
	c.Response(c.ctx, frame, m)
}

// begin accepts a request; nil if it was refused.
func (c *streamConn) begin(m *jsonrpc.Message) *responder {
	c.modernSeen = c.modernSeen || isModern(m.Params)
	a, err := c.accept(m)
	if err != nil {
		c.reject(m.ID, jsonrpc.ErrorOf(err))
		return nil
	}
	a.out = c.out
	return a
}

// respond answers a request.
func (c *streamConn) respond(r *responder) {
	defer c.activity.done()
	defer r.end()
	text, err := r.run()
	if err != nil {
		return
	}
	c.send(text)
	c.sendTrailing(r)
}

func (c *streamConn) send(text []byte) {
	if err := c.out.Send(text); err != nil && c.ctx.Err() == nil {
		c.srv.opts.Logger.Debug("not sent", "error", err)
	}
}

// reject answers what is no message, if it can be.
func (c *streamConn) reject(id jsonrpc.ID, e *jsonrpc.Error) {
	c.srv.opts.Logger.Warn("the client has sent what is no message", "error", clip(e.Message, 256))
	omit := c.rules.Policy(c.modernSeen).OmitNullID
	c.send(jsonrpc.AppendError(nil, id, e, !omit))
}

// handleBatch takes an array of messages, where the revision has them. Its requests are answered in one array.
func (c *streamConn) handleBatch(frame []byte) {
	entries, err := jsonrpc.ParseBatch(frame, 0)
	switch {
	case err != nil:
		c.reject(nil, jsonrpc.ErrorOf(err))
		return
	case c.rules.Policy(c.modernSeen).NoBatches:
		c.reject(nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: this revision has no batches; send each message on its own"))
		return
	}
	var plays []*responder
	var answers [][]byte
	for i := range entries {
		e := &entries[i]
		switch {
		case e.Invalid != nil:
			answers = append(answers, jsonrpc.AppendError(nil, e.ID, jsonrpc.ErrorOf(e.Invalid), true))
		case e.Kind != jsonrpc.KindRequest:
			c.handleOneWay(nil, &e.Message)
		default:
			if a := c.begin(&e.Message); a != nil {
				plays = append(plays, a)
			}
		}
	}
	if len(plays)+len(answers) > 0 && c.activity.begin() {
		go c.respondBatch(plays, answers)
	}
}

func (c *streamConn) respondBatch(plays []*responder, answers [][]byte) {
	defer c.activity.done()
	for _, a := range plays {
		if text, err := a.run(); err == nil {
			answers = append(answers, text)
		}
	}
	if len(answers) > 0 {
		all := []byte("[")
		for i, text := range answers {
			if i > 0 {
				all = append(all, ',')
			}
			all = append(all, text...)
		}
		c.send(append(all, ']'))
	}
	for _, a := range plays {
		c.sendTrailing(a)
		a.end()
	}
}

// A frameSender writes frames.
type frameSender struct {
	mu sync.Mutex
	f  jsonrpc.Framer
}

// Send implements [jsonrpc.Sender].
func (s *frameSender) Send(message []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.f.WriteFrame(message)
}
