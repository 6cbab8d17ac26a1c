package jsonrpc

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestOnUnsent: the handler is told once of an answer that is not sent, and of no other.
func TestOnUnsent(t *testing.T) {
	var unsent atomic.Int32
	m := methods{
		"watched": func(_ context.Context, r *Request) (string, error) { // it notices nothing
			r.OnUnsent(func() { t.Error("it is the last call that counts") })
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
		{"cancelled", func(p *peer) {
			p.send(cancelOf(1), cancelOf(1))
			elapse(2 * time.Second)
			p.want()
		}, 1},
		{"cancelled when it was answered", func(p *peer) {
			elapse(2 * time.Second)
			p.send(cancelOf(1))
			p.want(result(1, `"done"`))
		}, 0},
		{"end of input", func(p *peer) {
			p.hangUp()
			p.wantEnd(nil)
			p.want(result(1, `"done"`))
		}, 0},
		{"cut off", func(p *peer) {
			p.conn.opts.DrainTimeout = time.Second / 2
			p.hangUp()
			p.ended()
			elapse(time.Second)
		}, 1},
		{"closed", func(p *peer) {
			p.conn.Close()
			elapse(time.Second)
		}, 1},
		{"cancelled in a batch", func(p *peer) {
			p.send("[" + request(2, "watched") + "," + request(3, "ping!") + "]")
			p.pause()
			p.send(cancelOf(2))
			elapse(2 * time.Second)
			p.wantAnyOrder(result(1, `"done"`), "["+result(3, "{}")+"]")
		}, 1},
		{"others, with the memory of one that was cancelled", func(p *peer) {
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
					t.Errorf("told %d times, want %d", n, tt.want)
				}
			}, Options{}, m)
		})
	}
}

// TestDeliveryUnsent: the same where the transport sends the answers.
func TestDeliveryUnsent(t *testing.T) {
	for _, tt := range []struct {
		name   string
		method string
		free   bool
		cancel bool
		sent   []bool // what the transport says
		want   int
	}{
		{"sent", "watched", true, false, []bool{true}, 0},
		{"not sent", "watched", true, false, []bool{false}, 1},
		{"not sent, said twice", "watched", true, false, []bool{false, false}, 1},
		{"sent, and taken back", "watched", true, false, []bool{true, false}, 0},
		{"nothing is said", "watched", true, false, nil, 0},
		{"nobody wants to know", "other", true, false, []bool{false}, 0},
		{"cancelled", "watched", false, true, nil, 1},
		{"cancelled, and not sent", "watched", false, true, []bool{false}, 1},
		{"listed, sent", "watched", false, false, []bool{true}, 0},
		{"listed, not sent", "watched", false, false, []bool{false}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			told := 0
			var c *Conn
			c, _ = detach(t, func(_ context.Context, r *Request) ([]byte, error) {
				if string(r.Method) == "watched" {
					r.OnUnsent(func() { told++ })
				}
				if tt.cancel {
					c.DeliverNotification(t.Context(), parsed(t, cancelOf(1)))
				}
				return nil, nil
			})
			var d Delivery
			for _, method := range []string{"watched", tt.method} { // of the first one it was said
				if err := d.Parse([]byte(request(1, method)), 0); err != nil {
					t.Fatal(err)
				}
				d.ReportSent(true)
				d.Untracked, told = tt.free, 0
				c.Deliver(t.Context(), &d, nil)
			}
			for _, sent := range tt.sent {
				d.ReportSent(sent)
			}
			if told != tt.want {
				t.Errorf("told %d times, want %d", told, tt.want)
			}
		})
	}
}
