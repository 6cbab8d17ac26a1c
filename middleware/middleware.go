// Package middleware is the shape of the middleware of servers and clients. The same function can
// be given to both: to server.Server.Use and to client.Options.Middleware, which say which messages
// pass through it.
package middleware

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A Message is a request or a notification on its way through the middleware. Its slices are valid
// until the [Handler] that received it returns.
//
// The context has the rest: on a server, server.CallOf returns the request that the message is or
// belongs to, and server.PrincipalID the peer's principal. On a client, client.FromContext returns
// the Client.
type Message struct {
	// ClientSide is set if the middleware is a client's. Otherwise it is a server's.
	ClientSide bool
	// Direction says whether this side sends or receives the message.
	Direction jsonrpc.Direction
	// Notification is set for notifications, which have no response. Their result is ignored.
	Notification bool
	// Method is read-only; a change has no effect.
	Method string
	// ID is the id of an incoming request. It is nil for other messages.
	ID jsonrpc.ID
	// Revision is the revision of the message. It is RevisionNone while a client negotiates, and
	// for messages that a server sends on its own, such as list changes.
	Revision mcp.Revision

	// Params is the text of the params object, or nil. Middleware may replace it but must not write
	// into the slice. A server has already read the _meta of an incoming request, so that changing
	// it has no effect. A client adds the members of the revision and the progress token to the
	// _meta of an outgoing message afterwards.
	Params json.RawMessage

	run *run
}

// A Handler handles a message and returns its result, the text of an object, or nil for a
// notification. A server's result is complete and in the form of the request's revision: that of a
// modern tools/call has resultType and _meta. The result is valid until the calling function
// returns and must not be modified.
//
// An error that wraps a *[jsonrpc.Error] is the peer's response to an outgoing request. The error
// for an incoming request is sent to the peer like a handler's error. A failed tool is not an error
// but a result with isError.
type Handler func(ctx context.Context, m *Message) (result json.RawMessage, err error)

// A Func returns a Handler that does something before, after or instead of next. Examples are an
// audit log, a cache and a permission check. It may be called by multiple goroutines at once.
//
//   - It may call next with a context that has more values or ends earlier. Handlers run in that
//     context.
//   - It may change m.Params, or call next with a modified copy of m.
//   - It may return its own result, without calling next.
//   - It may call next more than once. Concurrent calls run one after another.
//   - It may return before next does, but must end next's context. Whoever sent the message waits
//     until next has returned too. A later call of next fails.
type Func func(next Handler) Handler

// A Chain runs a message through middleware. Servers and clients have one each. Tests of middleware
// may use it too.
type Chain struct{ outermost Handler }

// NewChain returns the Chain of the functions. The first one is the outermost.
func NewChain(list ...Func) *Chain {
	h := Handler(deliver)
	for i := len(list) - 1; i >= 0; i-- {
		h = list[i](h)
	}
	return &Chain{h}
}

// A run is one message in a Chain.
type run struct {
	message Message
	end     Handler

	// delivered wakes those who wait for delivering to become false. A Mutex held by end instead
	// would stop the clock of a testing/synctest bubble.
	delivered sync.Cond
	mu        sync.Mutex
	// delivering is set while end runs.
	delivering bool
	// returned is set when the middleware has returned.
	returned bool
}

// Run passes a message through the middleware and then to end, and returns the result of the
// outermost function. It waits for calls of next that the middleware did not wait for.
func (c *Chain) Run(ctx context.Context, m Message, end Handler) (json.RawMessage, error) {
	r := &run{message: m, end: end}
	r.delivered.L = &r.mu
	r.message.run = r
	defer r.finish()
	return c.outermost(ctx, &r.message)
}

// finish waits for end and prevents later calls of it.
func (r *run) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.delivering {
		r.delivered.Wait()
	}
	r.returned = true
	r.delivered.Broadcast()
}

var (
	errForeignMessage  = errors.New("a middleware passed a new Message to next; it must pass the one it got, or a copy")
	errNextAfterReturn = errors.New("a middleware called next after it had returned")
)

// deliver is the innermost Handler of each chain. It calls the end of the message's run.
func deliver(ctx context.Context, m *Message) (json.RawMessage, error) {
	r := m.run
	if r == nil {
		return nil, errForeignMessage
	}
	if !r.begin() {
		return nil, fmt.Errorf("%s: %w", r.message.Method, errNextAfterReturn)
	}
	defer r.done()
	return r.end(ctx, m)
}

// begin waits until end does not run. It returns false if the middleware has returned.
func (r *run) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.delivering {
		r.delivered.Wait()
	}
	if r.returned {
		return false
	}
	r.delivering = true
	return true
}

func (r *run) done() {
	r.mu.Lock()
	r.delivering = false
	r.delivered.Broadcast()
	r.mu.Unlock()
}
