package mock

import (
	"context"
	"io"
	"net"

	"mcpwire/internal/bridge"
	"mcpwire/jsonrpc"
)

// Eras reports in which eras the capture has answers.
func (t *Tape) Eras() (legacy, modern bool) { return len(t.legacy) > 0, len(t.modern) > 0 }

// Translate returns a bridge to the server for clients of the era that the capture has no answers in. It is to be closed before the server. Requests reach the server translated, so
// they match if what they become is what was recorded.
func (s *Server) Translate(near bridge.Era) (*bridge.Bridge, error) {
	far := bridge.EraModern
	if near == bridge.EraModern {
		far = bridge.EraLegacy
	}
	return bridge.New(&bridge.Options{Connect: s.connect, Name: s.tape.Name, Near: near, Far: far, CallTimeout: -1, Logger: s.opts.Logger})
}

// connect opens a connection to the server within the process.
func (s *Server) connect(context.Context, io.Writer) (jsonrpc.Framer, error) {
	near, far := net.Pipe()
	framing := &jsonrpc.FramerOptions{Framing: jsonrpc.FramingLine}
	if !s.crew.enter() {
		return nil, jsonrpc.ErrClosed
	}
	go func() {
		defer s.crew.leave()
		if err := s.Serve(s.ctx, jsonrpc.NewFramer(far, framing)); err != nil && s.ctx.Err() == nil {
			s.opts.Logger.Debug("connection ended", "error", err)
		}
	}()
	return jsonrpc.NewFramer(near, framing), nil
}
