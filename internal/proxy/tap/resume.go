package tap

import (
	"bytes"
	"slices"
	"sync"

	"mcpwire/capture"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
)

// Limits of a resumeState.
const (
	maxCalls         = 65536
	maxSubscriptions = 1024
	maxReplayBytes   = 1 << 20 // bytes of a replayed frame
	maxID            = 1 << 10
)

// A resumeState is the session state that a replacement server needs. It is safe for concurrent
// use.
type resumeState struct {
	mu sync.Mutex

	// The frames to replay to a new server, as the host sent them.
	initialize    *capture.Event
	initialized   *capture.Event
	setLevel      *capture.Event
	subscriptions []subscription
	// version is the JSON text of the negotiated revision.
	version string

	// calls are requests of the host without an answer.
	calls map[string]*call
	// serverRequests are requests of the server without an answer.
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
	id     jsonrpc.ID
	method string
	// uri is the resource of a subscription.
	uri string
	// frame is the request, if it must be replayed after success.
	frame *capture.Event
	seq   uint64
	// batch is the number of the batch, or 0 outside one.
	batch uint64
}

type subscription struct {
	uri   string
	frame *capture.Event
}

func newResumeState() *resumeState {
	return &resumeState{calls: map[string]*call{}, serverRequests: map[string]jsonrpc.ID{}, staleRequests: map[string]bool{}, replayed: map[string]string{}}
}

// eachMessage calls f with each message of a frame.
func eachMessage(data []byte, f func(m *jsonrpc.Message, batch bool)) {
	if jsonrpc.IsBatch(data) {
		entries, err := jsonrpc.ParseBatch(data, 0)
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
	switch c.method = string(m.Method); c.method {
	case "resources/subscribe", "resources/unsubscribe":
		uri, _ := m.Param("uri")
		c.uri = string(uri)
		c.frame = copyEvent(e, batch)
	case "initialize", "logging/setLevel":
		c.frame = copyEvent(e, batch)
	default:
		c.method = ""
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
	case "notifications/initialized":
		r.initialized = copyEvent(e, false)
	case "notifications/cancelled":
		if id, ok := m.Param("requestId"); ok { // no answer will come
			delete(r.calls, jsonrpc.ID(id).Key())
		}
	}
}

// A disposition is the result of handleServerFrame.
type disposition struct {
	// withhold reports an answer to a replayed request.
	withhold bool
	// ready reports an answer to the handshake.
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
			if id, ok := m.Param("requestId"); ok && string(m.Method) == "notifications/cancelled" {
				delete(r.serverRequests, jsonrpc.ID(id).Key())
			}
		case jsonrpc.KindResponse, jsonrpc.KindError:
			if method, replayed := r.replayed[m.ID.Key()]; replayed && !batch {
				delete(r.replayed, m.ID.Key())
				d.withhold = true
				d.ready = method == "initialize"
				d.result, d.refused = m.Result, m.Kind == jsonrpc.KindError
				return
			}
			r.noteResponse(m)
		}
	})
	return d
}

// noteResponse applies the effect of an answered request.
func (r *resumeState) noteResponse(m *jsonrpc.Message) {
	key := m.ID.Key()
	c := r.calls[key]
	if c == nil {
		return
	}
	delete(r.calls, key)
	if m.Kind == jsonrpc.KindError || c.frame == nil {
		return
	}
	drop := func(sub subscription) bool { return sub.uri == c.uri }
	switch c.method {
	case "initialize":
		r.initialize, r.version = c.frame, string(jsonwire.Lookup(m.Result, "protocolVersion"))
	case "logging/setLevel":
		r.setLevel = c.frame
	case "resources/subscribe":
		r.subscriptions = slices.DeleteFunc(r.subscriptions, drop)
		if len(r.subscriptions) < maxSubscriptions {
			r.subscriptions = append(r.subscriptions, subscription{c.uri, c.frame})
		}
	case "resources/unsubscribe":
		r.subscriptions = slices.DeleteFunc(r.subscriptions, drop)
	}
}

// replay returns the frames to send to a new server first. They begin with the handshake.
func (r *resumeState) replay() []*capture.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.replayed)
	if r.initialize == nil {
		return nil
	}
	frames := []*capture.Event{r.initialize}
	if r.initialized != nil {
		frames = append(frames, r.initialized)
		if r.setLevel != nil {
			frames = append(frames, r.setLevel)
		}
		for _, sub := range r.subscriptions {
			frames = append(frames, sub.frame)
		}
	}
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
		handshake = handshake || method == "initialize"
	}
	return len(r.replayed) > 0, handshake
}

// unanswered lists the pending work of a server that has ended.
type unanswered struct {
	// calls are in the order sent.
	calls []*call
	// serverRequests are requests that the host need not answer anymore.
	serverRequests []jsonrpc.ID
	// initialize is the host's initialize request if it has no answer.
	initialize *capture.Event
	// legacy reports that there was a handshake.
	legacy  bool
	headers bool
}

// reset returns and clears the state that depends on the server.
func (r *resumeState) reset() unanswered {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := unanswered{headers: r.headerFraming, legacy: r.initialize != nil}
	for key, c := range r.calls {
		if c.method == "initialize" && c.frame != nil {
			l.initialize = c.frame
			delete(r.calls, key)
			continue
		}
		l.calls = append(l.calls, c)
	}
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

// negotiated returns the revision that the host knows.
func (r *resumeState) negotiated() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return []byte(r.version)
}

// usesHeaders reports whether frames have headers.
func (r *resumeState) usesHeaders() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.headerFraming
}
