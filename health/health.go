// Package health serves the probes of an orchestrator such as Kubernetes
// (https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes/):
//
//	probes := health.New(ctx, health.Check{Name: "cluster", Run: node.Check, Optional: true})
//	go streamable.ListenAndServe(context.Background(), "127.0.0.1:9090", probes, nil)
//	// ... start ...
//	probes.Start()
//	err := streamable.ListenAndServe(ctx, addr, handler, &streamable.ServeOptions{
//		ShutdownDelay: 5 * time.Second,
//	})
//
// When ctx ends, the process is no longer ready. It serves for another five seconds, in which the
// load balancer notices, and then shuts down.
//
// Serve the probes on a separate port, without authentication: an orchestrator has no token,
// and must reach them when the other port is overloaded. Whoever reaches them reads the errors of
// the checks.
//
// # Concurrency
//
// All methods may be called by multiple goroutines at once.
//
// # Errors
//
// The package returns no errors. A probe that fails is a response of status 503 that says why.
package health

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// checkTimeout limits a round of checks. Kubernetes waits for one second.
	checkTimeout = 800 * time.Millisecond
	// keepResults is how long the results of checks are used for further requests.
	keepResults = time.Second
)

// A Check is a condition for requests to be sent to this process.
type Check struct {
	// Name is in the response, before the error.
	Name string
	// Run returns an error if the condition is not met. It must return when its context ends, after
	// 800 ms, and is not called again in the second that follows.
	Run func(ctx context.Context) error
	// Optional means that the process is ready even if the check fails. The response then says that
	// it is degraded.
	Optional bool
}

// Probes are an [http.Handler] of /livez, /readyz and /startupz. Make them with [New].
//
// /livez succeeds as long as the process responds. /startupz succeeds after [Probes.Start]. /readyz
// succeeds from Start until the end of the context, as long as all checks that are not optional
// succeed.
type Probes struct {
	ctx    context.Context
	checks []Check

	started atomic.Bool

	// mu is held while the checks run.
	mu sync.Mutex
	// results has a line for each check that failed at the time checked.
	results []string
	// unready means that one of them is not optional.
	unready bool
	checked time.Time
}

// New returns the probes of a process that shuts down when ctx ends.
func New(ctx context.Context, checks ...Check) *Probes {
	return &Probes{ctx: ctx, checks: checks}
}

// Start reports that the process has started: /startupz and /readyz succeed from now on.
func (p *Probes) Start() { p.started.Store(true) }

// ServeHTTP implements [http.Handler].
func (p *Probes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ok, text := true, "ok"
	switch r.URL.Path {
	case "/livez":
	case "/startupz":
		ok, text = p.startup()
	case "/readyz":
		ok, text = p.ready(r.Context())
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	io.WriteString(w, text+"\n")
}

func (p *Probes) startup() (ok bool, text string) {
	if !p.started.Load() {
		return false, "starting"
	}
	return true, "ok"
}

func (p *Probes) ready(ctx context.Context) (ok bool, text string) {
	if ok, text := p.startup(); !ok {
		return false, text
	}
	if p.ctx.Err() != nil {
		return false, "shutting down"
	}
	results, unready := p.check(ctx)
	switch {
	case unready:
		text = "not ready"
	case len(results) > 0:
		text = "degraded"
	default:
		text = "ok"
	}
	return !unready, strings.Join(append([]string{text}, results...), "\n")
}

// check runs the checks, unless it did so a moment ago.
func (p *Probes) check(ctx context.Context) (results []string, unready bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.checked.IsZero() && time.Since(p.checked) < keepResults {
		return p.results, p.unready
	}
	// Others use the results, so they do not depend on this request.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
	defer cancel()
	errs := make([]error, len(p.checks))
	var running sync.WaitGroup
	for i, c := range p.checks {
		running.Go(func() { errs[i] = c.Run(ctx) })
	}
	running.Wait()
	p.results, p.unready, p.checked = nil, false, time.Now()
	for i, c := range p.checks {
		if errs[i] == nil {
			continue
		}
		p.results = append(p.results, fmt.Sprintf("%s: %s", c.Name, strings.ReplaceAll(errs[i].Error(), "\n", "; ")))
		p.unready = p.unready || !c.Optional
	}
	return p.results, p.unready
}
