package bridge

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"mcpwire/jsonrpc"
)

// Serve bridges one client, which speaks by f, until its input ends; then what it has asked for is still answered, for as long as Options.DrainTimeout lets it, or ctx. It
// returns nil then, the cause of ctx when that ended first, ErrClosed on a bridge that is closed or has no room, and otherwise the error that reading met. It closes f.
func (b *Bridge) Serve(ctx context.Context, f jsonrpc.Framer) error { return b.serve(ctx, f, false) }

func (b *Bridge) serve(ctx context.Context, f jsonrpc.Framer, strict bool) error {
	s := &streamClient{b: b, f: f, strict: strict, idle: make(chan struct{}, 1)}
	s.client = b.newClient(direct{s}, "", false)
	if s.client == nil {
		f.Close()
		return ErrClosed
	}
	return s.serve(ctx)
}

// A streamClient is a client on a stream: standard input and output, or a socket.
type streamClient struct {
	b      *Bridge
	f      jsonrpc.Framer
	client *client
	strict bool          // what is no message ends it: a page could have a browser send a request of HTTP to a socket, with messages in it
	idle   chan struct{} // has an element when a request was answered

	mu     sync.Mutex
	broken error // of writing
}

func (s *streamClient) serve(ctx context.Context) error {
	cl := s.client
	read := make(chan error, 1)
	go func() { read <- s.read(cl.ended) }() // it ends when f is closed
	var err error
	select {
	case err = <-read:
		read <- err
		s.drain(ctx)
	case <-ctx.Done():
		err = context.Cause(ctx)
		if s.strict { // on a socket, it is the bridge that ends, and not its client
			s.drain(context.WithoutCancel(ctx))
		}
	case <-cl.ended.Done():
		err = ErrClosed
	}
	// Whoever still waits is told so, unless the client does not read.
	cut := time.AfterFunc(farewell, func() { s.f.Close() })
	cl.close()
	if cl.flushed != nil {
		<-cl.flushed
	}
	cut.Stop()
	s.f.Close()
	<-read
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return err
}

// drain waits until what is under way was answered.
func (s *streamClient) drain(ctx context.Context) {
	timer := time.NewTimer(s.b.opts.DrainTimeout)
	defer timer.Stop()
	for {
		if open := s.client.waiting(); open == 0 {
			return
		}
		select {
		case <-s.idle:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		case <-s.client.ended.Done():
			return
		}
	}
}

// read takes what the client sends until its input ends.
func (s *streamClient) read(ctx context.Context) error {
	for {
		frame, err := s.f.ReadFrame()
		if bad, ok := errors.AsType[*jsonrpc.FrameError](err); ok && !s.strict {
			s.refuse(nil, &jsonrpc.Error{Code: bad.Code, Message: bad.Reason})
			continue
		}
		if err != nil {
			return err
		}
		frame = compact(frame)
		if jsonrpc.IsBatch(frame) {
			s.batch(ctx, frame)
			continue
		}
		m := new(jsonrpc.Message)
		if err := jsonrpc.Parse(frame, m, 0); err != nil {
			s.client.invalid(frame)
			if m.Kind != jsonrpc.KindResponse && m.Kind != jsonrpc.KindError {
				s.refuse(m.ID, jsonrpc.ErrorOf(err))
			}
			if s.strict && m.Kind == jsonrpc.KindInvalid {
				return err
			}
			continue
		}
		s.take(ctx, frame, m, func(response []byte) {
			if response != nil {
				s.client.news.Send(response)
			}
			poke(s.idle)
		})
	}
}

// take hands a message on.
func (s *streamClient) take(ctx context.Context, frame []byte, m *jsonrpc.Message, answer func([]byte)) {
	switch m.Kind {
	case jsonrpc.KindRequest:
		s.client.request(ctx, frame, m, nil, answer)
	case jsonrpc.KindNotification:
		s.client.notification(ctx, frame, m)
	default:
		s.client.response(ctx, frame, m)
	}
}

// batch hands the messages of a batch on, and answers with a batch.
func (s *streamClient) batch(ctx context.Context, frame []byte) {
	entries, err := jsonrpc.ParseBatch(frame, 0)
	if err != nil {
		s.client.invalid(frame)
		s.refuse(nil, jsonrpc.ErrorOf(err))
		return
	}
	answers := &gathering{left: 1, send: func(text []byte) {
		s.client.news.Send(text)
		poke(s.idle)
	}}
	for i := range entries {
		e := &entries[i]
		switch {
		case e.Invalid != nil:
			answers.add(jsonrpc.AppendError(nil, e.ID, e.Invalid, false))
		case e.Kind == jsonrpc.KindRequest:
			answers.expect()
			s.take(ctx, rebuilt(&e.Message), &e.Message, answers.done)
		default:
			s.take(ctx, rebuilt(&e.Message), &e.Message, nil)
		}
	}
	answers.done(nil)
}

// A gathering makes a batch of the answers to one.
type gathering struct {
	send func([]byte)

	mu   sync.Mutex
	left int
	text []byte
}

func (g *gathering) expect() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left++
}

func (g *gathering) add(answer []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.text) == 0 {
		g.text = append(g.text, '[')
	} else {
		g.text = append(g.text, ',')
	}
	g.text = append(g.text, answer...)
}

// done notes that one more was answered, with nil if there is to be no answer.
func (g *gathering) done(answer []byte) {
	if answer != nil {
		g.add(answer)
	}
	g.mu.Lock()
	g.left--
	last := g.left == 0 && len(g.text) > 0
	text := append(g.text, ']')
	g.mu.Unlock()
	if last {
		g.send(text)
	}
}

// refuse answers what could not be read.
func (s *streamClient) refuse(id jsonrpc.ID, e *jsonrpc.Error) {
	frame := jsonrpc.AppendError(nil, id, e, true)
	s.client.send(nil, frame, made{})
}

// direct is the outlet of a stream's client, for all that it is sent. It waits for a client that does not read.
type direct struct{ *streamClient }

// Send implements jsonrpc.Outlet.
func (d direct) Send(message []byte) error {
	s := d.streamClient
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken == nil {
		if s.broken = s.f.WriteFrame(jsonrpc.OneLine(message)); s.broken != nil {
			s.client.end() // nobody is left to talk to
		}
	}
	return s.broken
}

// acceptPause is how long nothing is accepted when that has failed.
const acceptPause = 50 * time.Millisecond

// ServeListener bridges each client that connects to l, a unix socket or a TCP port, until ctx ends: then it closes l, and waits until the clients were served. framing says how
// messages are told apart.
func (b *Bridge) ServeListener(ctx context.Context, l net.Listener, framing jsonrpc.Framing, maxFrame int) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	defer l.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if errors.Is(err, net.ErrClosed) {
				return err
			}
			b.opts.Logger.Warn("a connection was not accepted", "error", err)
			if !sleep(ctx, acceptPause) { // there may be too many files open
				return nil
			}
			continue
		}
		wg.Go(func() {
			f := jsonrpc.NewFramer(patient{conn}, &jsonrpc.FramerOptions{Framing: framing, MaxFrame: maxFrame})
			if err := b.serve(ctx, f, true); err != nil && ctx.Err() == nil {
				b.opts.Logger.Debug("a client's connection has ended", "error", err)
			}
		})
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
