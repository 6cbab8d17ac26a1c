package bridge

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ErrClosed is what [Bridge.Serve] returns when the bridge was closed before.
var ErrClosed = errors.New("bridge: closed")

// A Bridge connects clients to one server. Make one with [New], and close it in the end. It may be used by many goroutines at once.
type Bridge struct {
	opts            Options
	instance        string // part of ids that the bridge makes up
	ctx             context.Context
	cancel          context.CancelFunc
	wg              sync.WaitGroup
	recording       *recording    // nil if nothing is recorded
	callCount       atomic.Uint64 // of clients, ever
	metrics         metrics
	openConnections atomic.Int64 // connections to the server
	health          health
	eras            eraCache

	mu             sync.Mutex
	closed         bool
	draining       bool
	clients        map[*client]struct{}
	servers        serverCounts
	pool           map[string]*sharedUpstream // by what is different between those who share
	detecting      *sharedAttempt             // nil unless it is being found out what the server is
	failedProbe    *eraProbe                  // with its line, which has found nobody; both may be nil
	failedUpstream *upstream
}

// New returns a bridge. Nothing is connected before there is something to send. The error says what is wrong with the options.
func New(o *Options) (*Bridge, error) {
	if o == nil || o.Connect == nil {
		return nil, errors.New("bridge: Options.Connect is missing")
	}
	b := &Bridge{opts: o.withDefaults(), instance: rand.Text()[:8], clients: map[*client]struct{}{}, pool: map[string]*sharedUpstream{}}
	b.recording = newRecording(b.opts.Record)
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
	rest := slices.Collect(maps.Values(b.pool))
	if b.failedUpstream != nil {
		b.failedUpstream.close()
	}
	b.mu.Unlock()
	for _, s := range rest {
		s.idleTimer.Stop()
		s.handler.close()
	}
	timer := time.AfterFunc(closeTimeout, b.cancel)
	b.wg.Wait()
	timer.Stop()
	b.cancel()
	return nil
}
