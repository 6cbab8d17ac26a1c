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

	"mcpwire/jsonrpc"
	"mcpwire/oauth"
)

// A health records if the server works. The zero value is ready to use.
type health struct {
	// lastSeen is the time of the server's last message, in nanoseconds since the epoch; 0 if an
	// error came after it.
	lastSeen atomic.Int64

	mu        sync.Mutex
	lastProbe time.Time
	// err is the error since lastSeen, or nil. detail is the same error for operators, if clients
	// may see less of it, or nil.
	err, detail error
	// probing is closed when the current probe ends and nil without one.
	probing chan struct{}
}

// maxReadyInterval limits the time between two probes of a server that did not answer.
const maxReadyInterval = 10 * time.Second

// markUnhealthy records an error that a working server would not cause. The next message or probe
// may clear it. detail is the same error for operators.
func (b *Bridge) markUnhealthy(err, detail error) {
	h := &b.health
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastSeen.Store(0)
	h.err, h.detail = err, detail
}

// Ready returns nil if the server sent a message in the last Options.ReadyFor and no error came
// after it. Otherwise it probes the server, on a shared upstream or a new connection, at most once
// in that time or ten seconds. The error says what is wrong with the server or the bridge.
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
	probed := h.probing
	if probed == nil {
		probed = make(chan struct{})
		if !b.spawn(func() { b.probeReady(probed) }) {
			h.mu.Unlock()
			return ErrClosed
		}
		h.probing = probed
	}
	h.mu.Unlock()
	select {
	case <-probed:
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.err
	case <-ctx.Done():
		return fmt.Errorf("the server has not responded yet: %w", context.Cause(ctx))
	}
}

// probeReady probes the server for all callers that wait for asks. It may take longer than they
// wait; the result is then for the next caller.
func (b *Bridge) probeReady(probed chan struct{}) {
	ctx, cancel := b.withConnectTimeout(b.ctx)
	defer cancel()
	err := b.probe(ctx)
	h := &b.health
	h.mu.Lock()
	h.err, h.detail, h.lastProbe, h.probing = err, nil, time.Now(), nil
	h.mu.Unlock()
	close(probed)
}

// spawn runs f in a goroutine that Close waits for. It reports false if the bridge is closed.
func (b *Bridge) spawn(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.wg.Go(f)
	}
	return !b.closed
}

// Drain makes Ready return an error from now on, so that load balancers send no new clients.
func (b *Bridge) Drain() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.draining = true
}

// Healthz returns a handler that serves status 200 while the bridge runs.
func (b *Bridge) Healthz() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeHealth(w, http.StatusOK, "ok", nil) })
}

// readyTimeout limits how long Readyz waits for the server. A later result is for the next request.
const readyTimeout = 5 * time.Second

// Readyz returns a handler that serves status 200 if the server works, and 503 otherwise. If
// showErrors is set, the response has the error, which may contain the server's command and its
// last standard error. Otherwise the handler logs it.
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

// probe checks if the server answers.
func (b *Bridge) probe(ctx context.Context) error {
	if p := b.anyShared(); p != nil {
		return p.ping(ctx)
	}
	// This connection is only for the probe.
	up := b.newUpstreamWithContext(oauth.WithoutLogin(b.ctx))
	defer up.close()
	if _, modern := b.eras.get(); b.opts.ServerEra == EraModern || b.opts.ServerEra == EraAuto && modern != supportNo {
		m, err := b.discover(ctx, up, discoverRequest())
		if ctx.Err() != nil {
			return err
		}
		switch result := supportsModern(m, err); {
		case result == supportYes:
			return nil
		case result == supportUnknown:
			return err
		case b.opts.ServerEra == EraModern:
			return errors.New("the server does not respond to server/discover")
		}
	}
	m, err := up.askFrame(ctx, initializeRequest())
	if err == nil && m.Kind == jsonrpc.KindError {
		err = m.Err()
	}
	return err
}
