package server

import (
	"sync"
	"sync/atomic"

	"mcpwire/internal/era"
	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A handshake agrees with the client of a session on an era and a revision. Messages that are
// handled concurrently see the state at their arrival.
type handshake struct {
	// era points to own, unless the session shares the handshake of another one.
	era *era.Session
	// modern is set once the client has sent a modern message.
	modern atomic.Bool
	// early is set if the handshake is made when initialize arrives, before the middleware runs.
	early bool
	own   era.Session
	// cost is the cost of initialize with middleware. It runs in order unless it blocks.
	cost rpc.CostEstimate

	conn *rpc.Conn
	// mu is held while the policy of conn is set.
	mu sync.Mutex
}

// prepare records the state of the handshake when the request arrives. Later messages do not affect
// it.
func (h *handshake) prepare(r *rpc.Request) {
	if state := h.era.State(); state != nil {
		r.State = state
	} else if !h.modern.Load() {
		h.detectModern(r)
	}
}

// detectModern checks whether the first request of a peer is modern.
func (h *handshake) detectModern(r *rpc.Request) {
	if ex, err := h.era.OpenAt(r, nil); err == nil && ex.Modern {
		h.markModern()
	}
}

// markModern records that the peer has sent a modern message.
func (h *handshake) markModern() {
	if !h.modern.Swap(true) {
		h.setPolicy()
	}
}

// setPolicy passes the state of the handshake to the connection. Requests may call it concurrently.
func (h *handshake) setPolicy() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conn.SetPolicy(h.policy())
}

// policy returns the policy of the connection in the current state.
func (h *handshake) policy() rpc.Policy { return h.era.Policy(h.modern.Load()) }

// prepareBatch rejects a batch with a modern message: that client would not understand an array as
// the response.
func (h *handshake) prepareBatch(members []jsonrpc.Entry) error {
	for i := range members {
		e := &members[i]
		if e.Invalid != nil || e.Kind != jsonrpc.KindRequest && e.Kind != jsonrpc.KindNotification || !h.era.IsModern(&e.Message) {
			continue
		}
		h.markModern()
		return jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: modern revisions have no batches; send each message on its own")
	}
	return nil
}

// prepareNotification records the state of the handshake when the notification arrives, and reports
// whether it is expected. The state that it changes already applies to the next request.
func (h *handshake) prepareNotification(r *rpc.Request) (expected bool) {
	expected = string(r.Method) != mcp.NotificationInitialized || h.era.Initialized()
	if state := h.era.State(); state != nil {
		r.State = state
	}
	return expected
}

// arrivalState returns the state that prepare recorded.
func arrivalState(r *rpc.Request) *era.State {
	state, _ := r.State.(*era.State)
	return state
}

// open checks a request by the rules of its era.
func (h *handshake) open(r *rpc.Request) (era.Request, error) {
	state, _ := r.State.(*era.State) // as arrivalState, which would keep open from being inlined
	return h.era.OpenAt(r, state)
}

// opened records that a request has passed open.
func (h *handshake) opened(ex era.Request) {
	if ex.Modern && !h.modern.Load() {
		h.markModern()
	}
}

// openNotification is open for a notification.
func (h *handshake) openNotification(r *rpc.Request) (era.Request, error) {
	return h.era.OpenNotification(r, arrivalState(r))
}

// A handshakeResult is the outcome of a handshake that was made when initialize arrived, before the
// middleware ran.
type handshakeResult struct {
	features *era.Features
	err      error
}

// start makes the handshake of an initialize request on arrival, because the messages after it
// depend on it.
func (h *handshake) start(r *rpc.Request) {
	if _, err := h.era.OpenAt(r, arrivalState(r)); err != nil {
		return // open returns the same error
	}
	result := new(handshakeResult)
	result.features, result.err = h.negotiate(r, h.era.Initialize)
	r.Route = result
}

// negotiate runs a step of the handshake and updates the policy.
func (h *handshake) negotiate(r *rpc.Request, step func(*rpc.Request) (*era.Features, error)) (*era.Features, error) {
	f, err := step(r)
	if err == nil {
		h.setPolicy()
	}
	return f, err
}

// finish returns the result of the handshake. With middleware, start has made it already, unless
// middleware has changed the request since.
func (h *handshake) finish(r *rpc.Request) (*era.Features, error) {
	if result, ok := r.Route.(*handshakeResult); ok {
		return result.features, result.err
	}
	if h.early {
		return h.negotiate(r, h.era.Reinitialize)
	}
	return h.negotiate(r, h.era.Initialize)
}

// setLevel handles logging/setLevel, which is part of the state.
func (h *handshake) setLevel(r *rpc.Request) error {
	name, err := stringParam(r, "level")
	if err != nil {
		return err
	}
	level, ok := mcp.ParseLoggingLevel(name)
	if !ok {
		return invalidParams("params.level must be one of debug, info, notice, warning, error, critical, alert, emergency")
	}
	h.era.SetLogLevel(level)
	return nil
}
