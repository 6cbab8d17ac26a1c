package httpserve

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// boundConn wraps c as the listener wraps an accepted connection.
func boundConn(c net.Conn, writeTimeout time.Duration) *boundedConn {
	slots := make(chan struct{}, 1)
	slots <- struct{}{}
	return newBoundedConn(c, &connLimits{slots: slots, epoch: time.Now(), writeTimeout: writeTimeout})
}

// advance advances the clock of the bubble by d.
func advance(d time.Duration) { <-time.After(d) }

// deadlineLog sets deadlines on c, reads from it and writes to remote at times that the seed
// chooses, and returns the results of the reads.
func deadlineLog(c, remote net.Conn, seed uint64) (log []string) {
	random := rand.New(rand.NewPCG(seed, 0))
	began := time.Now()
	results := make(chan string, 1)
	reading, sent := false, false
	collect := func() {
		synctest.Wait()
		select {
		case r := <-results:
			log = append(log, r)
			reading = false
		default:
		}
	}
	for range 40 {
		switch random.IntN(5) {
		case 0:
			c.SetReadDeadline(time.Time{})
		case 1:
			c.SetReadDeadline(time.Unix(1, 0))
		case 2: // the millisecond keeps the deadline from coinciding with another event
			c.SetReadDeadline(time.Now().Add(time.Duration(random.IntN(60))*time.Second + time.Millisecond))
		case 3:
			if !reading {
				reading, sent = true, false
				go func() {
					var b [1]byte
					n, err := c.Read(b[:])
					results <- fmt.Sprint(time.Since(began), n, errors.Is(err, os.ErrDeadlineExceeded), err == nil)
				}()
			}
		case 4:
			if collect(); reading && !sent {
				sent = true
				go remote.Write([]byte{0})
			}
		}
		collect()
		advance(time.Duration(random.IntN(20)) * time.Second)
		collect()
	}
	c.Close()
	remote.Close()
	collect()
	return log
}

// TestBoundedConnDeadlines shows that a boundedConn's deadlines look to its caller like those of
// the connection beneath.
func TestBoundedConnDeadlines(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			c, remote := net.Pipe()
			want := deadlineLog(c, remote, seed)
			c, remote = net.Pipe()
			got := deadlineLog(boundConn(c, 0), remote, seed)
			if !slices.Equal(got, want) {
				t.Errorf("seed %d:\n got %q\nwant %q", seed, got, want)
			}
		})
		if t.Failed() {
			return
		}
	}
}

// A countingConn counts the deadlines that it is given.
type countingConn struct {
	net.Conn
	deadlines int
}

func (c *countingConn) SetReadDeadline(t time.Time) error {
	c.deadlines++
	return c.Conn.SetReadDeadline(t)
}

func (c *countingConn) SetWriteDeadline(t time.Time) error {
	c.deadlines++
	return c.Conn.SetWriteDeadline(t)
}

// TestBoundedConnFewDeadlines shows that a deadline in the future is not set again at each read and
// write.
func TestBoundedConnFewDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local, remote := net.Pipe()
		counting := &countingConn{Conn: local}
		c := boundConn(counting, 0)
		go io.Copy(remote, remote)
		defer remote.Close()
		defer c.Close()
		for range 100 {
			c.SetWriteDeadline(time.Now().Add(10 * time.Second))
			c.SetReadDeadline(time.Now().Add(time.Minute))
			b := []byte{0}
			if _, err := c.Write(b); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c, b); err != nil {
				t.Fatal(err)
			}
			c.SetReadDeadline(time.Unix(1, 0)) // net/http does this when it stops reading
			c.SetDeadline(time.Time{})
			advance(50 * time.Millisecond)
		}
		if counting.deadlines != 2 {
			t.Errorf("the connection was given %d deadlines, want 2", counting.deadlines)
		}
	})
}

// TestBoundedConnWriteContinues shows that a deadline that was set before a write, and passes
// during it, does not apply: all of the data is written.
func TestBoundedConnWriteContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local, remote := net.Pipe()
		c := boundConn(local, 0)
		defer remote.Close()
		defer c.Close()
		read := func(n int) string {
			b := make([]byte, n)
			io.ReadFull(remote, b)
			return string(b)
		}
		c.SetWriteDeadline(time.Now().Add(time.Second))
		go c.Write([]byte("a"))
		got := read(1)
		c.SetWriteDeadline(time.Now().Add(10 * time.Second))
		result := make(chan error, 1)
		go func() {
			n, err := c.Write([]byte("bcdefghij"))
			if n != 9 {
				t.Errorf("%d bytes were written, want 9", n)
			}
			result <- err
		}()
		got += read(4)
		advance(5 * time.Second)
		got += read(5)
		if err := <-result; err != nil || got != "abcdefghij" {
			t.Errorf("got %q, %v", got, err)
		}
		began := time.Now()
		if _, err := c.Write([]byte("k")); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != 5*time.Second {
			t.Errorf("a write that nobody reads ended after %v with %v", time.Since(began), err)
		}
	})
}

