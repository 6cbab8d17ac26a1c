package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
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
	defer func() { up.close() }()
	serverEra := b.serverEraFor(EraModern)
	if legacy, _ := b.eras.get(); serverEra == EraAuto && legacy == supportYes {
		serverEra = EraLegacy
	}
	if serverEra != EraLegacy {
		found, next, err := b.detectEra(ctx, up, discoverRequest())
		up = next
		b.eras.update(found.legacy, found.modern)
		switch {
		case err != nil || found.serverEra == EraModern:
			return err
		case serverEra == EraModern && b.opts.ServerEra == EraModern:
			return errors.New("the server does not respond to server/discover")
		}
	}
	m, err := up.requestFrame(ctx, initializeRequest())
	if err == nil && m.Kind == jsonrpc.KindError {
		err = m.Err()
	}
	if err != nil {
		b.eras.reset()
	}
	return err
}

// metrics counts events. The zero value is ready to use.
type metrics struct {
	// sessions counts the clients since the start.
	sessions atomic.Int64
	rejected atomic.Int64
	requests atomic.Int64
	errors   atomic.Int64
	timeouts atomic.Int64
	// unmatchedResponses counts responses that no request waits for.
	unmatchedResponses atomic.Int64
	// invalidMessages counts the server's lines that are invalid.
	invalidMessages atomic.Int64
	connections     atomic.Int64
	restarts        atomic.Int64
	failures        atomic.Int64
	latency         histogram
}

// recordAnswer counts the response to a call.
func (m *metrics) recordAnswer(c *call, isError bool, now time.Time) {
	if c.method != mcp.MethodSubscriptionsListen {
		m.latency.observe(now.Sub(c.began))
	}
	if isError {
		m.errors.Add(1)
	}
}

// bucketBounds holds the upper bounds of a histogram's buckets.
var bucketBounds = [...]time.Duration{
	time.Millisecond, 5 * time.Millisecond, 25 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute,
}

// A histogram counts durations.
type histogram struct {
	buckets [len(bucketBounds) + 1]atomic.Int64
	// sum is in nanoseconds.
	sum atomic.Int64
}

func (h *histogram) observe(d time.Duration) {
	i := 0
	for i < len(bucketBounds) && d > bucketBounds[i] {
		i++
	}
	h.buckets[i].Add(1)
	h.sum.Add(int64(d))
}

// A Status says what a bridge does at one time.
type Status struct {
	// Clients is the number of clients, InFlight that of their pending requests without
	// subscriptions, and Subscriptions that of their requests subscriptions/listen.
	Clients, InFlight, Subscriptions int
	// Connections is the number of connections to the server, or of its processes.
	Connections int
	// Requests, Errors, Restarts and Failures count since the start: the requests of clients, those
	// that were answered with errors, the connections that were made again, and the connections
	// that ended or failed.
	Requests, Errors, Restarts, Failures int64
	// Legacy and Modern say that the server is known to support the era.
	Legacy, Modern bool
	// Up says that the server's last sign of life came after its last error.
	Up bool
	// Err is the last error of the server that nothing has contradicted, or nil. It may contain the
	// server's command and its last standard error.
	Err error
}

// Status returns the status of the bridge.
func (b *Bridge) Status() Status {
	m := &b.metrics
	st := Status{Connections: int(b.openConnections.Load()), Requests: m.requests.Load(), Errors: m.errors.Load(), Restarts: m.restarts.Load(), Failures: m.failures.Load()}
	b.mu.Lock()
	st.Clients = len(b.clients)
	for cl := range b.clients {
		calls, subscriptions := cl.pending()
		st.InFlight += calls
		st.Subscriptions += subscriptions
	}
	b.mu.Unlock()
	legacy, modern := b.eras.get()
	st.Legacy = legacy == supportYes || b.opts.ServerEra == EraLegacy
	st.Modern = modern == supportYes || b.opts.ServerEra == EraModern
	b.health.mu.Lock()
	defer b.health.mu.Unlock()
	st.Up = b.health.lastSeen.Load() != 0
	if !st.Up {
		st.Err = b.health.err
		if b.health.detail != nil {
			st.Err = b.health.detail
		}
	}
	return st
}

