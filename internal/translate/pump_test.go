package translate_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"mcpwire/client"
	"mcpwire/internal/translate"
	"mcpwire/jsonrpc"
	"mcpwire/server"
)

// A pump drives a translator between two pipes, as a bridge over stdio does.
type pump struct {
	mu      sync.Mutex
	t       translate.Translator
	out     [3]chan []byte // by side
	timer   *time.Timer
	observe func(o translate.Out, in string)
	rules   map[string]int
	wg      sync.WaitGroup
}

func newPump(t translate.Translator, near, far jsonrpc.Framer, observe func(translate.Out, string)) *pump {
	p := &pump{t: t, observe: observe, rules: map[string]int{}}
	for side, f := range map[translate.Side]jsonrpc.Framer{translate.Downstream: near, translate.Upstream: far} {
		ch := make(chan []byte, 1000)
		p.out[side] = ch
		p.wg.Go(func() {
			for msg := range ch {
				f.WriteFrame(msg)
			}
		})
		p.wg.Go(func() {
			for {
				frame, err := f.ReadFrame()
				if err != nil {
					return
				}
				if observe != nil {
					observe(translate.Out{To: side}, string(frame))
				}
				p.do(func(now time.Time) []translate.Out {
					if side == translate.Downstream {
						return p.t.FromDownstream(now, frame, 0)
					}
					return p.t.FromUpstream(now, frame, 0)
				})
			}
		})
	}
	return p
}

func (p *pump) do(step func(now time.Time) []translate.Out) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range step(time.Now()) {
		p.rules[o.Rule]++
		if p.observe != nil {
			p.observe(o, "")
		}
		if o.To != translate.Dropped && o.Message != nil {
			p.out[o.To] <- o.Message
		}
	}
	if p.timer != nil {
		p.timer.Stop()
	}
	if next := p.t.Next(); !next.IsZero() {
		p.timer = time.AfterFunc(time.Until(next), func() { p.do(p.t.Tick) })
	}
}

// bridged connects a client with a server through a translator, over pipes. All ends with the test.
func bridged(t *testing.T, tr translate.Translator, srv *server.Server, opts client.Options, observe func(translate.Out, string)) (*client.Client, *pump) {
	t.Helper()
	clientEnd, nearEnd := net.Pipe()
	farEnd, serverEnd := net.Pipe()
	near, far := jsonrpc.NewFramer(nearEnd, nil), jsonrpc.NewFramer(farEnd, nil)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(context.Background(), jsonrpc.NewFramer(serverEnd, nil)) }()
	p := newPump(tr, near, far, observe)
	t.Cleanup(func() {
		near.Close()
		p.do(func(now time.Time) []translate.Out {
			return p.t.Close(now, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "closed"})
		})
		p.mu.Lock()
		if p.timer != nil {
			p.timer.Stop()
		}
		p.mu.Unlock()
		close(p.out[translate.Downstream])
		close(p.out[translate.Upstream])
		far.Close()
		<-served
		p.wg.Wait()
	})
	c, err := client.Dial(t.Context(), client.Over(jsonrpc.NewFramer(clientEnd, nil)), &opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, p
}
