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

	"mcpwire/cmd/internal/trace/captures"
	"mcpwire/internal/base/defaults"
	"mcpwire/internal/base/hooks"
	"mcpwire/internal/base/wait"
)

// Defaults of [Options].
const (
	DefaultMaxViewers = 16
	DefaultMaxQueue   = 96 << 20 // bytes; fits a payload of the largest recorded size, in base64
	DefaultBacklog    = 4 << 20  // bytes
)

const (
	maxHead           = 64 << 10               // bytes of the capture's first line
	drainTimeout      = 300 * time.Millisecond // for viewers to read the rest at the end
	writeTimeout      = 10 * time.Second       // before a viewer that reads nothing is disconnected
	acceptBackoff     = 100 * time.Millisecond // between attempts to accept
	maxUnwatchedBytes = 1 << 20                // bytes recorded without a file and viewers
)

// Options configures a [Server]. A nil *Options means the defaults.
type Options struct {
	// MaxViewers limits the viewers. Zero means DefaultMaxViewers.
	MaxViewers int
	// MaxQueue limits the bytes that wait for a viewer. A viewer above it is disconnected. Zero
	// means DefaultMaxQueue.
	MaxQueue int
	// Backlog limits the bytes of lines that are kept for later viewers if they cannot read them
	// in a file. Zero means DefaultBacklog; a negative value means no backlog.
	Backlog int
	// Restart is called when a viewer requests a restart. It must return at once. Nil means that
	// the tap does not restart its server.
	Restart func()
	// Decide is called with a viewer's decision about held messages. It must return at once. Nil
	// means that the tap does not intercept messages.
	Decide func(*Decision) error
}

var _ hooks.Tee = (*Server)(nil)

// A Server sends viewers the lines that a [capture.Writer] writes, as its Tee.
type Server struct {
	opts Options

	mu       sync.Mutex
	greeting Greeting
	// head is the first line, or its beginning.
	head []byte
	// headComplete means that head ends with a newline.
	headComplete bool
	// atLineEnd is true between lines.
	atLineEnd bool
	// endsWithLF means that the last byte written was a newline.
	endsWithLF bool
	viewers    map[*viewer]struct{}
	// joining are viewers that wait for the end of the current line.
	joining []*viewer
	backlog backlog
	// intercepted is the newest line for viewers of held messages.
	intercepted []byte
	closed      bool
	// unwatchedBytes counts the bytes written since the last viewer left.
	unwatchedBytes int

	// wantBytes is the size from which an event is not recorded.
	wantBytes atomic.Int64

	listener *net.UnixListener
	path     string
	done     chan struct{}
	wg       sync.WaitGroup
}

// NewServer returns a Server that accepts viewers after [Server.Start]. opts may be nil.
func NewServer(opts *Options) *Server {
	s := &Server{viewers: map[*viewer]struct{}{}, atLineEnd: true, endsWithLF: true, done: make(chan struct{})}
	if opts != nil {
		s.opts = *opts
	}
	defaults.IfNotPositive(&s.opts.MaxViewers, DefaultMaxViewers)
	defaults.IfNotPositive(&s.opts.MaxQueue, DefaultMaxQueue)
	if s.opts.Backlog == 0 {
		s.opts.Backlog = DefaultBacklog
	}
	s.backlog.max = max(0, s.opts.Backlog)
	s.greeting.Next = 1
	s.updateWantsLocked()
	return s
}

// Wants implements Want of [hooks.Writer] for a [capture.Writer] without a file. It wants all
// events while there are viewers. Otherwise it wants only the first MiB, so that a later viewer
// sees how the tap began, or what followed after the last viewer left.
func (s *Server) Wants(size int) bool { return int64(size) < s.wantBytes.Load() }

// updateWantsLocked sets wantBytes. The caller must hold s.mu.
func (s *Server) updateWantsLocked() {
	if len(s.viewers) > 0 {
		s.wantBytes.Store(math.MaxInt64)
		return
	}
	s.wantBytes.Store(int64(min(maxUnwatchedBytes, s.backlog.max) - s.unwatchedBytes))
}

