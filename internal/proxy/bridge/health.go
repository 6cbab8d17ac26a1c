package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/auth"
	"mcpwire/jsonrpc"
)

// health knows whether the server answers. The zero value is ready to use.
type health struct {
	lastSeen atomic.Int64 // when the server has last sent something, in nanoseconds since the epoch; 0 if something has failed since

	mu        sync.Mutex
	lastProbe time.Time     // when it was last asked
	err       error         // what has failed since it was last seen; nil if nothing has
	probing   chan struct{} // closed when it has been found out; nil if nobody asks
}

// maxReadyInterval is the longest time between two attempts to find out whether a server answers that did not.
const maxReadyInterval = 10 * time.Second

// markUnhealthy notes that something has failed which would not have if the server were well. It may be: then it is seen again, or asked.
func (b *Bridge) markUnhealthy(err error) {
	h := &b.health
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastSeen.Store(0)
	h.err = err
}

// Ready returns nil if the server has sent something within the time of Options.ReadyFor, and nothing has failed since. Otherwise it is asked: by the connection that clients share,
// or one of its own, at most once in that time or ten seconds. The error says what is wrong with it, or with the bridge.
func (b *Bridge) Ready(ctx context.Context) error {
	b.mu.Lock()
	draining := b.draining
	b.mu.Unlock()
	if draining {
		return errors.New("the bridge is shutting down")
	}
	h := &b.health
	h.mu.Lock()
	if time.Since(time.Unix(0, h.lastSeen.Load())) < b.opts.ReadyFor {
		h.mu.Unlock()
		return nil
	}
	if h.err != nil && time.Since(h.lastProbe) < min(b.opts.ReadyFor, maxReadyInterval) {
		defer h.mu.Unlock()
		return h.err
	}
	asks := h.probing
	if asks == nil {
		asks = make(chan struct{})
		if !b.spawn(func() { b.probeReady(asks) }) {
			h.mu.Unlock()
			return ErrClosed
		}
		h.probing = asks
	}
	h.mu.Unlock()
	select {
	case <-asks:
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.err
	case <-ctx.Done():
		return fmt.Errorf("the server has not answered yet: %w", context.Cause(ctx))
	}
}

// probeReady finds out whether the server answers, for all that wait for asks. Who asks may not have the patience that a server needs to start: what comes of it is for the
// next one then.
func (b *Bridge) probeReady(asks chan struct{}) {
	ctx, cancel := b.withConnectTimeout(b.ctx)
	defer cancel()
	err := b.probe(ctx)
	h := &b.health
	h.mu.Lock()
	h.err, h.lastProbe, h.probing = err, time.Now(), nil
	h.mu.Unlock()
	close(asks)
}

// spawn has f run in a goroutine that Close waits for, unless the bridge is closed.
func (b *Bridge) spawn(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.wg.Go(f)
	}
	return !b.closed
}

// Drain makes Ready fail from now on, so that nobody sends new clients here.
func (b *Bridge) Drain() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.draining = true
}

// Healthz serves whether the bridge itself works, which it does if it answers.
func (b *Bridge) Healthz() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeHealth(w, http.StatusOK, "ok", nil) })
}

// readyTimeout is how long who asks over HTTP waits for the server. That it has answered later is for the next one.
const readyTimeout = 5 * time.Second

// Readyz serves whether the server answers: status 200, or 503. The reason is logged; it is for those who ask too if tell is set, and may name the server's command and
// what it wrote last.
func (b *Bridge) Readyz(showErrors bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeoutCause(r.Context(), readyTimeout, timeoutError(readyTimeout))
		defer cancel()
		if err := b.Ready(ctx); err != nil {
			if !showErrors {
				b.opts.Logger.Warn("not ready", "error", err)
				err = nil
			}
			writeHealth(w, http.StatusServiceUnavailable, "unavailable", err)
			return
		}
		writeHealth(w, http.StatusOK, "ok", nil)
	})
}

func writeHealth(w http.ResponseWriter, status int, text string, why error) {
	body := struct {
		Status string `json:"status"`
		Error  string `json:"error,omitempty"`
	}{Status: text}
	if why != nil {
		body.Error = why.Error()
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body)
}

// probe sees whether the server answers.
func (b *Bridge) probe(ctx context.Context) error {
	if p := b.anyShared(); p != nil {
		return p.ping(ctx)
	}
	probe, up := b.newEraProbeWithContext(auth.WithoutLogin(b.ctx)) // the whole connection is for this alone
	defer up.close()
	if _, modern := b.eras.get(); b.opts.ServerEra == EraModern || b.opts.ServerEra == EraAuto && modern != supportNo {
		m, err := b.discover(ctx, probe, up, discoverRequest())
		if ctx.Err() != nil {
			return err
		}
		switch result := supportsModern(m, err); {
		case result == supportYes:
			return nil
		case result == supportUnknown:
			return err
		case b.opts.ServerEra == EraModern:
			return errors.New("the server does not answer server/discover")
		}
	}
	m, err := probe.roundTrip(ctx, up, initializeRequest())
	if err == nil && m.Kind == jsonrpc.KindError {
		err = m.Err()
	}
	return err
}
