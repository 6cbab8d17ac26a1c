package cli

import (
	"bytes"
	"encoding/json"
	"sync"
	"time"

	"mcpwire/jsonrpc"
)

// A wireTrace sees all messages of a connection, and keeps the last result of each method as it came: clients give legacy results a modern shape, and
// what a command prints with --json is the server's own. It may be used by many goroutines at once.
type wireTrace struct {
	// heard is told of each notification of the server's, on the goroutine that reads: what came before a result is told before the result is there. It
	// is set before the connection is made. params are valid until it returns.
	heard func(method string, params []byte)

	mu      sync.Mutex
	open    map[string]openRequest // of this side, by the text of their id
	results map[string]wireResult  // by method
	refused wireError              // the last error that the server answered
	stray   []byte                 // the beginning of the first text of the server's that is no message
	strays  int                    // how many there were
}

// A wireError is an error that a server answered to a request.
type wireError struct {
	method  string // of the request
	code    jsonrpc.Code
	message string
}

type openRequest struct {
	method string
	sent   time.Time
}

// A wireResult is a result as it came.
type wireResult struct {
	text json.RawMessage
	took time.Duration
}

const (
	maxOpen  = 4096 // requests under way; of further ones no result is kept
	maxStray = 200  // bytes
)

func newWireTrace() *wireTrace {
	return &wireTrace{open: map[string]openRequest{}, results: map[string]wireResult{}}
}

// observe is a client's Options.Trace.
func (w *wireTrace) observe(dir jsonrpc.Direction, message []byte) {
	now := time.Now()
	if jsonrpc.IsBatch(message) {
		entries, err := jsonrpc.ParseBatch(message, 0)
		if err != nil {
			w.strayed(dir, message)
		}
		for i := range entries {
			w.message(dir, &entries[i].Message, now)
		}
		return
	}
	var m jsonrpc.Message
	if jsonrpc.Parse(message, &m, 0) != nil && m.Kind == jsonrpc.KindInvalid {
		w.strayed(dir, message)
		return
	}
	w.message(dir, &m, now)
}

func (w *wireTrace) message(dir jsonrpc.Direction, m *jsonrpc.Message, now time.Time) {
	if dir == jsonrpc.Incoming && m.Kind == jsonrpc.KindNotification && w.heard != nil {
		w.heard(string(m.Method), m.Params)
		return
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

func (w *wireTrace) strayed(dir jsonrpc.Direction, message []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if dir != jsonrpc.Incoming {
		return
	}
	w.strays++
	if w.stray == nil {
		w.stray = bytes.Clone(message[:min(len(message), maxStray)])
	}
}

// askedFor returns the method of the request that the server answered with e, "" if that is not
// known.
func (w *wireTrace) askedFor(e *jsonrpc.Error) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refused.code != e.Code || w.refused.message != e.Message {
		return ""
	}
	return w.refused.method
}

// takeStrays returns the beginning of the first text that was no message, for people, and how many
// there were since the last call.
func (w *wireTrace) takeStrays() (first string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first, n = safeLine(string(bytes.TrimSpace(w.stray))), w.strays
	w.stray, w.strays = nil, 0
	return first, n
}

// result returns the last result of a method, and how long it took; nil if there was none.
func (w *wireTrace) result(method string) (json.RawMessage, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.results[method]
	return r.text, r.took
}

// forget drops the results that are kept, so that none is taken for that of a later request.
func (w *wireTrace) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.results)
}

// strayText is the beginning of the first text that was no message, for people.
func (w *wireTrace) strayText() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return safeLine(string(bytes.TrimSpace(w.stray)))
}
