package live

import (
	"bufio"
	"encoding/json"
	"net"
	"sync"
	"time"
)

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
