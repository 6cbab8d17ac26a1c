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
	maxHead = 64 << 10               // bytes of the capture's first line
	leave   = 300 * time.Millisecond // that viewers have to read what is left when the tap ends
	stuck   = 10 * time.Second       // after which a viewer who reads nothing is cut off
	again   = 100 * time.Millisecond // before another attempt to accept
	ahead   = 1 << 20                // bytes that a tap without a file records while nobody watches, for who comes then
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

	mu      sync.Mutex
	hello   Hello
	head    []byte // the first line, as far as it has come
	headed  bool   // it is all there
	whole   bool   // what was shown last ended a line
	ended   bool   // the last byte was the end of a line
	viewers map[*viewer]struct{}
	joining []*viewer // until the line has ended
	backlog backlog
	closed  bool
	unseen  int // bytes that were shown since the last viewer went

	wants atomic.Int64 // bytes that an event may have to be worth recording

	listener *net.UnixListener
	path     string
	done     chan struct{}
	wg       sync.WaitGroup
}

// NewServer returns a Server that nobody can reach until Start. opts may be nil.
func NewServer(opts *Options) *Server {
	s := &Server{viewers: map[*viewer]struct{}{}, whole: true, ended: true, done: make(chan struct{})}
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
	s.hello.Next = 1
	s.weigh()
	return s
}

// Wants is for Options.Want of a Writer that has no file. While viewers are there it wants everything; else the first MiB, so that who comes sees how the tap, or what was since the last
// viewer went, has begun. So a tap that nobody watches costs nothing for long.
func (s *Server) Wants(size int) bool { return int64(size) < s.wants.Load() }

// weigh decides what is wanted. s.mu is held.
func (s *Server) weigh() {
	if len(s.viewers) > 0 {
		s.wants.Store(math.MaxInt64)
		return
	}
	s.wants.Store(int64(min(ahead, s.backlog.max) - s.unseen))
}

// Start opens a socket in dir, which is made if need be. Of hello, Version, PID, Next and Restart are filled in. The error may wrap [ErrNotPrivate], or be that of the system, for a
// path that is too long for example; it is called once.
func (s *Server) Start(dir string, hello Hello) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := check(dir); err != nil {
		return err
	}
	name := strings.ToLower(rand.Text())
	l, err := listen(dir, name)
	if err != nil {
		return err
	}
	s.mu.Lock()
	hello.Version, hello.PID, hello.Next, hello.Restart = Version, os.Getpid(), s.hello.Next, s.opts.Restart != nil
	s.hello = hello
	if hello.File != "" && !compressed(hello.File) {
		s.backlog = backlog{}
	}
	s.listener, s.path = l, filepath.Join(dir, name+suffix)
	s.mu.Unlock()
	s.wg.Go(func() { s.accept(l) })
	s.wg.Go(func() { _ = cleanBut(dir, filepath.Join(dir, name+suffix)) }) // of the dead; Start has looked at the folder
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
			case <-time.After(again):
			}
			continue
		}
		s.join(c)
	}
}

// join greets a viewer, at once or when the line has ended that is being shown.
func (s *Server) join(c *net.UnixConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.viewers) >= s.opts.MaxViewers {
		c.Close()
		return
	}
	v := newViewer(s, c)
	s.viewers[v] = struct{}{}
	s.weigh()
	s.wg.Go(v.write)
	s.wg.Go(v.read)
	if s.whole {
		s.greet(v)
	} else {
		s.joining = append(s.joining, v)
	}
}

// greet sends a viewer what comes first.
func (s *Server) greet(v *viewer) {
	hello := s.hello
	hello.Next = s.backlog.from(hello.Next)
	line, err := json.Marshal(&hello)
	if err != nil {
		return // it has nothing that cannot be marshalled
	}
	line = append(line, '\n')
	if s.headed {
		line = append(line, s.head...)
	}
	v.greeted = true
	v.push(append(line, s.backlog.all()...))
}

// drop forgets a viewer.
func (s *Server) drop(v *viewer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.viewers, v)
	s.joining = slices.DeleteFunc(s.joining, func(x *viewer) bool { return x == v })
	if len(s.viewers) == 0 {
		s.unseen = 0
	}
	s.weigh()
}

// Piece implements [capture.Tee].
func (s *Server) Piece(p []byte) {
	if len(p) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.whole, s.ended = false, p[len(p)-1] == '\n'
	if len(s.viewers) == 0 {
		s.unseen = min(s.unseen+len(p), ahead)
		s.weigh()
	}
	if rest := s.keepHead(p); len(rest) > 0 {
		s.backlog.add(rest, s.hello.Next)
	}
	var own []byte // one copy for all
	for v := range s.viewers {
		if v.greeted && !v.wake {
			if own == nil {
				own = bytes.Clone(p)
			}
			v.push(own)
		}
	}
}

// keepHead keeps the first line, for those who come later, and returns what is behind it.
func (s *Server) keepHead(p []byte) (rest []byte) {
	switch i := bytes.IndexByte(p, '\n'); {
	case s.headed:
		return p
	case len(s.head) > maxHead: // none of a Writer's is
	case i >= 0:
		s.head, s.headed = append(s.head, p[:i+1]...), true
		return p[i+1:]
	default:
		s.head = append(s.head, p...)
	}
	return nil
}

var lineEnd = []byte("\n")

// Whole implements [capture.Tee].
func (s *Server) Whole(next uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for v := range s.viewers {
		switch {
		case !v.greeted:
		case v.wake:
			v.nudge()
		case !s.ended: // the rest of the line does not come
			v.push(lineEnd)
		}
	}
	s.backlog.end(next)
	s.whole, s.ended, s.hello.Next = true, true, next
	for _, v := range s.joining {
		s.greet(v)
	}
	s.joining = nil
}

// control does what a viewer asks for.
func (s *Server) control(v *viewer, c control) {
	if c.Wake {
		s.mu.Lock()
		v.wake = true
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
		v.finish()
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
