package bridge

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/jsonrpc"
)

// TestDead: a connection that nothing comes by any more is made anew after a request has waited in vain, and not one whose server answers something.
func TestDead(t *testing.T) {
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`
	for _, tt := range []struct {
		name string
		dead bool
	}{{"dead", true}, {"busy", false}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFarm(t)
				b := f.bridge(with(legacy, func(o *Options) { o.CallTimeout = time.Minute }))
				client, _ := client0(t, b)
				client.send(hello)
				srv := f.next()
				handshake(client, srv)
				client.send(call)
				srv.wants(call)
				client.reads(`"id":1,"error"`, "has not answered")
				if tt.dead {
					swallow(srv)
					srv = f.next()
					srv.send(answering(srv.request("initialize"), `{"protocolVersion":"2025-11-25","capabilities":{}}`))
					srv.wants(confirmed)
				} else {
					srv.reads("notifications/cancelled")
					srv.send(answering(srv.request(`"ping"`), "{}"))
					<-time.After(time.Minute)
				}
				client.send(call)
				srv.wants(call)
				srv.send(answering("1", "{}"))
				client.wants(answering("1", "{}"))
			})
		})
	}
}

// TestDeadAgain: that an older connection was doubted, and ended by itself, does not keep the next one from being given up.
func TestDeadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &upstream{b: newFarm(t).bridge(with(legacy, nil))}
		l.ctx = t.Context()
		cuts := 0
		later := &connection{abort: func() { cuts++ }}
		l.conn = &connection{abort: func() {}}
		l.checkAlive(time.Now())
		l.conn = later // while the first is being found out
		<-time.After(aliveTimeout / 2)
		l.lastReceived.Store(time.Now().UnixNano()) // by the later one
		<-time.After(aliveTimeout)
		l.checkAlive(time.Now())
		<-time.After(2 * aliveTimeout)
		synctest.Wait()
		if cuts != 1 {
			t.Errorf("a dead connection was ended %d times, want once", cuts)
		}
	})
}

// TestNearSlow: a client on a socket that is slow, and takes more than a minute for a large message, is not given up.
func TestNearSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer ours.Close()
		want := bytes.Repeat([]byte("x"), 10*writeChunk+1)
		sent := make(chan error, 1)
		go func() {
			n, err := deadlineConn{theirs}.Write(want)
			if err == nil && n != len(want) {
				err = io.ErrShortWrite
			}
			sent <- err
			theirs.Close()
		}()
		var got []byte
		buf := make([]byte, writeChunk)
		for {
			<-time.After(writeTimeout / 2)
			n, err := ours.Read(buf)
			got = append(got, buf[:n]...)
			if err != nil {
				break
			}
		}
		if err := <-sent; err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes of %d came: %v", len(got), len(want), err)
		}
	})
}

// TestNearGone: a client on a socket that takes nothing of what it is sent, because it is gone without a word, is given up.
func TestNearGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		b := f.bridge(with(legacy, nil))
		l := &oneConn{conns: make(chan net.Conn, 1), over: make(chan struct{})}
		ours, theirs := net.Pipe()
		l.conns <- theirs
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- b.ServeListener(ctx, l, jsonrpc.FramingLine, 0) }()
		client := newPipe(t, ours)
		client.send(hello)
		srv := f.next()
		handshake(client, srv)
		srv.send(`{"jsonrpc":"2.0","method":"n","params":{"x":"` + strings.Repeat("x", 1<<20) + `"}}`)
		began := time.Now()
		if _, err := srv.f.ReadFrame(); err == nil || time.Since(began) > 2*writeTimeout {
			t.Errorf("the server's connection: %v after %v, want that it has ended", err, time.Since(began))
		}
		synctest.Wait()
		if n := len(clientsOf(b)); n != 0 {
			t.Errorf("%d clients", n)
		}
		cancel()
		if err := <-served; err != nil {
			t.Errorf("ServeListener: %v", err)
		}
	})
}

// oneConn is a listener in memory.
type oneConn struct {
	conns chan net.Conn
	over  chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.over:
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error {
	select {
	case <-l.over:
		return io.ErrClosedPipe
	default:
		close(l.over)
		return nil
	}
}

func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }
