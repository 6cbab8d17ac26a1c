package tap

import (
	"bytes"
	"maps"
	"slices"
	"sync"

	"mcpwire/capture"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/proxy/resume"
	"mcpwire/internal/rpc/rpcbatch"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// Limits of a resumeState.
const (
	maxCalls       = 65536
	maxReplayBytes = 1 << 20 // bytes of a replayed frame
	maxID          = 1 << 10
)

// A resumeState is what the tap must know to replace the server: the state of the session, and the
// requests without a response. It is safe for concurrent use.
type resumeState struct {
	// session has the frames as the host sent them.
	session resume.State[*capture.Event, struct{}]

	mu sync.Mutex
	// calls are requests of the host without a response.
	calls map[string]*call
	// serverRequests are requests of the server without a response.
	serverRequests map[string]jsonrpc.ID
	// staleRequests are unanswered requests of earlier servers.
	staleRequests map[string]bool
	// replayed are the unanswered replayed requests, with their methods.
	replayed map[string]string
	seq      uint64
	batches  uint64
	// headerFraming reports that frames in this session have headers.
	headerFraming bool
}

// A call is a request that a server received.
type call struct {
	id  jsonrpc.ID
	seq uint64
	// batch is the number of the batch, or 0 outside one.
	batch uint64
}

func newResumeState() *resumeState {
	return &resumeState{calls: map[string]*call{}, serverRequests: map[string]jsonrpc.ID{}, staleRequests: map[string]bool{}, replayed: map[string]string{}}
}

// eachMessage calls f with each message of a frame.
func eachMessage(data []byte, f func(m *jsonrpc.Message, batch bool)) {
	if rpcbatch.Is(data) {
		entries, err := rpcbatch.Parse(data, 0)
		if err != nil {
			return
		}
		for i := range entries {
			f(&entries[i].Message, true)
		}
		return
	}
	var m jsonrpc.Message
	if jsonrpc.Parse(data, &m, 0) == nil {
		f(&m, false)
	}
}

// handleHostFrame notes a frame that is about to be sent to the server. If the frame answers a
// request of an earlier server, it returns the id, and the frame must not be sent.
func (r *resumeState) handleHostFrame(e *capture.Event) (late jsonrpc.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.headerFraming = e.Framing == capture.FramingHeader
	r.batches++
	eachMessage(e.Data, func(m *jsonrpc.Message, batch bool) {
		switch m.Kind {
		case jsonrpc.KindRequest:
			r.noteRequest(m, e, batch)
		case jsonrpc.KindNotification:
			r.noteNotification(m, e)
		case jsonrpc.KindResponse, jsonrpc.KindError:
			key := m.ID.Key()
			if r.serverRequests[key] == nil && r.staleRequests[key] && !batch {
				late = m.ID.Clone()
			}
			delete(r.serverRequests, key)
			delete(r.staleRequests, key)
		}
	})
	return late
}

func (r *resumeState) noteRequest(m *jsonrpc.Message, e *capture.Event, batch bool) {
	if len(r.calls) >= maxCalls || len(m.ID) > maxID {
		return
	}
	r.seq++
	c := &call{id: m.ID.Clone(), seq: r.seq}
	if batch {
		c.batch = r.batches
	}
	r.session.Forget(m.ID) // an earlier request with this id
	if resume.Changes(m.Method) {
		if frame := copyEvent(e, batch); frame != nil {
			r.session.Sent(m.ID, struct{}{}, m, frame)
		}
	}
	r.calls[m.ID.Key()] = c
}

// copyEvent returns a copy of a frame, or nil if it cannot be replayed.
func copyEvent(e *capture.Event, batch bool) *capture.Event {
	if batch || len(e.Data) > maxReplayBytes {
		return nil
	}
	own := *e
	own.Data = bytes.Clone(e.Data)
	return &own
}

func (r *resumeState) noteNotification(m *jsonrpc.Message, e *capture.Event) {
	switch string(m.Method) {
	case mcp.NotificationInitialized:
		if frame := copyEvent(e, false); frame != nil {
			r.session.Initialized(frame)
		}
	case mcp.NotificationCancelled:
		if id, ok := m.Param("requestId"); ok { // no response will come
			delete(r.calls, jsonrpc.ID(id).Key())
			r.session.Forget(id)
		}
	}
}

// A disposition is the result of handleServerFrame.
type disposition struct {
	// withhold reports a response to a replayed request.
	withhold bool
	// ready reports a response to the handshake.
	ready bool
	// result is the result of the replayed request. It aliases the frame.
	result  []byte
	refused bool
}

// handleServerFrame notes a frame of the server.
func (r *resumeState) handleServerFrame(e *capture.Event) (d disposition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	eachMessage(e.Data, func(m *jsonrpc.Message, batch bool) {
		switch m.Kind {
		case jsonrpc.KindRequest:
			if len(r.serverRequests) < maxCalls && len(m.ID) <= maxID {
				r.serverRequests[m.ID.Key()] = m.ID.Clone()
			}
		case jsonrpc.KindNotification:
			if id, ok := m.Param("requestId"); ok && string(m.Method) == mcp.NotificationCancelled {
				delete(r.serverRequests, jsonrpc.ID(id).Key())
			}
		case jsonrpc.KindResponse, jsonrpc.KindError:
			if method, replayed := r.replayed[m.ID.Key()]; replayed && !batch {
				delete(r.replayed, m.ID.Key())
				d.withhold = true
				d.ready = method == mcp.MethodInitialize
				d.result, d.refused = m.Result, m.Kind == jsonrpc.KindError
				return
			}
			delete(r.calls, m.ID.Key())
			r.session.Answered(m)
		}
	})
	return d
}

// replay returns the frames to send to a new server first. They begin with the handshake.
func (r *resumeState) replay() []*capture.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.replayed)
	frames := r.session.Replay()
	for _, e := range frames {
		eachMessage(e.Data, func(m *jsonrpc.Message, _ bool) {
			if m.Kind == jsonrpc.KindRequest {
				r.replayed[m.ID.Key()] = string(m.Method)
			}
		})
	}
	return frames
}

