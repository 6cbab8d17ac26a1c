package bridge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/internal/json/jsonedit"
	"mcpwire/internal/test/pipes"
	"mcpwire/jsonrpc"
)

// TestDrainTimeout checks that each request without a response at the drain timeout gets one error,
// that the server gets a cancellation, and that Serve returns an error.
func TestDrainTimeout(t *testing.T) {
	for _, clientEra := range []Era{EraLegacy, EraModern} {
		for _, how := range []string{"end of input", "socket"} {
			t.Run(fmt.Sprintf("%v, %s", clientEra, how), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFakeServer(t)
					b := f.bridge(&Options{ServerEra: EraLegacy, DrainTimeout: 5 * time.Second})
					ours, theirs := net.Pipe()
					p := newPipe(t, ours)
					done := make(chan error, 1)
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					stop := cancel
					if how == "socket" {
						l := pipes.Listen()
						go func() { done <- b.ServeListener(ctx, l, jsonrpc.FramingLine, 0) }()
						l.Conns <- theirs
					} else {
						in := &endableConn{Conn: theirs, end: make(chan struct{})}
						stop = func() { close(in.end) }
						go func() { done <- b.Serve(context.Background(), jsonrpc.NewFramer(in, nil)) }()
					}
					meta := "," + modernMeta
					var srv *pipe
					if clientEra == EraLegacy {
						meta = ""
						p.send(initialize)
						srv = f.next()
						handshake(p, srv)
					}
					call := func(id string) string {
						return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"t","arguments":{}` + meta + `}}`
					}
					p.send(call("1"))
					if srv == nil {
						srv = f.next()
						id := srv.request(`"method":"initialize"`)
						srv.send(resultFor(id, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}`))
						srv.reads("notifications/initialized")
					}
					srv.reads("tools/call")
					p.send(call("2"), call("3"))
					second := srv.request("tools/call")
					srv.reads("tools/call")
					began := time.Now()
					stop()
					srv.send(resultFor(second, `{"content":[]}`))
					p.reads(`"id":2,"result"`)
					got := map[string]bool{}
					for range 2 {
						line := p.reads(`"error":{"code":-32603,"message":"shutting down: the request did not finish within 5s"}`)
						got[string(jsonedit.Locate([]byte(line), "id").Of([]byte(line)))] = true
					}
					if !got["1"] || !got["3"] {
						t.Errorf("errors: got ids %v, want 1 and 3", got)
					}
					srv.reads("notifications/cancelled")
					srv.reads("notifications/cancelled")
					late, ok := errors.AsType[*jsonrpc.DrainError](<-done)
					if !ok || late.Requests != 2 || late.After != 5*time.Second {
						t.Errorf("Serve = %v", late)
					}
					if d := time.Since(began); d != 5*time.Second {
						t.Errorf("Serve took %v, want 5 s", d)
					}
				})
			})
		}
	}
}

// TestServeErrors checks that the error of Serve is the reason for which the client's connection
// ended.
func TestServeErrors(t *testing.T) {
	stopped := errors.New("stopped")
	for _, tt := range []struct {
		name string
		// pending means that a request is in flight.
		pending bool
		end     func(b *Bridge, in *endableConn, cancel context.CancelCauseFunc)
		want    error
	}{
		{"end of input", false, func(_ *Bridge, in *endableConn, _ context.CancelCauseFunc) { close(in.end) }, nil},
		{"end of ctx", false, func(_ *Bridge, _ *endableConn, cancel context.CancelCauseFunc) { cancel(stopped) }, stopped},
		{"end of ctx while draining", true, func(_ *Bridge, in *endableConn, cancel context.CancelCauseFunc) {
			close(in.end)
			synctest.Wait()
			cancel(stopped)
		}, stopped},
		{"bridge closed", false, func(b *Bridge, _ *endableConn, _ context.CancelCauseFunc) { b.Close() }, ErrClosed},
		{"bridge closed while draining", true, func(b *Bridge, in *endableConn, _ context.CancelCauseFunc) {
			close(in.end)
			synctest.Wait()
			b.Close()
		}, ErrClosed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer(t)
				b := f.bridge(with(legacy, nil))
				ours, theirs := net.Pipe()
				in := &endableConn{Conn: theirs, end: make(chan struct{})}
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				done := make(chan error, 1)
				go func() { done <- b.Serve(ctx, jsonrpc.NewFramer(in, nil)) }()
				p := newPipe(t, ours)
				p.send(initialize)
				srv := f.next()
				handshake(p, srv)
				if tt.pending {
					p.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
					srv.reads("ping")
				}
				go func() { // read the bridge's messages to the client
					for {
						if _, err := p.f.ReadFrame(); err != nil {
							return
						}
					}
				}()
				synctest.Wait()
				began := time.Now()
				tt.end(b, in, cancel)
				if err := <-done; err != tt.want || time.Since(began) > closeTimeout {
					t.Errorf("got %v after %v, want %v", err, time.Since(began), tt.want)
				}
			})
		})
	}
}

