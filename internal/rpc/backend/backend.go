// Package backend is the seam between package server and the transports that deliver each message
// separately, as HTTP does. Package server does not import such a transport, and the transport does
// not import package server, but gets the Backend of a server with [Of].
package backend

import (
	"context"

	"mcpwire/internal/base/seal"
	"mcpwire/internal/rpc"
	"mcpwire/mcp"
)

// A Backend is a server in the form that such transports need. Its methods may be called by
// multiple goroutines at once.
type Backend interface {
	// Revisions returns the revisions that the server speaks, in ascending order.
	Revisions() []mcp.Revision

	// WithIdentity returns a context for a request that comes from the principal with that id.
	// If id is empty, the principal is anonymous and the limits identify callers by their network
	// address; a server without such limits then returns ctx itself, and transports may rely on
	// that.
	WithIdentity(ctx context.Context, id, address string) context.Context

	// SharedKeys returns the ring of the keys that the server was given, which other processes may
	// have too, and the server's name. The ring is nil if the server has its own random keys.
	SharedKeys() (ring *seal.Ring, name string)
	// HasBus reports whether the server sends to other processes what its clients are notified of.
	HasBus() bool
	// OpenSession returns a connection for one session of a legacy client, which starts with
	// initialize; see [rpc.NewDetached]. out takes messages that belong to no request. ctx
	// supplies the identity. The caller must call end once, which closes the connection and removes
	// the session.
	//
	// key is empty, or what names the session in all processes that share it. The session's tasks
	// are then accessible in all of them, and end only if over is true: it says that the session
	// ends, and not merely its connection here.
	//
	// missed notifies the client that all lists, and all resources that it is subscribed to, have
	// changed, since it may have missed notifications. It does not block.
	OpenSession(ctx context.Context, out rpc.Sender, key string) (c *rpc.Conn, missed func(), end func(over bool))

	// OpenStateless returns a connection for the requests of all modern clients. Each
	// [rpc.Delivery] must be Untracked and have its own Sender, and a context from WithIdentity.
	// Closing the connection ends its subscriptions, but the transport must finish those delivered
	// with AllowDeferred. OpenStateless returns nil if the server speaks no modern revision.
	OpenStateless() *rpc.Conn
}

// A Server has a Backend. Types that embed a [Link] implement it, such as *server.Server, and no
// others: the method has a name that only this package can call and declare.
type Server interface {
	backend() Backend
}

// Of returns the Backend of a server.
func Of(s Server) Backend { return s.backend() }

// A Link makes the type that embeds it a [Server].
type Link struct{ to Backend }

// NewLink returns a Link to b.
func NewLink(b Backend) Link { return Link{b} }

func (l *Link) backend() Backend { return l.to }