// Start opens a socket in dir and creates dir if needed. It sets Version, PID, Next, Restart and
// Intercept of the greeting. The error may wrap [ErrNotPrivate] or an error of the system, for
// example for a path that is too long. Start must be called at most once.
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
	greeting.Intercept = s.opts.Decide != nil
	s.greeting = greeting
	if greeting.File != "" && !captures.IsCompressed(greeting.File) {
		s.backlog = backlog{}
	}
	s.listener, s.path = l, filepath.Join(dir, name+suffix)
	s.mu.Unlock()
	s.wg.Go(func() { s.accept(l) })
	// Start has checked dir.
	s.wg.Go(func() { _ = cleanExcept(dir, filepath.Join(dir, name+suffix)) })
	return nil
}

// Path returns the path of the socket, or "" before Start.
func (s *Server) Path() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.path
}

// accept accepts viewers until the listener is closed.
func (s *Server) accept(l *net.UnixListener) {
	for {
		c, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as too many open files
			if wait.Closed(s.done, acceptBackoff) {
				return
			}
			continue
		}
		s.addViewer(c)
	}
}

// addViewer adds a viewer and greets it at once or at the end of the current line.
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

// sendGreetingLocked sends the greeting, the head and the backlog. The caller must hold s.mu.
func (s *Server) sendGreetingLocked(v *viewer) {
	greeting := s.greeting
	greeting.Next = s.backlog.firstEvent(greeting.Next)
	line, err := json.Marshal(&greeting)
	if err != nil {
		return // cannot happen
	}
	line = append(line, '\n')
	if s.headComplete {
		line = append(line, s.head...)
	}
	v.greeted = true
	v.enqueue(append(line, s.backlog.all()...))
}

// removeViewer removes a viewer.
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

// Write implements [hooks.Tee].
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
	var own []byte // one copy for all viewers
	for v := range s.viewers {
		if v.greeted && !v.wakeOnly && !v.heldOnly {
			if own == nil {
				own = bytes.Clone(p)
			}
			v.enqueue(own)
		}
	}
}

// keepHead stores the first line for later viewers and returns the bytes behind it.
func (s *Server) keepHead(p []byte) (rest []byte) {
	switch i := bytes.IndexByte(p, '\n'); {
	case s.headComplete:
		return p
	case len(s.head) > maxHead: // longer than any head of a Writer
	case i >= 0:
		s.head, s.headComplete = append(s.head, p[:i+1]...), true
		return p[i+1:]
	default:
		s.head = append(s.head, p...)
	}
	return nil
}

var lineEnd = []byte("\n")

// EndLine implements [hooks.Tee].
func (s *Server) EndLine(next uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for v := range s.viewers {
		switch {
		case !v.greeted, v.heldOnly:
		case v.wakeOnly:
			v.enqueueWake()
		case !s.endsWithLF: // the rest of the line does not come
			v.enqueue(lineEnd)
		}
	}
	s.backlog.endLine()
	s.atLineEnd, s.endsWithLF, s.greeting.Next = true, true, next
	for _, v := range s.joining {
		s.sendGreetingLocked(v)
	}
	s.joining = nil
}

// control executes a request of a viewer.
func (s *Server) control(v *viewer, c control) {
	if c.Wake {
		s.mu.Lock()
		v.wakeOnly = true
		s.mu.Unlock()
	}
	if c.Held {
		s.mu.Lock()
		v.heldOnly = true
		if s.intercepted != nil {
			v.enqueue(s.intercepted)
		}
		s.mu.Unlock()
	}
	if c.Intercept != nil {
		s.intercept(v, c.Intercept)
	}
	if c.Restart && s.opts.Restart != nil {
		s.opts.Restart()
	}
}