// TestBoundedConnTimeout shows that, without a deadline, a write to a slow reader continues and a
// write to a peer that does not read fails.
func TestBoundedConnTimeout(t *testing.T) {
	const writeTimeout = 10 * time.Second
	ends := func(c net.Conn, b []byte) (time.Duration, error) {
		began := time.Now()
		_, err := c.Write(b)
		return time.Since(began), err
	}
	tests := []struct {
		name string
		do   func(c, remote net.Conn) (time.Duration, error)
		want time.Duration // zero means that no error is expected
	}{
		{"first write", func(c, _ net.Conn) (time.Duration, error) { return ends(c, []byte("a")) }, writeTimeout},
		{"second write within the timeout", func(c, remote net.Conn) (time.Duration, error) {
			go io.ReadFull(remote, make([]byte, 1))
			c.Write([]byte("a"))
			advance(7 * time.Second)
			return ends(c, []byte("b"))
		}, 13 * time.Second},
		{"second write after the timeout", func(c, remote net.Conn) (time.Duration, error) {
			go io.ReadFull(remote, make([]byte, 1))
			c.Write([]byte("a"))
			advance(time.Hour)
			return ends(c, []byte("b"))
		}, writeTimeout},
		{"slow reader", func(c, remote net.Conn) (time.Duration, error) {
			go func() {
				b := make([]byte, maxWrite)
				for range 20 {
					advance(writeTimeout - time.Second)
					io.ReadFull(remote, b)
				}
			}()
			return ends(c, make([]byte, 20*maxWrite))
		}, 0},
		{"deadline set and cleared", func(c, remote net.Conn) (time.Duration, error) {
			c.SetWriteDeadline(time.Now().Add(time.Second))
			c.SetWriteDeadline(time.Time{})
			return ends(c, []byte("a"))
		}, writeTimeout},
		{"distant deadline set and cleared", func(c, remote net.Conn) (time.Duration, error) {
			c.SetWriteDeadline(time.Now().Add(time.Hour))
			go io.ReadFull(remote, make([]byte, 1))
			c.Write([]byte("a"))
			c.SetWriteDeadline(time.Time{})
			return ends(c, []byte("b"))
		}, writeTimeout},
		{"deadline cleared during the write", func(c, remote net.Conn) (time.Duration, error) {
			c.SetWriteDeadline(time.Now().Add(time.Hour))
			go func() {
				advance(time.Second)
				c.SetWriteDeadline(time.Time{})
			}()
			return ends(c, []byte("a"))
		}, writeTimeout + time.Second + writeTimeout},
		{"deadline set", func(c, remote net.Conn) (time.Duration, error) {
			c.SetWriteDeadline(time.Now().Add(time.Minute))
			return ends(c, []byte("a"))
		}, time.Minute},
		{"implied deadline cleared for a hijacker", func(c, remote net.Conn) (time.Duration, error) {
			clearImplied(c)
			go func() {
				advance(time.Hour)
				io.ReadFull(remote, make([]byte, 1))
			}()
			return ends(c, []byte("a"))
		}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				local, remote := net.Pipe()
				c := boundConn(local, writeTimeout)
				defer c.Close()
				defer remote.Close()
				took, err := tt.do(c, remote)
				switch {
				case tt.want == 0 && err != nil:
					t.Errorf("the write ended after %v with %v", took, err)
				case tt.want != 0 && (took != tt.want || !errors.Is(err, os.ErrDeadlineExceeded)):
					t.Errorf("the write took %v, with %v, want %v", took, err, tt.want)
				}
			})
		})
	}
}

// A stickyConn fails all writes after one has exceeded its deadline, like a tls.Conn.
type stickyConn struct {
	net.Conn
	broken bool
}

func (c *stickyConn) Write(b []byte) (int, error) {
	if c.broken {
		return 0, os.ErrDeadlineExceeded
	}
	n, err := c.Conn.Write(b)
	c.broken = err != nil
	return n, err
}

// An unwrappingConn exposes the connection that it wraps.
type unwrappingConn struct{ *stickyConn }

func (c unwrappingConn) NetConn() net.Conn { return c.Conn }

func TestBoundedConnBroken(t *testing.T) {
	unwrapping := func(c *stickyConn) net.Conn { return unwrappingConn{c} }
	opaque := func(c *stickyConn) net.Conn { return c }
	none := func(net.Conn) {}
	deadlineIn := func(d time.Duration) func(net.Conn) {
		return func(c net.Conn) { c.SetWriteDeadline(time.Now().Add(d)) }
	}
	tests := []struct {
		name        string
		wrap        func(*stickyConn) net.Conn
		every       time.Duration    // how long the peer takes to read one write
		setDeadline []func(net.Conn) // called before each write to change its deadline
		errs        int              // number of writes that fail
	}{
		{"implied", unwrapping, 2 * time.Second, []func(net.Conn){none, none, none}, 0},
		{"implied deadline passes", unwrapping, time.Hour, []func(net.Conn){none}, 1},
		{"deadline set before each write", unwrapping, 2 * time.Second, []func(net.Conn){deadlineIn(3 * time.Second), deadlineIn(3 * time.Second), func(c net.Conn) { c.SetWriteDeadline(time.Time{}) }}, 0},
		{"deadline extended during the write", unwrapping, 2 * time.Second, []func(net.Conn){func(c net.Conn) {
			c.SetWriteDeadline(time.Now().Add(time.Second))
			go func() {
				advance(time.Second / 2)
				c.SetWriteDeadline(time.Now().Add(time.Minute))
			}()
		}}, 0},
		{"no NetConn, implied deadline", opaque, 2 * time.Second, []func(net.Conn){none, none, none}, 1},
		{"no NetConn, deadline set before each write", opaque, 2 * time.Second, []func(net.Conn){deadlineIn(3 * time.Second), deadlineIn(time.Hour)}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				local, remote := net.Pipe()
				c := boundConn(tt.wrap(&stickyConn{Conn: local}), 5*time.Second)
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					for err := error(nil); err == nil; _, err = remote.Read(make([]byte, 1)) {
						advance(tt.every)
					}
				}()
				errs := 0
				for _, want := range tt.setDeadline {
					want(c)
					if _, err := c.Write([]byte("a")); err != nil {
						errs++
					}
				}
				c.Close()
				<-ended
				if errs != tt.errs {
					t.Errorf("%d writes failed, want %d", errs, tt.errs)
				}
			})
		})
	}
}
