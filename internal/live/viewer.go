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
	s       *Server
	conn    *net.UnixConn
	greeted bool // s.mu holds it, as wake
	wake    bool // send no lines, only that there are some

	mu       sync.Mutex
	queue    [][]byte
	bytes    int
	nudged   bool // an empty line is in the queue
	finished bool // send what is in the queue, and no more
	cut      bool
	signal   chan struct{} // one element
}

func newViewer(s *Server, c *net.UnixConn) *viewer {
	return &viewer{s: s, conn: c, signal: make(chan struct{}, 1)}
}

// push queues bytes, which are not changed any more. A viewer who has too much in the queue is cut off.
func (v *viewer) push(p []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.add(p)
}

func (v *viewer) add(p []byte) {
	if v.cut || v.finished {
		return
	}
	if v.bytes > 0 && v.bytes+len(p) > v.s.opts.MaxQueue {
		v.cut, v.queue = true, nil
		v.conn.Close()
	} else {
		v.queue = append(v.queue, p)
		v.bytes += len(p)
	}
	v.ring()
}

// nudge queues an empty line, unless one is there.
func (v *viewer) nudge() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.nudged {
		v.nudged = true
		v.add(lineEnd)
	}
}

// finish has the viewer sent what is in the queue, and then closed.
func (v *viewer) finish() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.finished = true
	_ = v.conn.SetDeadline(time.Now().Add(leave))
	v.ring()
}

func (v *viewer) ring() {
	select {
	case v.signal <- struct{}{}:
	default:
	}
}

// take returns what is queued. more is false when nothing comes after it.
func (v *viewer) take() (list [][]byte, more bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	list, v.queue, v.nudged = v.queue, nil, false
	return list, !v.finished && !v.cut
}

// patience sets how long the next write may take, unless the tap ends: then finish has.
func (v *viewer) patience() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.finished {
		_ = v.conn.SetWriteDeadline(time.Now().Add(stuck))
	}
}

// sent makes room.
func (v *viewer) sent(n int) {
	v.mu.Lock()
	v.bytes -= n
	v.mu.Unlock()
}

// write sends what is queued until the viewer is cut off, or the tap ends.
func (v *viewer) write() {
	defer v.s.drop(v)
	defer v.conn.Close()
	for range v.signal {
		list, more := v.take()
		for _, p := range list {
			v.patience()
			if _, err := v.conn.Write(p); err != nil {
				return
			}
			v.sent(len(p))
		}
		if !more {
			return
		}
	}
}

// read takes what the viewer asks for, until it goes.
func (v *viewer) read() {
	defer func() {
		v.mu.Lock()
		v.cut, v.queue = true, nil
		v.ring()
		v.mu.Unlock()
	}()
	lines := bufio.NewScanner(v.conn)
	lines.Buffer(make([]byte, 0, 512), maxControl)
	for lines.Scan() {
		var c control
		if json.Unmarshal(lines.Bytes(), &c) == nil { // what newer viewers may say is passed over
			v.s.control(v, c)
		}
	}
}
