package rpc

import (
	"bytes"
	"errors"

	"mcpwire/jsonrpc"
)

// A Source is a framer as the leader of a Conn uses it. The framers of [jsonrpc.NewFramer] are
// Sources: they can tell that no further frame is available without waiting, and can pass on the
// memory under a frame.
type Source interface {
	// NextFrame returns a frame that is already buffered, or a *FrameError, a *CallError or ErrGap.
	// Without a buffered frame it returns nil and no error.
	NextFrame() ([]byte, error)
	// Fill waits for more input. idle says that no other work in this process waits for the
	// reader's processor.
	Fill(idle bool) error
	// Detach leaves the memory under the returned frames to their users, who pass it to Release
	// when they are done with it.
	Detach()
	// Release takes the memory under a frame back, which Detach has left. It may be called at any
	// time.
	Release(frame []byte)
	// BufferSize returns the size of the memory under the frames, in bytes. Zero means that each
	// frame has its own.
	BufferSize() int
	// BeginFrame and FinishFrame put the framing around a message that is appended to dst between
	// the two calls. start is len(dst) before BeginFrame.
	BeginFrame(dst []byte) []byte
	FinishFrame(dst []byte, start int) []byte
	// WriteFrames sends framed messages.
	WriteFrames(p []byte) error
	// TryWriteFrames sends what can be sent of framed messages without a wait, and returns the
	// number of bytes. It leaves errors to WriteFrames.
	TryWriteFrames(p []byte) int
	// Close makes a blocked Fill return.
	Close() error
}

// sourceOf returns the framer itself if it is a Source, and an adapter otherwise.
func sourceOf(f jsonrpc.Framer) Source {
	if s, ok := f.(Source); ok {
		return s
	}
	_, ownsFrames := f.(MessageTransport)
	return &frameSource{Framer: f, ownsFrames: ownsFrames}
}

// A frameSource adapts any Framer. It copies frames that do not belong to the reader, because the
// former leader may still use the last one after a takeover.
type frameSource struct {
	jsonrpc.Framer
	ownsFrames bool
	frame      []byte
	err        error
}

func (s *frameSource) NextFrame() ([]byte, error) {
	frame, err := s.frame, s.err
	s.frame, s.err = nil, nil
	return frame, err
}

func (s *frameSource) Fill(bool) error {
	frame, err := s.ReadFrame()
	if err == nil {
		if s.frame = frame; !s.ownsFrames || frame == nil {
			s.frame = append(make([]byte, 0, len(frame)+1), frame...)
		}
		return nil
	}
	_, bad := errors.AsType[*jsonrpc.FrameError](err)
	_, lost := errors.AsType[*jsonrpc.CallError](err)
	if bad || lost || err == jsonrpc.ErrGap {
		s.err = err
		return nil
	}
	return err
}

func (s *frameSource) TryWriteFrames([]byte) int    { return 0 }
func (s *frameSource) Detach()                      {}
func (s *frameSource) Release([]byte)               {}
func (s *frameSource) BufferSize() int              { return 0 }
func (s *frameSource) BeginFrame(dst []byte) []byte { return dst }

// FinishFrame ends the message with a line break, so that WriteFrames can separate several
// messages.
func (s *frameSource) FinishFrame(dst []byte, _ int) []byte { return append(dst, '\n') }

func (s *frameSource) WriteFrames(p []byte) error {
	for msg := range bytes.Lines(p) {
		if err := s.WriteFrame(msg[:len(msg)-1]); err != nil {
			return err
		}
	}
	return nil
}