// awaitsReplay reports whether replayed requests are pending, and whether the handshake is one of
// them.
func (r *resumeState) awaitsReplay() (pending, handshake bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, method := range r.replayed {
		handshake = handshake || method == mcp.MethodInitialize
	}
	return len(r.replayed) > 0, handshake
}

// unanswered lists the pending work of a server that has ended.
type unanswered struct {
	// calls are in the order sent.
	calls []*call
	// serverRequests are requests that the host need not answer anymore.
	serverRequests []jsonrpc.ID
	// initialize is the host's initialize request if it has no response.
	initialize *capture.Event
	headers    bool
}

// reset returns and clears the state that depends on the server.
func (r *resumeState) reset() unanswered {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := unanswered{headers: r.headerFraming}
	if key, initialize, pending := r.session.Disconnected(); pending {
		l.initialize = initialize
		delete(r.calls, key)
	}
	l.calls = slices.AppendSeq(l.calls, maps.Values(r.calls))
	slices.SortFunc(l.calls, func(a, b *call) int { return int(int64(a.seq) - int64(b.seq)) })
	for key, id := range r.serverRequests {
		l.serverRequests = append(l.serverRequests, id)
		if len(r.staleRequests) < maxCalls {
			r.staleRequests[key] = true
		}
	}
	slices.SortFunc(l.serverRequests, func(a, b jsonrpc.ID) int { return bytes.Compare(a, b) })
	clear(r.calls)
	clear(r.serverRequests)
	clear(r.replayed)
	return l
}

// negotiated returns the JSON text of the revision that the host knows.
func (r *resumeState) negotiated() []byte {
	_, result := r.session.Handshake()
	return jsonwire.Lookup(result, "protocolVersion")
}

// usesHeaders reports whether frames have headers.
func (r *resumeState) usesHeaders() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.headerFraming
}
