package live

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/capture"
)

// Defaults of a [Server] that is not told others.
const (
	DefaultMaxViewers = 16
	DefaultMaxQueue   = 96 << 20 // bytes: a payload of the largest size that is recorded fits in, in base64
	DefaultBacklog    = 4 << 20  // bytes
)

const (
	maxHead           = 64 << 10               // bytes of the capture's first line
	drainTimeout      = 300 * time.Millisecond // that viewers have to read what is left when the tap ends
	writeTimeout      = 10 * time.Second       // after which a viewer who reads nothing is cut off
	acceptBackoff     = 100 * time.Millisecond // before another attempt to accept
	maxUnwatchedBytes = 1 << 20                // bytes that a tap without a file records while nobody watches, for who comes then
)

// Options are the options of a [Server]. nil means defaults.
type Options struct {
	MaxViewers int // 0 is DefaultMaxViewers
	MaxQueue   int // bytes that wait for a viewer, who is cut off beyond it; 0 is DefaultMaxQueue
	// Backlog is how many bytes of lines are kept for those who come later, if the capture is in no file that they could read them in; 0 is DefaultBacklog, less is none.
	Backlog int
	// Restart is called when a viewer asks for it. It must return at once. nil: the tap does not do that.
	Restart func()
}

var _ capture.Tee = (*Server)(nil)

// A Server shows viewers what a [capture.Writer] writes: it is its Tee.
type Server struct {
	opts Options

	mu             sync.Mutex
	greeting       Greeting
	head           []byte // the first line, as far as it has come
	headComplete   bool   // it is all there
	atLineEnd      bool   // what was shown last ended a line
	endsWithLF     bool   // the last byte was the end of a line
	viewers        map[*viewer]struct{}
	joining        []*viewer // until the line has ended
	backlog        backlog
	closed         bool
	unwatchedBytes int // bytes that were shown since the last viewer went

	wantBytes atomic.Int64 // bytes that an event may have to be worth recording

	listener *net.UnixListener
	path     string
	done     chan struct{}
	wg       sync.WaitGroup
}

// NewServer returns a Server that nobody can reach until Start. opts may be nil.
func NewServer(opts *Options) *Server {
	s := &Server{viewers: map[*viewer]struct{}{}, atLineEnd: true, endsWithLF: true, done: make(chan struct{})}
	if opts != nil {
		s.opts = *opts
	}
	if s.opts.MaxViewers <= 0 {
		s.opts.MaxViewers = DefaultMaxViewers
	}
	if s.opts.MaxQueue <= 0 {
		s.opts.MaxQueue = DefaultMaxQueue
	}
	if s.opts.Backlog == 0 {
		s.opts.Backlog = DefaultBacklog
	}
	s.backlog.max = max(0, s.opts.Backlog)
	s.greeting.Next = 1
	s.updateWantsLocked()
	return s
}

// Wants is for Options.Want of a Writer that has no file. While viewers are there it wants everything; else the first MiB, so that who comes sees how the tap, or what was since the last
// viewer went, has begun. So a tap that nobody watches costs nothing for long.
func (s *Server) Wants(size int) bool { return int64(size) < s.wantBytes.Load() }

// updateWantsLocked decides what is wanted. s.mu is held.
func (s *Server) updateWantsLocked() {
	if len(s.viewers) > 0 {
		s.wantBytes.Store(math.MaxInt64)
		return
	}
	s.wantBytes.Store(int64(min(maxUnwatchedBytes, s.backlog.max) - s.unwatchedBytes))
}

// Start opens a socket in dir, which is made if need be. Of hello, Version, PID, Next and Restart are filled in. The error may wrap [ErrNotPrivate], or be that of the system, for a
// path that is too long for example; it is called once.
func (s *Server) Start(dir string, greeting Greeting) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := checkPrivate(dir); err != nil {
		return err
	}
	name := strings.ToLower(rand.Text())
	l, err := listen(dir, name)
	if err != nil {
		return err
	}
	s.mu.Lock()
	greeting.Version, greeting.PID, greeting.Next, greeting.Restart = Version, os.Getpid(), s.greeting.Next, s.opts.Restart != nil
	s.greeting = greeting
	if greeting.File != "" && !compressed(greeting.File) {
		s.backlog = backlog{}
	}
	s.listener, s.path = l, filepath.Join(dir, name+suffix)
	s.mu.Unlock()
	s.wg.Go(func() { s.accept(l) })
	s.wg.Go(func() { _ = cleanExcept(dir, filepath.Join(dir, name+suffix)) }) // of the dead; Start has looked at the folder
	return nil
}

