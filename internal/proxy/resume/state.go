// Package resume stores the state that a replacement for a legacy server needs: the
// handshake, the log level and the subscriptions of the session
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle).
// The tap and the bridge restart servers with it.
package resume

import (
	"slices"
	"sync"

	"mcpwire/internal/base/sparse"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// MaxSubscriptions limits the subscribed resources of a [State].
const MaxSubscriptions = 1024

// A State is the state of one legacy session. A Frame is a message as the caller stores it. An
// Owner is a client; several may share the session. The zero value is ready to use. The methods may
// be called by many goroutines at once. The caller limits the size of frames and the number of
// pending requests, and must not change frames.
type State[Frame any, Owner comparable] struct {
	mu sync.Mutex
	// pending holds the requests without a response that may change the state, by [jsonrpc.ID.Key].
	pending map[string]request[Frame, Owner]

	// initialize was answered with result. It is valid if result is not nil.
	initialize Frame
	result     []byte

	initialized    Frame
	hasInitialized bool
	setLevel       Frame
	hasSetLevel    bool
	// subscriptions holds the subscribed resources in the order of their subscription.
	subscriptions []*subscription[Frame, Owner]
}

// A request is a request without a response.
type request[Frame any, Owner comparable] struct {
	method string
	uri    string
	owner  Owner
	frame  Frame
}

// A subscription is a resource with its subscribers.
type subscription[Frame any, Owner comparable] struct {
	uri    string
	frame  Frame
	owners []Owner
}

// Changes reports if a request of the method may change the state of a session.
func Changes(method []byte) bool {
	switch string(method) {
	case mcp.MethodInitialize, mcp.MethodSetLevel, mcp.MethodResourcesSubscribe, mcp.MethodResourcesUnsubscribe:
		return true
	}
	return false
}

// Sent records a request that is about to be sent. m has its method and params; id is its id for
// the server.
func (s *State[Frame, Owner]) Sent(id jsonrpc.ID, owner Owner, m *jsonrpc.Message, frame Frame) {
	if !Changes(m.Method) {
		return
	}
	uri, _ := m.Param("uri")
	s.mu.Lock()
	defer s.mu.Unlock()
	sparse.Set(&s.pending, id.Key(), request[Frame, Owner]{string(m.Method), jsonwire.Text(uri), owner, frame})
}

// Forget removes a pending request, whose response will not be used.
func (s *State[Frame, Owner]) Forget(id jsonrpc.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) > 0 {
		delete(s.pending, id.Key())
	}
}

// Answered records a response of the server.
func (s *State[Frame, Owner]) Answered(m *jsonrpc.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 {
		return
	}
	key := m.ID.Key()
	r, ok := s.pending[key]
	delete(s.pending, key)
	if !ok || m.Kind != jsonrpc.KindResponse {
		return
	}
	switch r.method {
	case mcp.MethodInitialize:
		s.initialize, s.result = r.frame, slices.Clone(m.Result)
	case mcp.MethodSetLevel:
		s.setLevel, s.hasSetLevel = r.frame, true
	case mcp.MethodResourcesSubscribe:
		s.subscribeLocked(r)
	case mcp.MethodResourcesUnsubscribe:
		s.unsubscribeLocked(r.owner, r.uri)
	}
}

func (s *State[Frame, Owner]) subscribeLocked(r request[Frame, Owner]) {
	sub := s.subscriptionLocked(r.uri)
	switch {
	case sub != nil:
		sub.frame = r.frame
	case len(s.subscriptions) < MaxSubscriptions:
		sub = &subscription[Frame, Owner]{uri: r.uri, frame: r.frame}
		s.subscriptions = append(s.subscriptions, sub)
	default:
		return
	}
	if !slices.Contains(sub.owners, r.owner) {
		sub.owners = append(sub.owners, r.owner)
	}
}

// unsubscribeLocked ends the subscription of an owner. It reports if nobody is subscribed anymore.
func (s *State[Frame, Owner]) unsubscribeLocked(owner Owner, uri string) (ended bool) {
	sub := s.subscriptionLocked(uri)
	if sub == nil || !slices.Contains(sub.owners, owner) {
		return false
	}
	sub.owners = slices.DeleteFunc(sub.owners, func(o Owner) bool { return o == owner })
	if len(sub.owners) > 0 {
		return false
	}
	s.subscriptions = slices.DeleteFunc(s.subscriptions, func(other *subscription[Frame, Owner]) bool { return other == sub })
	return true
}

