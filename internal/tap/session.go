package tap

import (
	"bytes"
	"slices"
	"sync"

	"mcpwire/capture"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
)

// What a session remembers at most.
const (
	maxCalls      = 65536
	maxSubscribed = 1024
	maxRemembered = 1 << 20 // bytes of a frame that is sent again
	maxID         = 1 << 10
)

// A session is what has to be known of the traffic to put another server in the place of one. Its methods may be called by several goroutines at once.
type session struct {
	mu sync.Mutex

	// What is sent to a new server, as the host sent it.
	initialize  *capture.Event
	initialized *capture.Event
	setLevel    *capture.Event
	subscribed  []subscription
	version     string // that was agreed on: the JSON text

	calls   map[string]*call      // that the server has not answered
	asked   map[string]jsonrpc.ID // requests of the server that the host has not answered
	stale   map[string]bool       // requests of servers before it, likewise
	owed    map[string]string     // replayed requests that the server has not answered, with their methods
	seq     uint64
	batches uint64
	headers bool // frames have headers in this session
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

func newSession() *session {
	return &session{calls: map[string]*call{}, asked: map[string]jsonrpc.ID{}, stale: map[string]bool{}, owed: map[string]string{}}
}

// idKey is equal for equal ids.
func idKey(id jsonrpc.ID) string {
	if s, ok := id.Text(); ok {
		return `"` + s
	}
	return string(id)
}

// messages calls f with each message of a frame.
func messages(data []byte, f func(m *jsonrpc.Message, batch bool)) {
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

// toServer takes note of a frame that is about to be sent to the server. It returns the ids of answers that are for a server before it; such a frame must
// not be sent.
func (s *session) toServer(e *capture.Event) (late jsonrpc.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.headers = e.Framing == capture.FramingHeader
	s.batches++
	messages(e.Data, func(m *jsonrpc.Message, batch bool) {
		switch m.Kind {
		case jsonrpc.KindRequest:
			s.called(m, e, batch)
		case jsonrpc.KindNotification:
			s.notified(m, e)
		case jsonrpc.KindResponse, jsonrpc.KindError:
			key := idKey(m.ID)
			if s.asked[key] == nil && s.stale[key] && !batch {
				late = m.ID.Clone()
			}
			delete(s.asked, key)
			delete(s.stale, key)
		}
	})
	return late
}

func (s *session) called(m *jsonrpc.Message, e *capture.Event, batch bool) {
	if len(s.calls) >= maxCalls || len(m.ID) > maxID {
		return
	}
	s.seq++
	c := &call{id: m.ID.Clone(), seq: s.seq}
	if batch {
		c.batch = s.batches
	}
	switch c.method = string(m.Method); c.method {
	case "resources/subscribe", "resources/unsubscribe":
		uri, _ := m.Param("uri")
		c.uri = string(uri)
		c.frame = remember(e, batch)
	case "initialize", "logging/setLevel":
		c.frame = remember(e, batch)
	default:
		c.method = ""
	}
	s.calls[idKey(m.ID)] = c
}

// remember returns a copy of a frame, nil if it cannot be sent again.
func remember(e *capture.Event, batch bool) *capture.Event {
	if batch || len(e.Data) > maxRemembered {
		return nil
	}
	own := *e
	own.Data = bytes.Clone(e.Data)
	return &own
}

func (s *session) notified(m *jsonrpc.Message, e *capture.Event) {
	switch string(m.Method) {
	case "notifications/initialized":
		s.initialized = remember(e, false)
	case "notifications/cancelled":
		if id, ok := m.Param("requestId"); ok { // it will not be answered
			delete(s.calls, idKey(jsonrpc.ID(id)))
		}
	}
}

// A verdict is what fromServer says of a frame.
type verdict struct {
	keep    bool   // it answers what the host has not sent
	ready   bool   // it is the answer to the handshake
	result  []byte // to it: aliases the frame
	refused bool
}

// fromServer takes note of a frame of the server.
func (s *session) fromServer(e *capture.Event) (v verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	messages(e.Data, func(m *jsonrpc.Message, batch bool) {
		switch m.Kind {
		case jsonrpc.KindRequest:
			if len(s.asked) < maxCalls && len(m.ID) <= maxID {
				s.asked[idKey(m.ID)] = m.ID.Clone()
			}
		case jsonrpc.KindNotification:
			if id, ok := m.Param("requestId"); ok && string(m.Method) == "notifications/cancelled" {
				delete(s.asked, idKey(jsonrpc.ID(id)))
			}
		case jsonrpc.KindResponse, jsonrpc.KindError:
			if method, owed := s.owed[idKey(m.ID)]; owed && !batch {
				delete(s.owed, idKey(m.ID))
				v.keep = true
				v.ready = method == "initialize"
				v.result, v.refused = m.Result, m.Kind == jsonrpc.KindError
				return
			}
			s.answered(m)
		}
	})
	return v
}

// answered remembers what a request has brought about.
func (s *session) answered(m *jsonrpc.Message) {
	key := idKey(m.ID)
	c := s.calls[key]
	if c == nil {
		return
	}
	delete(s.calls, key)
	if m.Kind == jsonrpc.KindError || c.frame == nil {
		return
	}
	drop := func(sub subscription) bool { return sub.uri == c.uri }
	switch c.method {
	case "initialize":
		s.initialize, s.version = c.frame, string(jsonwire.Lookup(m.Result, "protocolVersion"))
	case "logging/setLevel":
		s.setLevel = c.frame
	case "resources/subscribe":
		s.subscribed = slices.DeleteFunc(s.subscribed, drop)
		if len(s.subscribed) < maxSubscribed {
			s.subscribed = append(s.subscribed, subscription{c.uri, c.frame})
		}
	case "resources/unsubscribe":
		s.subscribed = slices.DeleteFunc(s.subscribed, drop)
	}
}

// replay returns what a new server is sent before anything else: the handshake first.
func (s *session) replay() []*capture.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.owed)
	if s.initialize == nil {
		return nil
	}
	frames := []*capture.Event{s.initialize}
	if s.initialized != nil {
		frames = append(frames, s.initialized)
		if s.setLevel != nil {
			frames = append(frames, s.setLevel)
		}
		for _, sub := range s.subscribed {
			frames = append(frames, sub.frame)
		}
	}
	for _, e := range frames {
		messages(e.Data, func(m *jsonrpc.Message, _ bool) {
			if m.Kind == jsonrpc.KindRequest {
				s.owed[idKey(m.ID)] = string(m.Method)
			}
		})
	}
	return frames
}

