package mock

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"mcpwire/jsonrpc"
)

// lastWords is how long a client has to take what it was answered when the server ends.
const lastWords = time.Second

// A pipe is one client on a stream of bytes.
type pipe struct {
	*peer
	f    jsonrpc.Framer
	crew crew // requests under way
}

// Serve answers one client, which speaks by f, until its input ends: then what it has asked for is still answered, within [Options.DrainTimeout]. It returns nil then, the
// cause of ctx when that ended first, what [Server.Err] says, and otherwise the error that reading met. It closes f.
func (s *Server) Serve(ctx context.Context, f jsonrpc.Framer) error {
	l := &lineOutlet{f: f}
	c := &pipe{peer: s.newPeer(l, true), f: f}
	if !s.crew.enter() {
		f.Close()
		return jsonrpc.ErrClosed
	}
	defer s.crew.leave()
	defer c.cancel()
	defer context.AfterFunc(ctx, c.cancel)()
	halted := make(chan struct{})
	halt := context.AfterFunc(c.ctx, func() {
		defer close(halted)
		t := time.NewTimer(lastWords)
		defer t.Stop()
		select {
		case <-c.crew.shut(): // what is answered already is sent
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
func (c *pipe) finish() {
	t := time.NewTimer(c.srv.opts.DrainTimeout)
	defer t.Stop()
	done := c.crew.shut()
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
func (c *pipe) read() error {
	for {
		frame, err := c.f.ReadFrame()
		switch {
		case err == nil:
			c.take(frame)
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

// take takes a frame.
func (c *pipe) take(frame []byte) {
	if jsonrpc.IsBatch(frame) {
		c.batch(frame)
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
		c.tell(frame, &m)
		return
	}
	a := c.begin(&m)
	if a == nil || !c.crew.enter() {
		return
	}
	if a.quick() {
		c.answer(a)
		return
	}
	go c.answer(a)
}

// tell takes what is not answered.
func (c *pipe) tell(frame []byte, m *jsonrpc.Message) {
	if m.Kind == jsonrpc.KindNotification {
		c.Notification(c.ctx, frame, m)
		return
	}
	c.Response(c.ctx, frame, m)
}

// begin accepts a request; nil if it was refused.
func (c *pipe) begin(m *jsonrpc.Message) *play {
	c.modernSeen = c.modernSeen || isModern(m.Params)
	a, err := c.accept(m)
	if err != nil {
		c.reject(m.ID, jsonrpc.ErrorOf(err))
		return nil
	}
	a.out = c.out
	return a
}

// answer answers a request.
func (c *pipe) answer(a *play) {
	defer c.crew.leave()
	defer a.end()
	text, err := a.run()
	if err != nil {
		return
	}
	c.send(text)
	c.follow(a)
}

func (c *pipe) send(text []byte) {
	if err := c.out.Send(text); err != nil && c.ctx.Err() == nil {
		c.srv.opts.Logger.Debug("not sent", "error", err)
	}
}

// reject answers what is no message, if it can be.
func (c *pipe) reject(id jsonrpc.ID, e *jsonrpc.Error) {
	c.srv.opts.Logger.Warn("the client has sent what is no message", "error", clip(e.Message, 256))
	omit := c.rules.Policy(c.modernSeen).OmitNullID
	c.send(jsonrpc.AppendError(nil, id, e, !omit))
}

// batch takes an array of messages, where the revision has them. Its requests are answered in one array.
func (c *pipe) batch(frame []byte) {
	entries, err := jsonrpc.ParseBatch(frame, 0)
	switch {
	case err != nil:
		c.reject(nil, jsonrpc.ErrorOf(err))
		return
	case c.rules.Policy(c.modernSeen).NoBatches:
		c.reject(nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: this revision has no batches; send each message on its own"))
		return
	}
	var plays []*play
	var answers [][]byte
	for i := range entries {
		e := &entries[i]
		switch {
		case e.Invalid != nil:
			answers = append(answers, jsonrpc.AppendError(nil, e.ID, jsonrpc.ErrorOf(e.Invalid), true))
		case e.Kind != jsonrpc.KindRequest:
			c.tell(nil, &e.Message)
		default:
			if a := c.begin(&e.Message); a != nil {
				plays = append(plays, a)
			}
		}
	}
	if len(plays)+len(answers) > 0 && c.crew.enter() {
		go c.answerBatch(plays, answers)
	}
}

func (c *pipe) answerBatch(plays []*play, answers [][]byte) {
	defer c.crew.leave()
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
		c.follow(a)
		a.end()
	}
}

// A lineOutlet writes frames.
type lineOutlet struct {
	mu sync.Mutex
	f  jsonrpc.Framer
}

// Send implements [jsonrpc.Outlet].
func (l *lineOutlet) Send(message []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.WriteFrame(message)
}
