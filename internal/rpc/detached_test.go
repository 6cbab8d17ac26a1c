package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/jsonrpc"

	"github.com/google/go-cmp/cmp"
)

// A recordingSender is a Sender that records messages.
type recordingSender struct {
	mu   sync.Mutex
	got  []string
	err  error
	seen chan struct{}
}

func newRecordingSender() *recordingSender { return &recordingSender{seen: make(chan struct{}, 100)} }

func (s *recordingSender) Send(message []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	s.got = append(s.got, string(message))
	s.seen <- struct{}{}
	return nil
}

func (s *recordingSender) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.got
	s.got = nil
	return got
}

// parsed parses text as one message.
func parsed(t *testing.T, text string) *jsonrpc.Message {
	t.Helper()
	m := new(jsonrpc.Message)
	if err := jsonrpc.Parse([]byte(text), m, 0); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

// detach returns a detached connection whose handler is f, and the Sender for its messages that
// belong to no request.
func detach(t *testing.T, f HandlerFunc) (*Conn, *recordingSender) {
	t.Helper()
	out := newRecordingSender()
	c := NewDetached(out, &Options{Handler: f})
	t.Cleanup(func() { c.Close() })
	return c, out
}

// testKey is the key of a value that handlers must see.
type testKey struct{}

func TestDeliver(t *testing.T) {
	c, out := detach(t, func(ctx context.Context, r *Request) ([]byte, error) {
		switch string(r.Method) {
		case "nothing":
			return nil, nil
		case "fail":
			return nil, jsonrpc.Errorf(-5, "no")
		case "panic":
			panic("oops")
		case "value":
			return fmt.Appendf(nil, "%q", ctx.Value(testKey{})), nil
		case "batch":
			return fmt.Appendf(nil, "%v", r.InBatch()), nil
		}
		if err := RequestContext(ctx).Notify("news", []byte(`{"a":1}`)); err != nil {
			return nil, err
		}
		return r.Params, nil
	})
	ctx := context.WithValue(t.Context(), testKey{}, "v")
	var reused Delivery
	for _, tt := range []struct {
		text     string
		batch    bool
		own      []string // sent by the Sender of the request
		response string
		err      string
	}{
		{text: `{"jsonrpc":"2.0","id":1,"method":"echo","params":[1]}`, own: []string{`{"jsonrpc":"2.0","method":"news","params":{"a":1}}`}, response: result(1, "[1]")},
		{text: `{"jsonrpc":"2.0","id":"x","method":"nothing"}`, response: `{"jsonrpc":"2.0","id":"x","result":null}`},
		{text: `{"jsonrpc":"2.0","id":2,"method":"fail"}`, response: failure(2, -5, "no", ""), err: "no"},
		{text: `{"jsonrpc":"2.0","id":3,"method":"panic"}`, response: failure(3, jsonrpc.CodeInternalError, "internal error", `{"exception":"panic"}`), err: "handler panicked: oops"},
		{text: `{"jsonrpc":"2.0","id":4,"method":"value"}`, response: result(4, `"v"`)},
		{text: `{"jsonrpc":"2.0","id":5,"method":"batch"}`, batch: true, response: result(5, "true")},
	} {
		for i := range 4 {
			own := newRecordingSender()
			d := &reused // reused for each message
			if i&1 == 0 {
				d = &Delivery{Message: parsed(t, tt.text)}
			} else if err := d.Parse([]byte(tt.text), 0); err != nil {
				t.Fatal(err)
			}
			d.Sender, d.Untracked, d.Batch = own, i&2 == 0, tt.batch
			got, err := c.Deliver(ctx, d, []byte("> "))
			if string(got) != "> "+tt.response {
				t.Errorf("%s: response %s, want %s", tt.text, got, tt.response)
			}
			if fmt.Sprint(err) != tt.err && (err != nil || tt.err != "") {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("%s: error %v, want %q", tt.text, err, tt.err)
				}
			}
			if diff := cmp.Diff(tt.own, own.take()); diff != "" {
				t.Errorf("%s: sent by the request's Sender (-want +got):\n%s", tt.text, diff)
			}
		}
	}
	if got := out.take(); got != nil {
		t.Errorf("sent by the connection's Sender: %s", got)
	}
	if n := c.inFlight.count.Load(); n != 0 {
		t.Errorf("%d requests are listed when none is in flight", n)
	}
}

func TestDeliverCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kept context.Context
		c, out := detach(t, func(ctx context.Context, r *Request) ([]byte, error) {
			kept = ctx
			return RequestContext(ctx).conn.Call(ctx, "ask", nil)
		})
		own := newRecordingSender()
		var wg sync.WaitGroup
		wg.Go(func() {
			got, err := c.Deliver(t.Context(), &Delivery{Message: parsed(t, request(1, "m")), Sender: own}, nil)
			if string(got) != result(1, `"answer"`) || err != nil {
				t.Errorf("response %s, %v", got, err)
			}
		})
		synctest.Wait()
		if diff := cmp.Diff([]string{request(1, "ask")}, own.take()); diff != "" {
			t.Fatalf("sent by the request's Sender (-want +got):\n%s", diff)
		}
		if _, err := c.Deliver(t.Context(), &Delivery{Message: parsed(t, request(1, "m"))}, nil); err != errDuplicateID {
			t.Errorf("a second request with the same id: %v", err)
		}
		if !c.DeliverResponse(parsed(t, result(1, `"answer"`))) || c.DeliverResponse(parsed(t, result(1, `"again"`))) {
			t.Error("a response was accepted twice or for another call")
		}
		wg.Wait()
		if err := RequestContext(kept).Notify("late", nil); !errors.Is(err, jsonrpc.ErrRequestEnded) {
			t.Errorf("notification after the response: %v", err)
		}
		// The connection's Sender sends messages that belong to no request.
		if err := c.Notify(t.Context(), "changed", nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() {
			if _, err := c.Call(ctx, "roots", nil); !errors.Is(err, context.Canceled) {
				t.Errorf("call: %v", err)
			}
		})
		synctest.Wait()
		cancel()
		wg.Wait()
		synctest.Wait()
		want := []string{`{"jsonrpc":"2.0","method":"changed"}`, request(2, "roots"), `{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":2}}`}
		if diff := cmp.Diff(want, out.take()); diff != "" {
			t.Errorf("sent by the connection's Sender (-want +got):\n%s", diff)
		}
	})
}

// TestDeliverEnds shows that a request ends when it is canceled, when its context ends and when the
// connection ends.
func TestDeliverEnds(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(c *Conn, cancel func())
		want error
	}{
		{"canceled by the peer", func(c *Conn, _ func()) { c.DeliverNotification(t.Context(), parsed(t, cancelOf(1))) }, jsonrpc.ErrRequestEnded},
		{"context", func(_ *Conn, cancel func()) { cancel() }, context.Canceled},
		{"connection", func(c *Conn, _ func()) { c.Close() }, jsonrpc.ErrRequestEnded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := detach(t, func(ctx context.Context, r *Request) ([]byte, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				})
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				wg.Go(func() {
					response, err := c.Deliver(ctx, &Delivery{Message: parsed(t, request(1, "m"))}, nil)
					if !errors.Is(err, tt.want) || tt.want == jsonrpc.ErrRequestEnded && len(response) > 0 {
						t.Errorf("%s, %v, want %v", response, err, tt.want)
					}
				})
				synctest.Wait()
				tt.end(c, cancel)
				wg.Wait()
				cancel()
			})
		})
	}
}

