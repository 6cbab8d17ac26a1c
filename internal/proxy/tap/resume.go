package tap

import (
	"bytes"
	"slices"
	"sync"

	"mcpwire/capture"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
)

// What a session remembers at most.
const (
	maxCalls         = 65536
	maxSubscriptions = 1024
	maxReplayBytes   = 1 << 20 // bytes of a frame that is sent again
	maxID            = 1 << 10
)

// A session is what has to be known of the traffic to put another server in the place of one. Its methods may be called by several goroutines at once.
type resumeState struct {
	mu sync.Mutex

	// What is sent to a new server, as the host sent it.
	initialize    *capture.Event
	initialized   *capture.Event
	setLevel      *capture.Event
	subscriptions []subscription
	version       string // that was agreed on: the JSON text

	calls          map[string]*call      // that the server has not answered
	serverRequests map[string]jsonrpc.ID // requests of the server that the host has not answered
	staleRequests  map[string]bool       // requests of servers before it, likewise
	replayed       map[string]string     // replayed requests that the server has not answered, with their methods
	seq            uint64
	batches        uint64
	headerFraming  bool // frames have headers in this session
}

// A call is a request that a server was given.
type call struct {
	id     jsonrpc.ID
	method string
	uri    string         // of a subscription
	frame  *capture.Event // if it is to be remembered when it has succeeded
	seq    uint64
	batch  uint64 // 0 if it was in none
}

type subscription struct {
	uri   string
	frame *capture.Event
}

func newResumeState() *resumeState {
	return &resumeState{calls: map[string]*call{}, serverRequests: map[string]jsonrpc.ID{}, staleRequests: map[string]bool{}, replayed: map[string]string{}}
}

// idKey is equal for equal ids.
func idKey(id jsonrpc.ID) string {
	if s, ok := id.Text(); ok {
		return `"` + s
	}
	return string(id)
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

// handleHostFrame takes note of a frame that is about to be sent to the server. It returns the ids of answers that are for a server before it; such a frame must
// not be sent.
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
			key := idKey(m.ID)
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
	r.calls[idKey(m.ID)] = c
}

// copyEvent returns a copy of a frame, nil if it cannot be sent again.
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
		if id, ok := m.Param("requestId"); ok { // it will not be answered
			delete(r.calls, idKey(jsonrpc.ID(id)))
		}
	}
}

// A verdict is what handleServerFrame says of a frame.
type disposition struct {
	withhold bool   // it answers what the host has not sent
	ready    bool   // it is the answer to the handshake
	result   []byte // to it: aliases the frame
	refused  bool
}

// handleServerFrame takes note of a frame of the server.
func (r *resumeState) handleServerFrame(e *capture.Event) (d disposition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	eachMessage(e.Data, func(m *jsonrpc.Message, batch bool) {
		switch m.Kind {
		case jsonrpc.KindRequest:
			if len(r.serverRequests) < maxCalls && len(m.ID) <= maxID {
				r.serverRequests[idKey(m.ID)] = m.ID.Clone()
			}
		case jsonrpc.KindNotification:
			if id, ok := m.Param("requestId"); ok && string(m.Method) == "notifications/cancelled" {
				delete(r.serverRequests, idKey(jsonrpc.ID(id)))
			}
		case jsonrpc.KindResponse, jsonrpc.KindError:
			if method, replayed := r.replayed[idKey(m.ID)]; replayed && !batch {
				delete(r.replayed, idKey(m.ID))
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

// noteResponse remembers what a request has brought about.
func (r *resumeState) noteResponse(m *jsonrpc.Message) {
	key := idKey(m.ID)
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

// replay returns what a new server is sent before anything else: the handshake first.
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
				r.replayed[idKey(m.ID)] = string(m.Method)
			}
		})
	}
	return frames
}

// awaitsReplay reports whether replayed requests are not answered, and whether the handshake is one of them.
func (r *resumeState) awaitsReplay() (pending, handshake bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, method := range r.replayed {
		handshake = handshake || method == "initialize"
	}
	return len(r.replayed) > 0, handshake
}

// unanswered is what a server that has ended leaves behind.
type unanswered struct {
	calls          []*call        // in the order in which they were sent
	serverRequests []jsonrpc.ID   // requests that the host need not answer any more
	initialize     *capture.Event // the host's initialize, if it was not answered
	legacy         bool           // there was a handshake
	headers        bool
}

// reset forgets what depends on the server.
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

// negotiated returns the revision that the host was told.
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
