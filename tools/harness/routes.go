//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// A network is between the engines of the nodes. A node reaches the others at addresses of the
// network, which forwards the bytes, or delays or drops them as set by split and delay.
type network struct {
	// processes returns the process id of each node, or 0.
	processes func() []int

	mu sync.Mutex
	// cut has the pairs of nodes of which what the first one sends does not reach the second.
	cut map[[2]int]bool
	// slow is how long bytes take from or to a node.
	slow    map[int]time.Duration
	changed chan struct{}
	closed  bool
	conns   map[net.Conn]struct{}

	listeners []net.Listener
	wg        sync.WaitGroup
}

// newNetwork listens at an address for each node, and forwards connections to the node's own address.
// Both have the same port. So a node that gets the address of a second node from a third one considers
// it known, and does not connect to it directly.
func newNetwork(count int, processes func() []int) (n *network, err error) {
	n = &network{processes: processes, cut: make(map[[2]int]bool), slow: make(map[int]time.Duration), changed: make(chan struct{}), conns: make(map[net.Conn]struct{})}
	for i := range count {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			n.close()
			return nil, err
		}
		n.listeners = append(n.listeners, l)
		n.wg.Go(func() { n.accept(l, i) })
	}
	return n, nil
}

// address is where the others reach node i.
func (n *network) address(i int) string { return n.listeners[i].Addr().String() }

// listen is where node i listens.
func (n *network) listen(i int) string {
	_, port, _ := net.SplitHostPort(n.address(i)) // it is the address of a listener
	return net.JoinHostPort("127.0.0.2", port)
}

// split cuts nodes off from those of other groups. Without groups it connects all.
func (n *network) split(groups ...[]int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cut)
	for i, g := range groups {
		for _, h := range groups[i+1:] {
			for _, a := range g {
				for _, b := range h {
					n.cut[[2]int{a, b}], n.cut[[2]int{b, a}] = true, true
				}
			}
		}
	}
	n.changedLocked()
}

// drop holds back what node a sends to node b, until split.
func (n *network) drop(a, b int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[[2]int{a, b}] = true
	n.changedLocked()
}

// delay makes bytes from and to node i take d longer.
func (n *network) delay(i int, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.slow[i] = d
	n.changedLocked()
}

func (n *network) changedLocked() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// state returns the faults that apply to bytes from node a to node b.
func (n *network) state(a, b int) (cut, closed bool, delay time.Duration, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return a != b && n.cut[[2]int{a, b}], n.closed, max(n.slow[a], n.slow[b]), n.changed
}

// pass waits until bytes can pass from node a to node b. It returns false if ended is closed or the
// network is.
func (n *network) pass(a, b int, ended <-chan struct{}) bool {
	for {
		cut, closed, _, changed := n.state(a, b)
		if closed {
			return false
		}
		if !cut {
			return true
		}
		select {
		case <-changed:
		case <-ended:
			return false
		}
	}
}

func (n *network) accept(l net.Listener, to int) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		if !n.add(c) {
			return
		}
		n.wg.Go(func() {
			defer n.remove(c)
			from, err := n.owner(c)
			if err != nil || !n.pass(from, to, nil) {
				return
			}
			out, err := net.DialTimeout("tcp", n.listen(to), time.Second)
			if err != nil || !n.add(out) {
				return
			}
			defer n.remove(out)
			n.join(c, out, from, to)
		})
	}
}

// join passes bytes in both directions until one ends.
func (n *network) join(a, b net.Conn, from, to int) {
	ended := make(chan struct{})
	end := sync.OnceFunc(func() {
		close(ended)
		a.Close()
		b.Close()
	})
	var wg sync.WaitGroup
	wg.Go(func() { n.pump(a, b, from, to, ended); end() })
	wg.Go(func() { n.pump(b, a, to, from, ended); end() })
	wg.Wait()
}