func TestDeliverAfterClose(t *testing.T) {
	c, _ := detach(t, func(context.Context, *Request) ([]byte, error) { t.Error("called"); return nil, nil })
	c.Close()
	c.Close()
	c.DeliverNotification(t.Context(), parsed(t, `{"jsonrpc":"2.0","method":"n"}`))
	if _, err := c.Deliver(t.Context(), &Delivery{Message: parsed(t, request(1, "m"))}, nil); err == nil {
		t.Error("no error")
	}
	if _, err := c.Call(t.Context(), "m", nil); !errors.Is(err, jsonrpc.ErrClosed) {
		t.Errorf("call: %v", err)
	}
	select {
	case <-c.Draining():
	default:
		t.Error("Ending is open")
	}
}

func TestDeliverAllocations(t *testing.T) {
	c := NewDetached(newRecordingSender(), &Options{Handler: pong{}})
	defer c.Close()
	m := parsed(t, request(1, "ping"))
	dst := make([]byte, 0, 100)
	d := Delivery{Message: m, Untracked: true}
	if n := testing.AllocsPerRun(100, func() { c.Deliver(context.Background(), &d, dst) }); n > 1 {
		t.Errorf("%v allocations for a ping", n)
	}
}

// pong returns {} for every request.
type pong struct{}

func (pong) Prepare(*Request) *CostEstimate                { return Immediate }
func (pong) Handle(_ *Request, dst []byte) ([]byte, error) { return append(dst, "{}"...), nil }

// TestDeliverSenderFails shows that a message that cannot be sent does not end the connection, but
// fails the call that it belongs to.
func TestDeliverSenderFails(t *testing.T) {
	c, out := detach(t, func(context.Context, *Request) ([]byte, error) { return nil, nil })
	out.err = errors.New("the store is down")
	if _, err := c.Call(t.Context(), "roots", nil); !errors.Is(err, out.err) {
		t.Errorf("call: %v, want %v", err, out.err)
	}
	c.Notify(t.Context(), "lost", nil)
	c.Flush(t.Context())
	out.mu.Lock()
	out.err = nil
	out.mu.Unlock()
	c.Notify(t.Context(), "changed", nil)
	c.Flush(t.Context())
	if diff := cmp.Diff([]string{`{"jsonrpc":"2.0","method":"changed"}`}, out.take()); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
}

// TestReleaseUnsentCall shows that a call whose request was not sent ends once, so that its memory
// can serve other calls.
func TestReleaseUnsentCall(t *testing.T) {
	c, sender := detach(t, nil)
	sender.err = errors.New("gone")
	for range 3 {
		p, err := c.NewCall("ask")
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Send(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		if _, err := p.Result(); !errors.Is(err, sender.err) {
			t.Errorf("got %v, want %v", err, sender.err)
		}
		select {
		case <-p.Done():
			t.Error("Done has a second value")
		default:
		}
		p.Release()
	}
}

// TestDeliverNotificationWhileClosing shows that notifications during Close are handled or dropped
// without a race.
func TestDeliverNotificationWhileClosing(t *testing.T) {
	for range 200 {
		c := NewDetached(newRecordingSender(), &Options{Handler: goroutineHandler{}})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { c.DeliverNotification(context.Background(), parsed(t, `{"jsonrpc":"2.0","method":"n"}`)) })
		}
		c.Close()
		wg.Wait()
	}
}

// goroutineHandler handles every request on another goroutine.
type goroutineHandler struct{}

func (goroutineHandler) Prepare(*Request) *CostEstimate                { return nil }
func (goroutineHandler) Handle(_ *Request, dst []byte) ([]byte, error) { return dst, nil }

