package traces

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/cmd/internal/trace/otlp"
	"mcpwire/internal/base/wait"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/net/neterror"
	"mcpwire/internal/text/clip"
)

const (
	// maxQueue limits the spans that wait for the export. More are dropped and counted.
	maxQueue = 4096
	// maxBatch limits the spans of one request to the collector.
	maxBatch = 512
	// batchDelay is the longest time that a span waits for others.
	batchDelay = 5 * time.Second
	// maxAttempts limits the attempts to export a batch, and maxRetryWait the time between them.
	maxAttempts  = 4
	minRetryWait = time.Second
	maxRetryWait = 30 * time.Second
	// maxAnswer limits what is read of a response of the collector.
	maxAnswer = 64 << 10
	// warnInterval is the shortest time between two log messages about exports that failed.
	warnInterval = time.Minute
)

// Options are the options of [New].
type Options struct {
	// Getenv returns the variables, as os.Getenv does.
	Getenv func(string) string
	// Service and Version are service.name, unless variables name another one, and service.version.
	Service, Version string
	// Instance is service.instance.id, unless a variable names another one. It may be "".
	Instance string
	// Transport is the attribute network.transport of the requests of clients: pipe, tcp or unix.
	Transport string
	// Logger receives the log. Nil discards it.
	Logger *slog.Logger
}

// A Tracer records and exports spans.
type Tracer struct {
	options Options
	settings
	sampler sampler
	http    *http.Client

	// ctx ends when Close gives up.
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	// wake has an element if a batch is full or Close was called.
	wake chan struct{}

	exported, dropped atomic.Uint64

	mu     sync.Mutex
	queue  []*otlp.Span
	closed bool
}

// New returns what exports spans as the variables say, or nil if they name no endpoint. Close it
// after use.
func New(o *Options) (*Tracer, error) {
	s, sampler, err := settingsOf(o)
	if err != nil || s == nil {
		return nil, err
	}
	t := &Tracer{options: *o, settings: *s, sampler: sampler, done: make(chan struct{}), wake: make(chan struct{}, 1)}
	t.options.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	t.http = &http.Client{Transport: t.transport(), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	go t.run()
	return t, nil
}

// Endpoint returns the address that spans are sent to, without parameters.
func (t *Tracer) Endpoint() string {
	return t.endpoint.Scheme + "://" + t.endpoint.Host + t.endpoint.EscapedPath()
}

// Counts returns the numbers of spans that the collector has accepted, and of those that were lost.
func (t *Tracer) Counts() (exported, dropped uint64) { return t.exported.Load(), t.dropped.Load() }

// Close exports the spans that wait, until ctx ends. Later spans are dropped.
func (t *Tracer) Close(ctx context.Context) {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.signal()
	stop := context.AfterFunc(ctx, t.cancel)
	<-t.done
	stop()
	t.cancel()
	t.http.CloseIdleConnections()
}

func (t *Tracer) signal() { wait.Signal(t.wake) }

// add queues a span, or drops it if the queue is full.
func (t *Tracer) add(s *otlp.Span) {
	t.mu.Lock()
	full := t.closed || len(t.queue) >= maxQueue
	if !full {
		t.queue = append(t.queue, s)
	}
	ready := len(t.queue) == maxBatch
	t.mu.Unlock()
	if full {
		t.dropped.Add(1)
	} else if ready {
		t.signal()
	}
}

// run exports batches until Close.
func (t *Tracer) run() {
	defer close(t.done)
	timer := time.NewTimer(batchDelay)
	defer timer.Stop()
	var warned time.Time
	for {
		select {
		case <-timer.C:
		case <-t.wake:
		}
		for {
			batch, closed := t.take()
			if len(batch) == 0 {
				if closed {
					return
				}
				break
			}
			if err := t.export(batch, closed); err != nil {
				t.dropped.Add(uint64(len(batch)))
				if time.Since(warned) >= warnInterval {
					warned = time.Now()
					t.options.Logger.Warn("spans were not exported", "endpoint", t.Endpoint(), "error", err, "spans", len(batch), "lost in all", t.dropped.Load())
				}
			}
		}
		timer.Reset(batchDelay)
	}
}

// take takes a batch from the queue.
func (t *Tracer) take() (batch []*otlp.Span, closed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(len(t.queue), maxBatch)
	batch = t.queue[:n:n]
	if t.queue = t.queue[n:]; len(t.queue) == 0 {
		t.queue = nil
	}
	return batch, t.closed
}

// export sends a batch. It tries again if the collector says so, unless the tracer is closing.
func (t *Tracer) export(batch []*otlp.Span, closing bool) error {
	body, err := t.encode(batch)
	if err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		pause, err := t.post(body, len(batch))
		if err == nil || pause < 0 || closing || attempt == maxAttempts || t.ctx.Err() != nil {
			return err
		}
		wait.Sleep(t.ctx, min(cmp.Or(pause, minRetryWait<<(attempt-1)), maxRetryWait))
	}
}

// post sends the text of n spans. After an error, pause is how long to wait before another attempt:
// zero if the collector does not say, negative if there should be none.
func (t *Tracer) post(body []byte, n int) (pause time.Duration, err error) {
	ctx, cancel := context.WithTimeout(t.ctx, t.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.endpoint.String(), bytes.NewReader(body))
	if err != nil {
		return -1, errors.New("invalid endpoint")
	}
	req.Header = t.header.Clone()
	resp, err := t.http.Do(req)
	if err != nil {
		return 0, neterror.WithoutURL(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case resp.StatusCode == http.StatusOK && err == nil:
		rejected := t.rejected(answer)
		t.dropped.Add(uint64(rejected))
		t.exported.Add(uint64(max(n-rejected, 0)))
		return 0, nil
	case err != nil:
		return 0, neterror.WithoutURL(err)
	}
	err = fmt.Errorf("the collector answers with the status %d: %s", resp.StatusCode, clip.Quote(answer, 200))
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // no number is no wish
		return time.Duration(min(max(seconds, 0), 3600)) * time.Second, err
	}
	return -1, err
}

// rejected returns how many spans a response rejects.
func (t *Tracer) rejected(answer []byte) int {
	if jsonwire.Valid(answer, 0) != nil {
		return 0
	}
	partial := jsonwire.Lookup(answer, "partialSuccess")
	text := jsonwire.Lookup(partial, "rejectedSpans")
	n, err := strconv.Atoi(cmp.Or(jsonwire.Text(text), string(text)))
	if err != nil || n <= 0 {
		return 0
	}
	t.options.Logger.Debug("the collector rejects spans", "spans", n, "message", clip.Quote(jsonwire.Text(jsonwire.Lookup(partial, "errorMessage")), 200))
	return min(n, maxBatch)
}