// pump passes bytes on. Those on their way are bounded: 64 reads.
func (n *network) pump(src, dst net.Conn, from, to int, ended <-chan struct{}) {
	type chunk struct {
		due  time.Time
		data []byte
	}
	chunks := make(chan chunk, 64)
	var wg sync.WaitGroup
	defer wg.Wait()
	done := make(chan struct{}) // the caller closes ended only after pump has returned
	defer close(done)
	wg.Go(func() {
		defer close(chunks)
		buf := make([]byte, 32<<10)
		for {
			k, err := src.Read(buf)
			_, _, delay, _ := n.state(from, to)
			if k > 0 {
				select {
				case chunks <- chunk{time.Now().Add(delay), bytes.Clone(buf[:k])}:
				case <-ended:
					return
				case <-done:
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	defer src.Close() // ends the reader
	for c := range chunks {
		if wait := time.Until(c.due); wait > 0 { // a timer takes its own time
			select {
			case <-time.After(wait):
			case <-ended:
				return
			}
		}
		if !n.pass(from, to, ended) {
			return
		}
		if _, err := dst.Write(c.data); err != nil {
			return
		}
	}
}

func (n *network) add(c net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		c.Close()
		return false
	}
	n.conns[c] = struct{}{}
	return true
}

func (n *network) remove(c net.Conn) {
	c.Close()
	n.mu.Lock()
	delete(n.conns, c)
	n.mu.Unlock()
}

// close ends all connections.
func (n *network) close() {
	n.mu.Lock()
	n.closed = true
	n.changedLocked()
	for c := range n.conns {
		c.Close()
	}
	n.mu.Unlock()
	for _, l := range n.listeners {
		l.Close()
	}
	n.wg.Wait()
}

var errNoOwner = errors.New("a connection belongs to no node")

// owner returns the node whose process has opened a connection to the network. The engine says who
// it is only in its own protocol, so owner asks the kernel.
func (n *network) owner(c net.Conn) (int, error) {
	inode, err := socketInode(c.RemoteAddr().(*net.TCPAddr), c.LocalAddr().(*net.TCPAddr))
	if err != nil {
		return 0, err
	}
	want := fmt.Sprintf("socket:[%d]", inode)
	for i, pid := range n.processes() {
		if pid == 0 {
			continue
		}
		dir := fmt.Sprintf("/proc/%d/fd/", pid)
		files, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, f := range files {
			if link, err := os.Readlink(dir + f.Name()); err == nil && link == want {
				return i, nil
			}
		}
	}
	return 0, errNoOwner
}

// socketInode returns the inode of the socket of a connection on IPv4, from the addresses that its
// owner sees. It asks for this socket by sock_diag(7): to read /proc/net/tcp takes the kernel up to
// 100 ms, in which calls would wait.
func socketInode(local, remote *net.TCPAddr) (uint32, error) {
	const (
		netlinkSockDiag  = 4
		sockDiagByFamily = 20
		requestLen       = syscall.SizeofNlMsghdr + 56
		idOffset         = 8  // in struct inet_diag_req_v2
		inodeOffset      = 68 // in struct inet_diag_msg
	)
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, netlinkSockDiag)
	if err != nil {
		return 0, fmt.Errorf("sock_diag: %w", err)
	}
	defer syscall.Close(fd)
	q := make([]byte, requestLen)
	order := binary.NativeEndian
	order.PutUint32(q, requestLen)
	order.PutUint16(q[4:], sockDiagByFamily)
	order.PutUint16(q[6:], syscall.NLM_F_REQUEST)
	body := q[syscall.SizeofNlMsghdr:]
	body[0], body[1] = syscall.AF_INET, syscall.IPPROTO_TCP
	order.PutUint32(body[4:], math.MaxUint32) // all states
	id := body[idOffset:]
	binary.BigEndian.PutUint16(id, uint16(local.Port))
	binary.BigEndian.PutUint16(id[2:], uint16(remote.Port))
	copy(id[4:], local.IP.To4())
	copy(id[20:], remote.IP.To4())
	order.PutUint64(id[40:], math.MaxUint64) // any cookie
	if err := syscall.Sendto(fd, q, 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return 0, fmt.Errorf("sock_diag: %w", err)
	}
	a := make([]byte, 4096)
	n, _, err := syscall.Recvfrom(fd, a, 0)
	switch {
	case err != nil:
		return 0, fmt.Errorf("sock_diag: %w", err)
	case n >= syscall.SizeofNlMsghdr+4 && order.Uint16(a[4:]) == syscall.NLMSG_ERROR:
		return 0, fmt.Errorf("sock_diag: %w", syscall.Errno(-int32(order.Uint32(a[syscall.SizeofNlMsghdr:]))))
	case n < syscall.SizeofNlMsghdr+inodeOffset+4:
		return 0, errors.New("sock_diag: the response is too short")
	}
	return order.Uint32(a[syscall.SizeofNlMsghdr+inodeOffset:]), nil
}
