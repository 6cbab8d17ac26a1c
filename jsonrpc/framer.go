package jsonrpc

import (
	"bytes"
	"errors"
	"fmt"
)

// A Framer moves frames, each of which holds one message or one batch, over a transport. [NewFramer] makes one for any byte stream; implement it
// for a transport that has message boundaries of its own.
//
// One goroutine may read while another writes; neither method is called twice at once.
type Framer interface {
	// ReadFrame waits for the next frame. The slice is valid until the next call, or for good if the Framer is a [MessageTransport]. io.EOF means that the peer is done.
	// A *FrameError means that one frame was unusable and was passed over, a *CallError that one call has failed, [ErrGap] that there is a gap: the next call reads on behind it.
	// Look for a *CallError first: a *FrameError wraps one if the frame is the answer to a call, too large to be read.
	ReadFrame() ([]byte, error)
	// WriteFrame sends one message, which has no line breaks in it. It does not keep msg.
	WriteFrame(msg []byte) error
	// Close ends both directions and makes a blocked ReadFrame return.
	Close() error
}

// A FrameError tells of one frame that could not be read. The stream goes on behind it.
type FrameError struct {
	Code   Code   // what to answer with
	Reason string // what was wrong and how to mend it
	// Err is a *[TooLargeError] if the frame is above the limit, or a *[CallError] that wraps one if it answers a request that is known; else nil.
	Err error
}

func (e *FrameError) Error() string { return e.Reason }

// Unwrap returns Err.
func (e *FrameError) Unwrap() error { return e.Err }

// DefaultMaxFrame is the largest frame that is read by default, in bytes.
const DefaultMaxFrame = 64 << 20

func newTooLarge(limit int) *FrameError {
	return &FrameError{Code: CodeInvalidRequest, Reason: fmt.Sprintf("frame of more than %d bytes was skipped: send less, or raise the receiver's frame limit", limit)}
}

// A source is what the reading loop of Conn wants of a framer: to know when no further frame can be had without waiting, and to hand the
// memory under a frame to whoever goes on using it.
type source interface {
	// next returns a frame that is buffered already, errNeedMore when there is none, or a *FrameError or *CallError, or ErrGap.
	next() ([]byte, error)
	// fill waits for more input. idle tells that nothing in this process waits for the reader's processor.
	fill(idle bool) error
	// detach leaves the memory under the frames handed out so far to their users; held is how much that is.
	detach()
	bufferSize() int
	// begin and finish put the framing around a message that is appended to dst between the two calls; start is len(dst) before begin.
	begin(dst []byte) []byte
	finish(dst []byte, start int) []byte
	// write sends framed bytes.
	write(p []byte) error
	// Close makes a fill that is under way return.
	Close() error
}

var errNeedMore = errors.New("no complete frame is buffered")

// sourceOf returns the framer itself if it reads a stream of bytes, and an adapter otherwise.
func sourceOf(f Framer) source {
	if s, ok := f.(source); ok {
		return s
	}
	_, ownsFrames := f.(MessageTransport)
	return &frameSource{Framer: f, ownsFrames: ownsFrames}
}

// A frameSource reads a foreign Framer. It copies each frame that is not given to it, because the leader's follower may still use the last one.
type frameSource struct {
	Framer
	ownsFrames bool
	frame      []byte
	err        error
}

func (s *frameSource) next() ([]byte, error) {
	if s.frame == nil && s.err == nil {
		return nil, errNeedMore
	}
	frame, err := s.frame, s.err
	s.frame, s.err = nil, nil
	return frame, err
}

func (s *frameSource) fill(bool) error {
	frame, err := s.ReadFrame()
	if err == nil {
		if s.frame = frame; !s.ownsFrames || frame == nil {
			s.frame = append(make([]byte, 0, len(frame)+1), frame...)
		}
		return nil
	}
	if bad, ok := errors.AsType[*FrameError](err); ok {
		s.err = bad
		return nil
	}
	if lost, ok := errors.AsType[*CallError](err); ok {
		s.err = lost
		return nil
	}
	if err == ErrGap {
		s.err = err
		return nil
	}
	return err
}

func (s *frameSource) detach()                 {}
func (s *frameSource) bufferSize() int         { return 0 } // each frame has memory of its own
func (s *frameSource) begin(dst []byte) []byte { return dst }

// finish separates messages as lines do, so that write can tell several of them apart.
func (s *frameSource) finish(dst []byte, _ int) []byte { return append(dst, '\n') }

func (s *frameSource) write(p []byte) error {
	for msg := range bytes.Lines(p) {
		if err := s.WriteFrame(msg[:len(msg)-1]); err != nil {
			return err
		}
	}
	return nil
}
