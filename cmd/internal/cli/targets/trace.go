package targets

import (
	"bytes"
	"encoding/json"
	"sync"
	"time"

	"mcpwire/cmd/internal/text/safe"
	"mcpwire/internal/rpc/rpcbatch"
	"mcpwire/jsonrpc"
)

// A Trace observes all messages of a connection and keeps the last result of each method
// unchanged, because clients convert legacy results and --json prints the server's own. It is safe
// for concurrent use.
type Trace struct {
	// OnNotification is called for each notification of the server, on the goroutine that reads, so
	// notifications before a result come before the result. Set it before connecting. params are
	// valid until it returns.
	OnNotification func(method string, params []byte)
	// Sent is called for each request of this side, on the goroutine that sends it. It may be nil.
	// Set it before connecting. params are valid until it returns.
	Sent func(method string, params []byte)

	mu sync.Mutex
	// open are this side's requests without an answer, by the text of their id.
	open map[string]openRequest
	// results are keyed by method.
	results map[string]wireResult
	// refused is the last error answer.
	refused wireError
	// invalid is the beginning of the first invalid message from the server.
	invalid []byte
	// invalidCount is the number of invalid messages.
	invalidCount int
}

// A wireError is an error that a server answered to a request.
type wireError struct {
	// method is that of the request.
	method  string
	code    jsonrpc.Code
	message string
}

type openRequest struct {
	method string
	sent   time.Time
}

// A wireResult is an unchanged result.
type wireResult struct {
	text json.RawMessage
	took time.Duration
}

const (
	// maxOpen limits the tracked requests. The results of further ones are not kept.
	maxOpen = 4096
	// maxInvalid limits the bytes kept of an invalid message.
	maxInvalid = 200
)

func newTrace() *Trace {
	return &Trace{open: map[string]openRequest{}, results: map[string]wireResult{}}
}

// observe is a client's Options.Trace.
func (w *Trace) observe(dir jsonrpc.Direction, message []byte) {
	now := time.Now()
	if rpcbatch.Is(message) {
		entries, err := rpcbatch.Parse(message, 0)
		if err != nil {
			w.addInvalid(dir, message)
		}
		for i := range entries {
			w.message(dir, &entries[i].Message, now)
		}
		return
	}
	var m jsonrpc.Message
	if jsonrpc.Parse(message, &m, 0) != nil && m.Kind == jsonrpc.KindInvalid {
		w.addInvalid(dir, message)
		return
	}
	w.message(dir, &m, now)
}

func (w *Trace) message(dir jsonrpc.Direction, m *jsonrpc.Message, now time.Time) {
	if dir == jsonrpc.Incoming && m.Kind == jsonrpc.KindNotification && w.OnNotification != nil {
		w.OnNotification(string(m.Method), m.Params)
		return
	}
	if dir == jsonrpc.Outgoing && m.Kind == jsonrpc.KindRequest && w.Sent != nil {
		w.Sent(string(m.Method), m.Params)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case dir == jsonrpc.Outgoing && m.Kind == jsonrpc.KindRequest:
		if len(w.open) < maxOpen {
			w.open[string(m.ID)] = openRequest{string(m.Method), now}
		}
	case dir == jsonrpc.Incoming && (m.Kind == jsonrpc.KindResponse || m.Kind == jsonrpc.KindError):
		request, ok := w.open[string(m.ID)]
		delete(w.open, string(m.ID))
		if ok && m.Kind == jsonrpc.KindResponse {
			w.results[request.method] = wireResult{bytes.Clone(m.Result), now.Sub(request.sent)}
		}
		if ok && m.Kind == jsonrpc.KindError {
			e := m.Err()
			w.refused = wireError{request.method, e.Code, e.Message}
		}
	}
}

func (w *Trace) addInvalid(dir jsonrpc.Direction, message []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if dir != jsonrpc.Incoming {
		return
	}
	w.invalidCount++
	if w.invalid == nil {
		w.invalid = bytes.Clone(message[:min(len(message), maxInvalid)])
	}
}

// RequestMethod returns the method of the request that the server answered with e, or "" if
// unknown.
func (w *Trace) RequestMethod(e *jsonrpc.Error) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refused.code != e.Code || w.refused.message != e.Message {
		return ""
	}
	return w.refused.method
}

// TakeInvalid returns the beginning of the first invalid message, escaped, and the number of
// invalid messages since the last call.
func (w *Trace) TakeInvalid() (first string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first, n = safe.Line(string(bytes.TrimSpace(w.invalid))), w.invalidCount
	w.invalid, w.invalidCount = nil, 0
	return first, n
}

// Result returns the last result of a method and how long it took, or nil without one.
func (w *Trace) Result(method string) (json.RawMessage, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.results[method]
	return r.text, r.took
}

// Forget drops the kept results, so that none is taken for that of a later request.
func (w *Trace) Forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.results)
}

// invalidText returns the beginning of the first invalid message, escaped.
func (w *Trace) invalidText() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return safe.Line(string(bytes.TrimSpace(w.invalid)))
}
