package streamable

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"mcpwire/internal/base/wait"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// Nodes connects the handlers of processes that share sessions. Some messages of a session must
// reach a certain process: the response to an input request the one that has sent the request, a
// cancellation the one that handles the call. It must be safe for concurrent use.
type Nodes interface {
	// Name returns the name of this process, which is a node: 1 to 16 ASCII letters and digits. No
	// other node has the name, also none that has ended in the last day.
	Name() string
	// Request sends a message to the handler of another node and returns its reply. The error wraps
	// [ErrNoNode] if there is no such node.
	Request(ctx context.Context, node string, message []byte) (reply []byte, err error)
	// Publish sends a message to the handlers of all other nodes that are connected now.
	Publish(ctx context.Context, message []byte) error
	// Receive calls handle with each message of other nodes for this one, until stop is called, and
	// returns the reply to the node that has sent a request. handle does not block, and owns the
	// message. stop waits for handle.
	Receive(handle func(message []byte) (reply []byte)) (stop func(), err error)
}

// ErrNoNode is the error of a message to a node that does not exist, or no longer.
var ErrNoNode = errors.New("no such node")

// maxForwarded limits the notifications of other nodes that are being handled, and the responses
// for them that are sent again.
const maxForwarded = 256

// A nodeMessage is a message that a node sends to another. Nodes of later versions may add members.
type nodeMessage struct {
	// Session is the key of the session. Empty asks whether the node is there.
	Session string `json:"session,omitempty"`
	// Principal is the id of its principal.
	Principal string `json:"principal,omitempty"`
	// Stream asks for the state of the stream with that name.
	Stream string `json:"stream,omitempty"`
	// Version asks for the version of the record that the node follows.
	Version bool `json:"version,omitempty"`
	// Listener is the node at which the client now listens.
	Listener string `json:"listener,omitempty"`
	// Standalone is a JSON-RPC message to the client that belongs to no request.
	Standalone json.RawMessage `json:"standalone,omitempty"`
	// Hops counts the nodes that have sent Standalone.
	Hops int `json:"hops,omitempty"`
	// Message is a JSON-RPC response or notification of the client.
	Message json.RawMessage `json:"message,omitempty"`
}

// A nodeReply is the reply to a nodeMessage.
type nodeReply struct {
	// State is that of the Stream.
	State streamState `json:"state,omitempty"`
	// Accepted means that the node sends Standalone.
	Accepted bool `json:"accepted,omitempty"`
	// Version is that of the record that the node follows.
	Version uint64 `json:"version,omitempty"`
}

// A forwarder exchanges messages with the handlers of other nodes.
type forwarder struct {
	h     *Handler
	nodes Nodes
	stop  func()
	// handling has an item for each function of start that runs.
	handling chan struct{}
	// announces means that the server notifies the servers of other nodes of what isAnnounced
	// reports.
	announces bool

	mu sync.Mutex
	// watched has the nodes of the streams that are followed.
	watched map[string]*nodeWatch
}

// newForwarder connects the handler to others. It returns nil if nodes is nil.
func newForwarder(h *Handler, nodes Nodes, announces bool) (*forwarder, error) {
	if nodes == nil {
		return nil, nil
	}
	name := nodes.Name()
	if !isNodeName(name) {
		return nil, fmt.Errorf("streamable: invalid name %.40q of a node: use 1 to 16 letters and digits", name)
	}
	h.instance = name
	f := &forwarder{h: h, nodes: nodes, handling: make(chan struct{}, maxForwarded), announces: announces, watched: make(map[string]*nodeWatch)}
	var err error
	if f.stop, err = nodes.Receive(f.receive); err != nil {
		return nil, fmt.Errorf("streamable: connect to other nodes: %w", err)
	}
	return f, nil
}

func isNodeName(name string) bool {
	return name != "" && len(name) <= 16 && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	})
}

// close ends the connection. f may be nil.
func (f *forwarder) close() {
	if f != nil {
		f.stop()
	}
}

// forward sends a one-way message of the session's client to the nodes that it concerns. It reports
// whether it concerns only another one. f may be nil.
func (f *forwarder) forward(ctx context.Context, s *session, m *jsonrpc.Message) (elsewhere bool) {
	if f == nil {
		return false
	}
	if m.Kind == jsonrpc.KindNotification {
		switch string(m.Method) {
		case mcp.NotificationCancelled, mcp.NotificationRootsChanged:
			f.publish(ctx, s, m)
		}
		return false
	}
	node := nodeOf(m.ID)
	if node == "" || node == f.h.instance {
		return false
	}
	f.sendResponse(ctx, s.key, s.principalID, m, node)
	return true
}

// nodeOf returns the node that has sent the request with that id, or "".
func nodeOf(id jsonrpc.ID) string {
	text, ok := strings.CutPrefix(string(id), `"`)
	node, _, found := strings.Cut(text, ".")
	if !ok || !found || !isNodeName(node) {
		return ""
	}
	return node
}

// publish sends a notification to all other nodes, and counts one that is lost.
func (f *forwarder) publish(ctx context.Context, s *session, m *jsonrpc.Message) {
	data, err := json.Marshal(&nodeMessage{Session: s.key, Principal: s.principalID, Message: m.Raw()})
	if err == nil {
		err = f.h.callStore(ctx, func(ctx context.Context) error { return f.nodes.Publish(ctx, data) })
	}
	if err != nil {
		f.lost(string(m.Method), err)
		return
	}
	f.h.forwarded.Add(1)
}

// responseTime limits the attempts to send a response to the node that it is for.
const responseTime = 20 * time.Second

