package bridge

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/jsonrpc"
)

// ErrClosed is what [Bridge.Serve] returns when the bridge was closed before.
var ErrClosed = errors.New("bridge: closed")

// A Bridge connects clients to one server. Make one with [New], and close it in the end. It may be used by many goroutines at once.
type Bridge struct {
	opts     Options
	instance string // part of ids that the bridge makes up
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	rec      *recording // nil if nothing is recorded
	metrics  metrics
	linesUp  atomic.Int64 // connections to the server
	health   health
	known    known

	mu       sync.Mutex
	closed   bool
	draining bool
	clients  map[*client]struct{}
	shared   map[string]*plain // by principal
}

// New returns a bridge. Nothing is connected before there is something to send. The error says what is wrong with the options.
func New(o *Options) (*Bridge, error) {
	if o == nil || o.Connect == nil {
		return nil, errors.New("bridge: Options.Connect is missing")
	}
	b := &Bridge{opts: o.withDefaults(), instance: rand.Text()[:8], clients: map[*client]struct{}{}, shared: map[string]*plain{}}
	b.rec = newRecording(b.opts.Record)
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b, nil
}

// Close ends all clients and connections to the server, and waits until the server's processes have ended: no longer than the connections take for it.
func (b *Bridge) Close() error {
	b.mu.Lock()
	b.closed, b.draining = true, true
	clients := make([]*client, 0, len(b.clients))
	for cl := range b.clients {
		clients = append(clients, cl)
	}
	b.mu.Unlock()
	for _, cl := range clients {
		cl.close()
	}
	b.mu.Lock()
	for _, p := range b.shared {
		p.idle.Stop()
		p.line.close()
	}
	b.mu.Unlock()
	timer := time.AfterFunc(farewell, b.cancel)
	b.wg.Wait()
	timer.Stop()
	b.cancel()
	return nil
}

// sharedBy returns the connection that all clients of a principal share.
func (b *Bridge) sharedBy(cl *client, near Era) party {
	b.mu.Lock()
	p := b.shared[cl.owner]
	if p == nil {
		p = b.newPlain(true, true)
		p.idle = time.AfterFunc(b.opts.IdleTimeout, func() { b.retire(cl.owner, p) })
		b.shared[cl.owner] = p
	}
	p.join(cl)
	p.idle.Stop()
	b.mu.Unlock()
	if near == EraModern {
		if _, modern := b.known.get(); modern == unknown {
			ctx, cancel := contextWithin(cl.ended, probeTimeout)
			m, err := p.ask(ctx, func(jsonrpc.ID) []byte { return discoverRequest() })
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) { // it may still be about to start
				b.known.note(unknown, modernBy(m, err))
			}
		}
		if _, modern := b.known.get(); modern == no {
			p.leave(cl)
			return unshared{}
		}
	}
	return p
}

// sharedUp returns a connection that clients share and that there is now; nil if there is none.
func (b *Bridge) sharedUp() *plain {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.shared {
		if p.line.isUp() {
			return p
		}
	}
	return nil
}

// keeps reports whether a connection goes on without clients, which it does for the time that clients without a session have.
func (b *Bridge) keeps(p *plain) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !p.shared || b.closed {
		return false
	}
	p.idle.Reset(b.opts.IdleTimeout)
	return true
}

// retire ends the connection that a principal's clients share, if there are none.
func (b *Bridge) retire(owner string, p *plain) {
	b.mu.Lock()
	if b.shared[owner] != p || !p.empty() {
		b.mu.Unlock()
		return
	}
	delete(b.shared, owner)
	b.mu.Unlock()
	p.line.close()
}
