package live

import (
	"bufio"
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

// A viewer is one who has connected.
type viewer struct {
	server   *Server
	conn     *net.UnixConn
	greeted  bool // s.mu holds it, as wake
	wakeOnly bool // send no lines, only that there are some

	mu         sync.Mutex
	queue      [][]byte
	bytes      int
	wakeQueued bool // an empty line is in the queue
	draining   bool // send what is in the queue, and no more
	cutOff     bool
	signal     chan struct{} // one element
}

func newViewer(s *Server, c *net.UnixConn) *viewer {
	return &viewer{server: s, conn: c, signal: make(chan struct{}, 1)}
}

// enqueue queues bytes, which are not changed any more. A viewer who has too much in the queue is cut off.
func (v *viewer) enqueue(p []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.enqueueLocked(p)
}

func (v *viewer) enqueueLocked(p []byte) {
	if v.cutOff || v.draining {
		return
	}
	if v.bytes > 0 && v.bytes+len(p) > v.server.opts.MaxQueue {
		v.cutOff, v.queue = true, nil
		v.conn.Close()
	} else {
		v.queue = append(v.queue, p)
		v.bytes += len(p)
	}
	v.wakeWriter()
}

// enqueueWake queues an empty line, unless one is there.
func (v *viewer) enqueueWake() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.wakeQueued {
		v.wakeQueued = true
		v.enqueueLocked(lineEnd)
	}
}

// drain has the viewer sent what is in the queue, and then closed.
func (v *viewer) drain() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.draining = true
	_ = v.conn.SetDeadline(time.Now().Add(drainTimeout))
	v.wakeWriter()
}

func (v *viewer) wakeWriter() {
	select {
	case v.signal <- struct{}{}:
	default:
	}
}

// dequeue returns what is queued. more is false when nothing comes after it.
func (v *viewer) dequeue() (list [][]byte, more bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	list, v.queue, v.wakeQueued = v.queue, nil, false
	return list, !v.draining && !v.cutOff
}

// setWriteDeadline sets how long the next write may take, unless the tap ends: then finish has.
func (v *viewer) setWriteDeadline() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.draining {
		_ = v.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	}
}

// release makes room.
func (v *viewer) release(n int) {
	v.mu.Lock()
	v.bytes -= n
	v.mu.Unlock()
}

// writeLoop sends what is queued until the viewer is cut off, or the tap ends.
func (v *viewer) writeLoop() {
	defer v.server.removeViewer(v)
	defer v.conn.Close()
	for range v.signal {
		list, more := v.dequeue()
		for _, p := range list {
			v.setWriteDeadline()
			if _, err := v.conn.Write(p); err != nil {
				return
			}
			v.release(len(p))
		}
		if !more {
			return
		}
	}
}

// readLoop takes what the viewer asks for, until it goes.
func (v *viewer) readLoop() {
	defer func() {
		v.mu.Lock()
		v.cutOff, v.queue = true, nil
		v.wakeWriter()
		v.mu.Unlock()
	}()
	lines := bufio.NewScanner(v.conn)
	lines.Buffer(make([]byte, 0, 512), maxControl)
	for lines.Scan() {
		var c control
		if json.Unmarshal(lines.Bytes(), &c) == nil { // what newer viewers may say is passed over
			v.server.control(v, c)
		}
	}
}

// A backlog keeps the last lines of a capture that cannot be read in a file while the tap runs, so that who comes a moment after the tap has begun sees how it began.
type backlog struct {
	max    int // bytes; 0 keeps none
	blocks []lineBlock
	bytes  int
}

// A passage is some whole lines, once it is done.
type lineBlock struct {
	first uint64 // number of the event that the first of them is about; 0 if some are missing
	text  []byte
	done  bool
}

// compressed reports whether the capture in a file cannot be read before it is complete.
func compressed(file string) bool {
	ext := filepath.Ext(file)
	return ext == ".gz" || ext == ".zst"
}

// add keeps a piece. next is the number of the event that it begins with, if the passage before is done.
func (b *backlog) add(p []byte, next uint64) {
	if b.max == 0 {
		return
	}
	if k := len(b.blocks); k == 0 || b.blocks[k-1].done {
		b.blocks = append(b.blocks, lineBlock{first: next})
	}
	last := &b.blocks[len(b.blocks)-1]
	switch {
	case last.first == 0:
	case len(last.text)+len(p) > b.max: // lines cannot follow one that is missing
		b.blocks, b.bytes = []lineBlock{{}}, 0
	default:
		last.text = append(last.text, p...)
	}
}

// endLine says that the last line has ended, at the event before next.
func (b *backlog) endLine(next uint64) {
	k := len(b.blocks)
	if k == 0 || b.blocks[k-1].done {
		return
	}
	last := &b.blocks[k-1]
	if last.first == 0 { // some of it is missing
		b.blocks = b.blocks[:k-1]
		return
	}
	if last.text = bytes.Clone(last.text); !bytes.HasSuffix(last.text, lineEnd) {
		last.text = append(last.text, '\n')
	}
	last.done = true
	b.bytes += len(last.text)
	for b.bytes > b.max {
		b.bytes -= len(b.blocks[0].text)
		b.blocks[0].text = nil
		b.blocks = b.blocks[1:]
	}
}

// firstEvent returns the number of the first event that is kept, or next if none is.
func (b *backlog) firstEvent(next uint64) uint64 {
	if len(b.blocks) > 0 && b.blocks[0].done {
		return b.blocks[0].first
	}
	return next
}

// all returns the lines that are kept.
func (b *backlog) all() (text []byte) {
	for _, p := range b.blocks {
		if p.done {
			text = append(text, p.text...)
		}
	}
	return text
}
