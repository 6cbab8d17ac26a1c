package web

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/streamable"
)

// An endpoint is an MCP server over HTTP that also serves pages.
type endpoint struct {
	*host
	url  string
	port string
	runs atomic.Int64 // calls of tools

	mu   sync.Mutex
	seen []seenRequest
}

// A seenRequest is a request to the endpoint, and the status of its response.
type seenRequest struct {
	method, host, origin, site string // site is the browser's Sec-Fetch-Site
	contentType                string
	status                     int
}

// newEndpoint returns an endpoint with the tools count, region, whose argument is repeated in a
// header, and watch.
func newEndpoint(t *testing.T, options *streamable.Options) *endpoint {
	t.Helper()
	e := &endpoint{host: newHost()}
	handler := streamable.MustHandler(e.server(t), options)
	mux := http.NewServeMux()
	mux.Handle("/mcp", e.record(handler))
	if options != nil && options.Guard != nil {
		for _, path := range options.Guard.MetadataPaths() {
			mux.Handle(path, options.Guard.Metadata())
		}
	}
	mux.Handle("/", e.host)
	ts := httptest.NewServer(mux)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := handler.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		ts.Close()
	})
	e.origin = ts.URL
	e.url = ts.URL + "/mcp"
	var err error
	if _, e.port, err = net.SplitHostPort(ts.Listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e *endpoint) server(t *testing.T) *server.Server {
	t.Helper()
	srv := server.MustNew("endpoint", "1.0.0", nil)
	count := func(context.Context, empty) (int64, error) { return e.runs.Add(1), nil }
	if err := server.AddTool(srv, "count", "Counts its calls.", count); err != nil {
		t.Fatal(err)
	}
	type where struct {
		Region string `json:"region"`
	}
	def := mcp.Tool{Name: "region", InputSchema: json.RawMessage(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`)}
	err := server.AddToolWith(srv, def, func(_ context.Context, in where) (string, error) {
		e.runs.Add(1)
		return "in " + in.Region, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	type wait struct {
		Page string `json:"page"` // the path of the acknowledgment
	}
	// The result waits until the page has the progress. If the response were buffered, the page
	// would never get it.
	err = server.AddTool(srv, "watch", "Waits until the page has read its progress.", func(ctx context.Context, in wait) (string, error) {
		e.runs.Add(1)
		if err := server.CallOf(ctx).Progress(1, 2, "begun"); err != nil {
			return "", err
		}
		select {
		case <-e.acked(in.Page):
			return "seen", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return srv
}

// record records the requests to next.
func (e *endpoint) record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(out, r)
		e.mu.Lock()
		defer e.mu.Unlock()
		h := r.Header
		e.seen = append(e.seen, seenRequest{r.Method, r.Host, h.Get("Origin"), h.Get("Sec-Fetch-Site"), h.Get("Content-Type"), out.status})
	})
}

// requestsWhere returns the requests for which f returns true.
func (e *endpoint) requestsWhere(f func(seenRequest) bool) (found []seenRequest) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, v := range e.seen {
		if f(v) {
			found = append(found, v)
		}
	}
	return found
}

// A statusWriter records the status.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap returns the underlying writer for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