// Close removes the socket, gives viewers a moment to read what is queued, and waits for the
// server's goroutines. Call it after closing the Writer. Later writes are discarded.
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

// A viewer is a connection to a viewer.
type viewer struct {
	server *Server
	conn   *net.UnixConn
	// Server.mu guards greeted, wakeOnly and heldOnly.
	greeted bool
	// heldOnly means to send what the tap holds in place of events.
	heldOnly bool
	// wakeOnly means to send empty lines in place of events.
	wakeOnly bool

	mu    sync.Mutex
	queue [][]byte
	bytes int
	// wakeQueued means that an empty line is in the queue.
	wakeQueued bool
	// draining means to send only what is in the queue.
	draining bool
	cutOff   bool
	// signal has a buffer of one element.
	signal chan struct{}
}

func newViewer(s *Server, c *net.UnixConn) *viewer {
	return &viewer{server: s, conn: c, signal: make(chan struct{}, 1)}
}

// enqueue queues bytes, which must not change later. It disconnects a viewer with too many bytes
// in the queue.
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
	wait.Signal(v.signal)
}

// enqueueWake queues an empty line, unless one is in the queue.
func (v *viewer) enqueueWake() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.wakeQueued {
		v.wakeQueued = true
		v.enqueueLocked(lineEnd)
	}
}

// drain makes the viewer's connection close when the queue has been sent.
func (v *viewer) drain() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.draining = true
	_ = v.conn.SetDeadline(time.Now().Add(drainTimeout))
	wait.Signal(v.signal)
}

// dequeue returns the queued bytes. more is false if nothing follows.
func (v *viewer) dequeue() (list [][]byte, more bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	list, v.queue, v.wakeQueued = v.queue, nil, false
	return list, !v.draining && !v.cutOff
}

// setWriteDeadline sets the deadline of the next write, unless drain has set one.
func (v *viewer) setWriteDeadline() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.draining {
		_ = v.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	}
}

// release subtracts sent bytes from the queue's size.
func (v *viewer) release(n int) {
	v.mu.Lock()
	v.bytes -= n
	v.mu.Unlock()
}

// writeLoop sends what is queued until the viewer is disconnected or the tap ends.
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

// readLoop handles the viewer's requests until it disconnects.
func (v *viewer) readLoop() {
	defer func() {
		v.mu.Lock()
		v.cutOff, v.queue = true, nil
		wait.Signal(v.signal)
		v.mu.Unlock()
	}()
	lines := bufio.NewScanner(v.conn)
	lines.Buffer(make([]byte, 0, 512), maxControl)
	for lines.Scan() {
		var c control
		if json.Unmarshal(lines.Bytes(), &c) == nil { // ignore requests of newer viewers
			v.server.control(v, c)
		}
	}
}

// A backlog keeps the last lines of a capture for viewers that connect late and cannot read them
// in a file.
type backlog struct {
	// max is the limit in bytes. Zero means no backlog.
	max    int
	blocks []lineBlock
	bytes  int
}

// A lineBlock is one or more whole lines, once it is done.
type lineBlock struct {
	// first is the number of the first line's event. Zero means that lines are missing.
	first uint64
	text  []byte
	done  bool
}

// add appends bytes of a line. next is the number of its event, if it begins a new block.
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
	case len(last.text)+len(p) > b.max: // lines cannot follow a missing one
		b.blocks, b.bytes = []lineBlock{{}}, 0
	default:
		last.text = append(last.text, p...)
	}
}

// endLine ends the current block.
func (b *backlog) endLine() {
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

// firstEvent returns the number of the first event in the backlog, or next if it is empty.
func (b *backlog) firstEvent(next uint64) uint64 {
	if len(b.blocks) > 0 && b.blocks[0].done {
		return b.blocks[0].first
	}
	return next
}

// all returns the lines in the backlog.
func (b *backlog) all() (text []byte) {
	for _, p := range b.blocks {
		if p.done {
			text = append(text, p.text...)
		}
	}
	return text
}
