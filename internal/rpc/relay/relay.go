// Package relay is the seam between package streamable and the programs of this repository that
// forward its messages, as a bridge does, or answer them from a capture. streamable.NewHandler
// takes a [Server] like any server.Server, and passes messages to its [Handler] unchanged.
//
// The HTTP handler checks what it checks for other servers, as far as it can see the server: after
// a list of tools has passed, it compares Mcp-Param headers with the body. It rejects a message
// with a duplicate member in any object, so that the Handler reads the message as the checks do,
// for example streamable.Options.Scopes.
package relay

import (
	"cmp"
	"context"
	"time"

	"mcpwire/internal/base/seal"
	"mcpwire/internal/rpc"
	"mcpwire/internal/rpc/backend"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A Handler handles the messages of a [Server]. It must be safe for concurrent use.
type Handler interface {
	// Revisions returns the revisions that clients may use.
	Revisions() []mcp.Revision
	// Stateless returns the peer of all requests without a session, or nil to reject them. It is
	// called once.
	Stateless() Peer
	// Session returns the peer of one session, or nil to reject the session. The peer sends
	// messages that belong to no request to out. ctx has the values of the request that opens the
	// session, such as auth.PrincipalOf, and does not end.
	Session(ctx context.Context, out rpc.Sender) Peer
	// Serve relays the messages of f, from a client that posts lines (see
	// streamable.Options.NDJSON). They have not been checked for duplicate members.
	Serve(ctx context.Context, f jsonrpc.Framer) error
}

// A Sharer is a [Handler] whose sessions may be at several processes at once: each can open a
// session that a client has with another one, by the same initialize request.
type Sharer interface {
	Handler
	// SharedKeys returns the ring that seals the ids of sessions, and a name that the processes
	// have in common. A nil ring means that sessions are not shared.
	SharedKeys() (ring *seal.Ring, name string)
	// SharedSession is Session for a session that other processes may have too. The ids of the
	// requests that its peer sends to the client are strings that begin with callPrefix and a dot.
	SharedSession(ctx context.Context, out rpc.Sender, callPrefix string) Peer
}

// A Peer receives the messages of one session, or of all requests without one. It must be safe for
// concurrent use. Messages and frames are valid until the method returns.
type Peer interface {
	// Request relays a request and appends the response to dst: the whole message, with the id of
	// the request. Without a response it returns dst and an error: when ctx has ended or the peer
	// was closed, or a *[RejectedError] for a request that was not relayed. frame is the text of m,
	// or nil if m came in a batch. Messages that precede the response go to out, which may be nil,
	// and fails once the method has returned.
	Request(ctx context.Context, frame []byte, m *jsonrpc.Message, out rpc.Sender, dst []byte) ([]byte, error)
	// Notification relays a notification.
	Notification(ctx context.Context, frame []byte, m *jsonrpc.Message)
	// Response relays the response to a request that was sent to a Sender.
	Response(ctx context.Context, frame []byte, m *jsonrpc.Message)
	// Close ends the session and cancels its pending requests. It does not wait.
	Close()
}

// A Notifier is a [Peer] that knows what its client wants to be notified of.
type Notifier interface {
	Peer
	// Missed notifies the client of everything that it may have missed, because the process where
	// it listened before is lost. It does not block.
	Missed()
}

// StatusUnavailable is http.StatusServiceUnavailable, without a dependency on net/http.
const StatusUnavailable = 503

// A RejectedError says that a [Peer] has not relayed a request because of its limits, or that a
// server has not handled one because a store failed. The client gets the status, if nothing
// precedes the response, and so knows that the request was not carried out.
type RejectedError struct {
	// Status is http.StatusTooManyRequests if the client itself exceeds a limit, and otherwise
	// StatusUnavailable.
	Status int
	// RetryAfter is the delay that the client is asked to wait. It is rounded up to seconds, at
	// least one.
	RetryAfter time.Duration
	// Reason is the message of the JSON-RPC error, which has the code -32603.
	Reason string
}

func (e *RejectedError) Error() string { return e.Reason }

// A Server is a streamable.Server whose messages go to a Handler.
type Server struct {
	Handler
	// Link makes it a streamable.Server. It leads nowhere: streamable detects the Server instead.
	backend.Link
}

// WithIdentity returns a context for a request of the principal with that id, or of the network
// address if it is anonymous, see [CallerOf].
func (*Server) WithIdentity(ctx context.Context, id, address string) context.Context {
	return context.WithValue(ctx, callerKey{}, cmp.Or(id, address))
}

// callerKey is the context key of the caller.
type callerKey struct{}

// CallerOf returns the caller of a [Handler] or [Peer] method from its context: the id of the
// principal, or the network address of an anonymous client. For other contexts it returns "".
func CallerOf(ctx context.Context) string {
	caller, _ := ctx.Value(callerKey{}).(string)
	return caller
}