// owes reports whether replayed requests are not answered, and whether the handshake is one of them.
func (s *session) owes() (any, handshake bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, method := range s.owed {
		handshake = handshake || method == "initialize"
	}
	return len(s.owed) > 0, handshake
}

// lost is what a server that has ended leaves behind.
type lost struct {
	calls   []*call        // in the order in which they were sent
	asked   []jsonrpc.ID   // requests that the host need not answer any more
	again   *capture.Event // the host's initialize, if it was not answered
	legacy  bool           // there was a handshake
	headers bool
}

// lose forgets what depends on the server.
func (s *session) lose() lost {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := lost{headers: s.headers, legacy: s.initialize != nil}
	for key, c := range s.calls {
		if c.method == "initialize" && c.frame != nil {
			l.again = c.frame
			delete(s.calls, key)
			continue
		}
		l.calls = append(l.calls, c)
	}
	slices.SortFunc(l.calls, func(a, b *call) int { return int(int64(a.seq) - int64(b.seq)) })
	for key, id := range s.asked {
		l.asked = append(l.asked, id)
		if len(s.stale) < maxCalls {
			s.stale[key] = true
		}
	}
	slices.SortFunc(l.asked, func(a, b jsonrpc.ID) int { return bytes.Compare(a, b) })
	clear(s.calls)
	clear(s.asked)
	clear(s.owed)
	return l
}

// agreed returns the revision that the host was told.
func (s *session) agreed() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []byte(s.version)
}

// framed reports whether frames have headers.
func (s *session) framed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.headers
}