// sendResponse sends a response to a node. A node that does not take it may be suspended, or have
// no connection for a while. The call that waits for the response would then hang, so sendResponse
// tries again for a while, without blocking.
func (f *forwarder) sendResponse(ctx context.Context, key, principalID string, m *jsonrpc.Message, node string) {
	message := &nodeMessage{Session: key, Principal: principalID, Message: bytes.Clone(m.Raw())}
	_, err := f.request(ctx, node, message)
	if err == nil {
		f.h.forwarded.Add(1)
		return
	}
	if !f.start(func() {
		ctx, cancel := context.WithTimeout(f.h.closed, responseTime)
		defer cancel()
		for err != nil && wait.Sleep(ctx, nodeInterval) {
			_, err = f.request(ctx, node, message)
		}
		if err != nil {
			f.lost("", err)
			return
		}
		f.h.forwarded.Add(1)
	}) {
		f.lost("", err)
	}
}

// start runs a function on another goroutine. It reports false if too many run, or if the handler
// has shut down.
func (f *forwarder) start(run func()) bool {
	select {
	case f.handling <- struct{}{}:
	default:
		return false
	}
	started := f.h.followers.Start(func() {
		defer func() { <-f.handling }()
		run()
	})
	if !started {
		<-f.handling
	}
	return started
}

// forwardUnopened sends the response of a client to the node that it is for, if this node has not
// opened the session and need not look up its record: opening it would take longer. It reports
// whether it did.
func (h *Handler) forwardUnopened(r *http.Request, from requester, m *jsonrpc.Message) bool {
	viewer, ok := h.opts.Sessions.(SessionViewer)
	node, ids := nodeOf(m.ID), r.Header[headerSession]
	if !ok || len(h.legacy) == 0 || h.forwarder == nil || h.sealer == nil || node == "" || node == h.instance || len(ids) != 1 || !h.supportsLegacy(from.versions) {
		return false
	}
	key, principalID := sessionKey(ids[0]), from.principal.ID()
	if key == "" {
		return false
	}
	if s := h.sessions.acquire(key); s != nil {
		s.release()
		return false
	}
	if h.sealer.open(ids[0], principalID, h.clock.now()) == nil {
		return false
	}
	if saved, ok := viewer.View(key); !ok || saved != nil && saved.Ended {
		return false
	}
	h.forwarder.sendResponse(r.Context(), key, principalID, m, node)
	return true
}

// lost counts a message that does not reach the node that it is for.
func (f *forwarder) lost(method string, err error) {
	f.h.unforwarded.Add(1)
	f.h.opts.Logger.Warn("message not forwarded", "method", method, "error", err)
}

var errNoNodes = errors.New("the processes are not connected")

// request sends a message to another node and returns its reply. f may be nil.
func (f *forwarder) request(ctx context.Context, node string, m *nodeMessage) (reply nodeReply, err error) {
	if f == nil {
		return reply, errNoNodes
	}
	data, err := json.Marshal(m)
	if err != nil {
		return reply, err
	}
	err = f.h.callStore(ctx, func(ctx context.Context) error {
		text, err := f.nodes.Request(ctx, node, data)
		if err != nil {
			return err
		}
		return json.Unmarshal(text, &reply)
	})
	return reply, err
}

// receive handles a message of another node.
func (f *forwarder) receive(data []byte) (reply []byte) {
	var received nodeMessage
	if err := json.Unmarshal(data, &received); err != nil {
		f.h.opts.Logger.Warn("invalid message of another node", "error", err)
		return nil
	}
	reply, err := json.Marshal(f.handle(&received))
	if err != nil {
		f.h.opts.Logger.Error("reply to another node not encoded", "error", err) // not reached
	}
	return reply
}

func (f *forwarder) handle(received *nodeMessage) (reply nodeReply) {
	s := f.sessionOf(received)
	switch {
	case s == nil:
		reply.State = streamEnded
		return reply
	case received.Message != nil:
		f.deliver(s, received) // which releases it
		return reply
	case received.Stream != "":
		reply.State = s.stateOf(received.Stream)
	case received.Version:
		reply.Version = s.shared.followed.Load()
	case received.Listener != "":
		s.shared.setListener(received.Listener)
	case received.Standalone != nil:
		reply.Accepted = s.receiveStandalone(received)
	}
	s.release() // its client waits for the stream
	return reply
}

// sessionOf acquires and returns the session of a message. It returns nil if this process does not
// have it.
func (f *forwarder) sessionOf(received *nodeMessage) *session {
	if sessionKey(received.Session) != received.Session || received.Session == "" {
		return nil
	}
	s := f.h.sessions.acquire(received.Session)
	if s != nil && (s.shared == nil || s.principalID != received.Principal) {
		s.release()
		return nil
	}
	return s
}

// deliver delivers a message of the session's client that another node has forwarded, and releases
// the session.
func (f *forwarder) deliver(s *session, forwarded *nodeMessage) {
	var m jsonrpc.Message
	if err := jsonrpc.Parse(forwarded.Message, &m, 0); err != nil {
		s.release()
		f.h.opts.Logger.Warn("invalid message of another node", "error", err)
		return
	}
	if m.Kind != jsonrpc.KindNotification {
		defer s.release()
		s.peer.deliverResponse(s.shared.identity, forwarded.Message, &m)
		return
	}
	if !f.start(func() {
		defer s.release()
		s.peer.deliverNotification(s.shared.identity, forwarded.Message, &m)
	}) {
		s.release()
		f.h.unforwarded.Add(1)
		f.h.opts.Logger.Warn("message of another node dropped: too many are being handled, or this one is shutting down", "method", string(m.Method))
	}
}