// Down reports if the last thing that happened with the server was an error.
func (b *Bridge) Down() bool {
	b.health.mu.Lock()
	defer b.health.mu.Unlock()
	return b.health.lastSeen.Load() == 0 && b.health.err != nil
}

// Metrics returns a handler that serves the counters in the text format of Prometheus
// (https://prometheus.io/docs/instrumenting/exposition_formats/).
func (b *Bridge) Metrics() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		w.Write(b.appendMetrics(nil))
	})
}

func (b *Bridge) appendMetrics(dst []byte) []byte {
	m, st := &b.metrics, b.Status()
	for _, v := range []struct {
		name, kind, help string
		value            int64
	}{
		{"sessions", "gauge", "Clients that are connected, or have a session.", int64(st.Clients)},
		{"requests_in_flight", "gauge", "Pending requests of clients, without subscriptions.", int64(st.InFlight)},
		{"subscriptions", "gauge", "Subscriptions of clients (subscriptions/listen).", int64(st.Subscriptions)},
		{"server_connections", "gauge", "Connections to the server, or its processes.", int64(st.Connections)},
		{"sessions_total", "counter", "Clients since the start.", m.sessions.Load()},
		{"sessions_refused_total", "counter", "Clients that were rejected because of the limit.", m.rejected.Load()},
		{"requests_total", "counter", "Requests of clients.", m.requests.Load()},
		{"errors_total", "counter", "Requests that were answered with an error.", m.errors.Load()},
		{"timeouts_total", "counter", "Requests without a response in time.", m.timeouts.Load()},
		{"stray_responses_total", "counter", "Responses that matched no request and were dropped.", m.unmatchedResponses.Load()},
		{"noise_total", "counter", "Lines of the server that were not messages.", m.invalidMessages.Load()},
		{"server_connections_total", "counter", "Connections to the server since the start.", m.connections.Load()},
		{"server_restarts_total", "counter", "Connections that were made again for a client.", m.restarts.Load()},
		{"server_failures_total", "counter", "Connections that ended or failed.", m.failures.Load()},
	} {
		dst = appendMetricHead(dst, v.name, v.kind, v.help)
		dst = append(dst, metricPrefix+v.name+" "...)
		dst = append(strconv.AppendInt(dst, v.value, 10), '\n')
	}
	return m.latency.append(dst, "request_duration_seconds", "Time to the response of a request, except subscriptions.")
}

const metricPrefix = "mcpwire_bridge_"

func appendMetricHead(dst []byte, name, kind, help string) []byte {
	dst = append(dst, "# HELP "+metricPrefix+name+" "+help+"\n# TYPE "+metricPrefix+name+" "+kind+"\n"...)
	return dst
}

func (h *histogram) append(dst []byte, name, help string) []byte {
	dst = appendMetricHead(dst, name, "histogram", help)
	var n int64
	for i := range h.buckets {
		n += h.buckets[i].Load()
		le := "+Inf"
		if i < len(bucketBounds) {
			le = strconv.FormatFloat(bucketBounds[i].Seconds(), 'g', -1, 64)
		}
		dst = append(dst, metricPrefix+name+`_bucket{le="`+le+`"} `...)
		dst = append(strconv.AppendInt(dst, n, 10), '\n')
	}
	dst = append(dst, metricPrefix+name+"_sum "...)
	dst = append(strconv.AppendFloat(dst, time.Duration(h.sum.Load()).Seconds(), 'g', -1, 64), '\n')
	dst = append(dst, metricPrefix+name+"_count "...)
	return append(strconv.AppendInt(dst, n, 10), '\n')
}