// TestOnUnsent shows that OnUnsent is called once for each response that is not sent.
func TestOnUnsent(t *testing.T) {
	var unsent atomic.Int32
	m := methods{
		"watched": func(_ context.Context, r *Request) (string, error) { // the last OnUnsent counts
			r.OnUnsent(func() { t.Error("only the last OnUnsent may be called") })
			r.OnUnsent(func() { unsent.Add(1) })
			elapse(time.Second)
			return `"done"`, nil
		},
	}
	for _, tt := range []struct {
		name string
		test func(p *peer)
		want int32
	}{
		{"answered", func(p *peer) {
			elapse(2 * time.Second)
			p.want(result(1, `"done"`))
		}, 0},
		{"canceled", func(p *peer) {
			p.send(cancelOf(1), cancelOf(1))
			elapse(2 * time.Second)
			p.want()
		}, 1},
		{"canceled after the response", func(p *peer) {
			elapse(2 * time.Second)
			p.send(cancelOf(1))
			p.want(result(1, `"done"`))
		}, 0},
		{"end of input", func(p *peer) {
			p.hangUp()
			p.wantEnd(nil)
			p.want(result(1, `"done"`))
		}, 0},
		{"drain timeout", func(p *peer) {
			p.conn.opts.DrainTimeout = time.Second / 2
			p.hangUp()
			p.ended()
			elapse(time.Second)
		}, 1},
		{"closed", func(p *peer) {
			p.conn.Close()
			elapse(time.Second)
		}, 1},
		{"canceled in a batch", func(p *peer) {
			p.send("[" + request(2, "watched") + "," + request(3, "ping!") + "]")
			p.pause()
			p.send(cancelOf(2))
			elapse(2 * time.Second)
			p.wantAnyOrder(result(1, `"done"`), "["+result(3, "{}")+"]")
		}, 1},
		{"other requests that reuse the memory of a canceled one", func(p *peer) {
			p.send(cancelOf(1))
			elapse(2 * time.Second)
			for i := range 10 {
				p.send(request(i, "slow"))
				p.pause()
				p.send(cancelOf(i))
				elapse(2 * time.Second)
			}
			p.want()
		}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			everyMode(t, func(t *testing.T, p *peer) {
				unsent.Store(0)
				p.send(request(1, "watched"))
				p.pause()
				tt.test(p)
				synctest.Wait()
				if n := unsent.Load(); n != tt.want {
					t.Errorf("got %d calls of OnUnsent, want %d", n, tt.want)
				}
			}, Options{}, m)
		})
	}
}

// TestDeliveryUnsent is TestOnUnsent for a transport that sends the responses itself.
func TestDeliveryUnsent(t *testing.T) {
	for _, tt := range []struct {
		name   string
		method string
		free   bool
		cancel bool
		sent   []bool // values that the transport passes to ReportSent
		want   int
	}{
		{"sent", "watched", true, false, []bool{true}, 0},
		{"unsent", "watched", true, false, []bool{false}, 1},
		{"unsent, reported twice", "watched", true, false, []bool{false, false}, 1},
		{"reported as sent, then unsent", "watched", true, false, []bool{true, false}, 0},
		{"no report", "watched", true, false, nil, 0},
		{"no OnUnsent", "other", true, false, []bool{false}, 0},
		{"canceled", "watched", false, true, nil, 1},
		{"canceled, unsent", "watched", false, true, []bool{false}, 1},
		{"listed, sent", "watched", false, false, []bool{true}, 0},
		{"listed, unsent", "watched", false, false, []bool{false}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			unsentCalls := 0
			var c *Conn
			c, _ = detach(t, func(_ context.Context, r *Request) ([]byte, error) {
				if string(r.Method) == "watched" {
					r.OnUnsent(func() { unsentCalls++ })
				}
				if tt.cancel {
					c.DeliverNotification(t.Context(), parsed(t, cancelOf(1)))
				}
				return nil, nil
			})
			var d Delivery
			// the reused Delivery has reported a response before
			for _, method := range []string{"watched", tt.method} {
				if err := d.Parse([]byte(request(1, method)), 0); err != nil {
					t.Fatal(err)
				}
				d.ReportSent(true)
				d.Untracked, unsentCalls = tt.free, 0
				c.Deliver(t.Context(), &d, nil)
			}
			for _, sent := range tt.sent {
				d.ReportSent(sent)
			}
			if unsentCalls != tt.want {
				t.Errorf("got %d calls of OnUnsent, want %d", unsentCalls, tt.want)
			}
		})
	}
}
