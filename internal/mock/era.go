package mock

import (
	"context"
	"io"
	"net"

	"mcpwire/internal/bridge"
	"mcpwire/jsonrpc"
)

// Eras reports in which eras the capture has answers.
func (r *Recording) Eras() (legacy, modern bool) { return len(r.legacy) > 0, len(r.modern) > 0 }

// Translate returns a bridge to the server for clients of the era that the capture has no answers in. It is to be closed before the server. Requests reach the server translated, so
// they match if what they become is what was recorded.
func (s *Server) Translate(downstream bridge.Era) (*bridge.Bridge, error) {
	far := bridge.EraModern
	if downstream == bridge.EraModern {
		far = bridge.EraLegacy
	}
	return bridge.New(&bridge.Options{Connect: s.connect, Name: s.recording.Name, ClientEra: downstream, ServerEra: far, CallTimeout: -1, Logger: s.opts.Logger})
}

// connect opens a connection to the server within the process.
func (s *Server) connect(context.Context, io.Writer) (jsonrpc.Framer, error) {
	near, far := net.Pipe()
	framing := &jsonrpc.FramerOptions{Framing: jsonrpc.FramingLine}
	if !s.activity.begin() {
		return nil, jsonrpc.ErrClosed
	}
	go func() {
		defer s.activity.done()
		if err := s.Serve(s.ctx, jsonrpc.NewFramer(far, framing)); err != nil && s.ctx.Err() == nil {
			s.opts.Logger.Debug("connection ended", "error", err)
		}
	}()
	return jsonrpc.NewFramer(near, framing), nil
}