// Path returns the path of the socket; "" before Start.
func (s *Server) Path() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.path
}

// accept lets viewers in.
func (s *Server) accept(l *net.UnixListener) {
	for {
		c, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many open files, say
			select {
			case <-s.done:
				return
			case <-time.After(acceptBackoff):
			}
			continue
		}
		s.addViewer(c)
	}
}

// addViewer greets a viewer, at once or when the line has ended that is being shown.
func (s *Server) addViewer(c *net.UnixConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.viewers) >= s.opts.MaxViewers {
		c.Close()
		return
	}
	v := newViewer(s, c)
	s.viewers[v] = struct{}{}
	s.updateWantsLocked()
	s.wg.Go(v.writeLoop)
	s.wg.Go(v.readLoop)
	if s.atLineEnd {
		s.sendGreetingLocked(v)
	} else {
		s.joining = append(s.joining, v)
	}
}

// sendGreetingLocked sends a viewer what comes first.
func (s *Server) sendGreetingLocked(v *viewer) {
	greeting := s.greeting
	greeting.Next = s.backlog.firstEvent(greeting.Next)
	line, err := json.Marshal(&greeting)
	if err != nil {
		return // it has nothing that cannot be marshalled
	}
	line = append(line, '\n')
	if s.headComplete {
		line = append(line, s.head...)
	}
	v.greeted = true
	v.enqueue(append(line, s.backlog.all()...))
}

// removeViewer forgets a viewer.
func (s *Server) removeViewer(v *viewer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.viewers, v)
	s.joining = slices.DeleteFunc(s.joining, func(x *viewer) bool { return x == v })
	if len(s.viewers) == 0 {
		s.unwatchedBytes = 0
	}
	s.updateWantsLocked()
}

// Write implements [capture.Tee].
func (s *Server) Write(p []byte) {
	if len(p) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.atLineEnd, s.endsWithLF = false, p[len(p)-1] == '\n'
	if len(s.viewers) == 0 {
		s.unwatchedBytes = min(s.unwatchedBytes+len(p), maxUnwatchedBytes)
		s.updateWantsLocked()
	}
	if rest := s.keepHead(p); len(rest) > 0 {
		s.backlog.add(rest, s.greeting.Next)
	}
	var own []byte // one copy for all
	for v := range s.viewers {
		if v.greeted && !v.wakeOnly {
			if own == nil {
				own = bytes.Clone(p)
			}
			v.enqueue(own)
		}
	}
}

// keepHead keeps the first line, for those who come later, and returns what is behind it.
func (s *Server) keepHead(p []byte) (rest []byte) {
	switch i := bytes.IndexByte(p, '\n'); {
	case s.headComplete:
		return p
	case len(s.head) > maxHead: // none of a Writer's is
	case i >= 0:
		s.head, s.headComplete = append(s.head, p[:i+1]...), true
		return p[i+1:]
	default:
		s.head = append(s.head, p...)
	}
	return nil
}

var lineEnd = []byte("\n")

// EndLine implements [capture.Tee].
func (s *Server) EndLine(next uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for v := range s.viewers {
		switch {
		case !v.greeted:
		case v.wakeOnly:
			v.enqueueWake()
		case !s.endsWithLF: // the rest of the line does not come
			v.enqueue(lineEnd)
		}
	}
	s.backlog.endLine(next)
	s.atLineEnd, s.endsWithLF, s.greeting.Next = true, true, next
	for _, v := range s.joining {
		s.sendGreetingLocked(v)
	}
	s.joining = nil
}

// control does what a viewer asks for.
func (s *Server) control(v *viewer, c control) {
	if c.Wake {
		s.mu.Lock()
		v.wakeOnly = true
		s.mu.Unlock()
	}
	if c.Restart && s.opts.Restart != nil {
		s.opts.Restart()
	}
}

// Close lets viewers read what is left, for a moment, and removes the socket. Call it when the Writer has been closed. What it is shown later is not sent to anybody.
func (s *Server) Close() error {
	s.mu.Lock()
	l, first := s.listener, !s.closed
	s.closed, s.backlog = true, backlog{}
	for v := range s.viewers {
		v.drain()
	}
	s.mu.Unlock()
	var err error
	if first {
		close(s.done)
		if l != nil {
			err = errors.Join(os.Remove(s.path), l.Close())
		}
	}
	s.wg.Wait()
	return err
}