// subscriptionLocked returns the subscription of a resource, or nil.
func (s *State[Frame, Owner]) subscriptionLocked(uri string) *subscription[Frame, Owner] {
	for _, sub := range s.subscriptions {
		if sub.uri == uri {
			return sub
		}
	}
	return nil
}

// Initialized records the client's initialized notification.
func (s *State[Frame, Owner]) Initialized(frame Frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.initialized, s.hasInitialized = frame, true
}

// IsInitialized reports if there was an initialized notification.
func (s *State[Frame, Owner]) IsInitialized() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hasInitialized
}

// Handshake returns the initialize request and its result, which is nil before the handshake.
func (s *State[Frame, Owner]) Handshake() (initialize Frame, result []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.initialize, s.result
}

// SetHandshake records a handshake.
func (s *State[Frame, Owner]) SetHandshake(initialize Frame, result []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.initialize, s.result = initialize, slices.Clone(result)
}

// SetLevel replaces the logging/setLevel request by what change returns. It does nothing if there
// was none.
func (s *State[Frame, Owner]) SetLevel(change func(Frame) Frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hasSetLevel {
		s.setLevel = change(s.setLevel)
	}
}

// Replay returns the messages for a new server: initialize, initialized, logging/setLevel and
// resources/subscribe, as far as there are any. It returns none before the handshake.
func (s *State[Frame, Owner]) Replay() []Frame {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.result == nil {
		return nil
	}
	frames := []Frame{s.initialize}
	if s.hasInitialized {
		frames = append(frames, s.initialized)
	}
	if s.hasSetLevel {
		frames = append(frames, s.setLevel)
	}
	for _, sub := range s.subscriptions {
		frames = append(frames, sub.frame)
	}
	return frames
}

// Disconnected forgets the pending requests. It returns a pending initialize request, with its id.
func (s *State[Frame, Owner]) Disconnected() (key string, initialize Frame, pending bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, r := range s.pending {
		if r.method == mcp.MethodInitialize {
			key, initialize, pending = k, r.frame, true
		}
	}
	clear(s.pending)
	return key, initialize, pending
}

// IsFull reports if no more resources can be subscribed.
func (s *State[Frame, Owner]) IsFull() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.subscriptions) >= MaxSubscriptions
}

// Subscribers returns the owners that subscribed to a resource, or to one that contains it.
func (s *State[Frame, Owner]) Subscribers(uri string) (list []Owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sub := range s.subscriptions {
		if !era.IsSubresource(uri, sub.uri) {
			continue
		}
		for _, o := range sub.owners {
			if !slices.Contains(list, o) {
				list = append(list, o)
			}
		}
	}
	return list
}

// Unsubscribe ends the subscription of one of several owners. It reports false, and does nothing,
// if no other owner is subscribed or about to be: then the server must know.
func (s *State[Frame, Owner]) Unsubscribe(owner Owner, uri string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	others := false
	sub := s.subscriptionLocked(uri)
	if sub != nil {
		others = slices.ContainsFunc(sub.owners, func(o Owner) bool { return o != owner })
	}
	for _, r := range s.pending {
		others = others || r.owner != owner && r.method == mcp.MethodResourcesSubscribe && r.uri == uri
	}
	if others {
		s.unsubscribeLocked(owner, uri)
	}
	return others
}

// RemoveOwner forgets an owner, and returns the resources that nobody is subscribed to anymore.
func (s *State[Frame, Owner]) RemoveOwner(owner Owner) (ended []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sub := range slices.Clone(s.subscriptions) {
		if s.unsubscribeLocked(owner, sub.uri) {
			ended = append(ended, sub.uri)
		}
	}
	for key, r := range s.pending {
		if r.owner == owner {
			delete(s.pending, key)
		}
	}
	return ended
}

// A List is something that a server lists, and may announce changes of.
type List struct {
	// Capability is the server's capability.
	Capability string
	// Changed is the notification that the list changed.
	Changed string
}

// Lists returns all lists.
func Lists() []List { return lists[:] }

var lists = [...]List{
	{"tools", mcp.NotificationToolsChanged}, {"prompts", mcp.NotificationPromptsChanged}, {"resources", mcp.NotificationResourcesChanged},
}

// ListsOf returns the lists that the result of initialize declares.
func ListsOf(result []byte) (declared []List) {
	capabilities := jsonwire.Lookup(result, "capabilities")
	for _, l := range lists {
		if jsonwire.Lookup(capabilities, l.Capability) != nil {
			declared = append(declared, l)
		}
	}
	return declared
}