// TestServeUnread checks that Serve ends soon after the bridge ended a client that does not read.
func TestServeUnread(t *testing.T) {
	closeBridge := func(b *Bridge, _ *endableConn, _ *pipe) { b.Close() }
	for _, tt := range []struct {
		name   string
		shared bool
		end    func(b *Bridge, in *endableConn, srv *pipe)
	}{
		{"bridge closed", false, closeBridge},
		{"bridge closed, shared", true, closeBridge},
		{"bridge closed while draining, shared", true, func(b *Bridge, in *endableConn, _ *pipe) {
			close(in.end)
			synctest.Wait()
			b.Close()
		}},
		{"outbox full", true, func(_ *Bridge, _ *endableConn, srv *pipe) {
			for range 2 {
				srv.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"` + strings.Repeat("x", maxOutbox) + `"}}`)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer(t)
				b := f.bridge(with(legacy, func(o *Options) { o.Shared = tt.shared }))
				ours, theirs := net.Pipe()
				in := &endableConn{Conn: theirs, end: make(chan struct{})}
				done := make(chan error, 1)
				go func() { done <- b.Serve(t.Context(), jsonrpc.NewFramer(in, nil)) }()
				p := newPipe(t, ours)
				p.send(initialize)
				srv := f.next()
				srv.send(resultFor(srv.request(`"initialize"`), `{"protocolVersion":"2025-11-25","capabilities":{}}`))
				p.reads(`"result"`)
				p.send(initialized)
				srv.reads("initialized")
				if tt.shared { // without an outbox, the error for the request waits for the client too
					p.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
					srv.reads("tools/list")
				}
				srv.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"unread"}}`)
				synctest.Wait() // the bridge writes the notification
				began := time.Now()
				tt.end(b, in, srv)
				if err := <-done; err != ErrClosed || time.Since(began) > closeTimeout {
					t.Errorf("got %v after %v, want %v after %v at most", err, time.Since(began), ErrClosed, closeTimeout)
				}
			})
		})
	}
}

// TestServeFull checks that the error of a client above the limit names the limit, and differs from
// the error of a closed bridge.
func TestServeFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		b := f.bridge(with(legacy, func(o *Options) { o.MaxSessions = 1 }))
		dialPipe(t, b)
		synctest.Wait()
		p, done := dialPipe(t, b)
		p.reads("too many clients")
		if err := <-done; !errors.Is(err, ErrFull) || errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), "too many clients") {
			t.Errorf("above the limit: got %v", err)
		}
		b.Close()
		p, done = dialPipe(t, b)
		p.reads("the bridge is shutting down")
		if err := <-done; err != ErrClosed {
			t.Errorf("closed bridge: got %v", err)
		}
	})
}

// An endableConn is a connection whose input can be ended, as a signal ends standard input.
type endableConn struct {
	net.Conn
	end chan struct{}
}

func (c *endableConn) Read(p []byte) (int, error) {
	type result struct {
		n   int
		err error
	}
	read := make(chan result, 1)
	buf := make([]byte, len(p))
	go func() {
		n, err := c.Conn.Read(buf)
		read <- result{n, err}
	}()
	select {
	case r := <-read:
		return copy(p, buf[:r.n]), r.err
	case <-c.end:
		return 0, fmt.Errorf("stopped: %w", net.ErrClosed)
	}
}
