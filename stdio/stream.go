package stdio

import (
	"errors"
	"sync/atomic"
)

// An input is where requests come from. One goroutine reads at a time; the other methods may be called by any.
type input interface {
	// Read waits in the runtime's poller where there is one for the descriptor: a waiting goroutine holds no processor.
	Read(p []byte) (int, error)
	// ReadIdle is the cheapest way to wait, one blocking read(2). It is for when nothing else in the process needs the processor.
	ReadIdle(p []byte) (int, error)
	// stop makes reads, those under way included, return io.EOF.
	stop()
	// Close stops the input and gives its descriptors back.
	Close() error
}

// An output is where replies go.
type output interface {
	// Write writes all of p, waiting as long as that takes.
	Write(p []byte) (int, error)
	// tryWrite writes what can be written without waiting. It returns less than len(p) with a nil error if that is not all.
	tryWrite(p []byte) (int, error)
	// Close interrupts a Write where the system has a way to, and gives the descriptors back.
	Close() error
}

// A stream joins the two for a framer.
type stream struct {
	in       input
	out      output
	broken   atomic.Bool // the client does not read any more
	onBroken func()      // called when broken becomes true
}

func (s *stream) Read(p []byte) (int, error)     { return s.in.Read(p) }
func (s *stream) ReadIdle(p []byte) (int, error) { return s.in.ReadIdle(p) }

func (s *stream) Write(p []byte) (int, error) {
	n, err := s.out.Write(p)
	if err != nil && isBrokenPipe(err) && !s.broken.Swap(true) {
		s.onBroken()
	}
	return n, err
}

func (s *stream) Close() error { return errors.Join(s.in.Close(), s.out.Close()) }
