package server

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync/atomic"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/rpc"
	"mcpwire/mcp"
)

// A Call is a request while its handler runs: tools/call, resources/read, prompts/get,
// completion/complete or a custom method. It is the handler's context. It ends when the client
// cancels, when the handler's timeout expires, when the connection ends, and when the handler has
// returned. Its methods may be called by multiple goroutines at once.
type Call struct {
	ctx     callContext
	session *session
	// sessionIdentity is nil if the context supplies the identity.
	sessionIdentity *identity
	target
	ex   era.Request
	view *View
	// id is for the log. It is nil if nothing is logged.
	id *string
	// input is nil until the handler asks the client.
	input atomic.Pointer[inputState]

	// run is set if the call is, or may become, a task.
	run atomic.Pointer[taskRun]

	// progress is nil until the first progress.
	progress atomic.Pointer[callProgress]
}

// A target is what a request is for.
type target struct {
	method string
	// name is the name of the tool or the prompt, or the URI of the resource.
	name string
}

// newCall returns the Call of a request and initializes its context.
func newCall(s *session, r *rpc.Request, ex era.Request) *Call {
	c := &Call{session: s, target: target{method: internMethod(r.Method)}, ex: ex}
	if s.log.Enabled(context.Background(), slog.LevelError) {
		id := r.ID.String()
		c.id = &id
	}
	r.InitContext(&c.ctx.request, ex.Meta.Trace)
	if !s.detached { // else each request has its own, possibly with other scopes than the session's
		c.sessionIdentity = s.identity
	}
	if v := s.srv.opts.View; v != nil {
		c.view = v(c, c.identity().principal)
	}
	return c
}

// identity returns the identity of the request. It is looked up on demand because few handlers need
// it.
func (c *Call) identity() *identity {
	if c.sessionIdentity != nil {
		return c.sessionIdentity
	}
	return identityOf(&c.ctx.request)
}

// setName sets the name of the request's target. It does not write an equal name, which middleware
// may be reading.
func (c *Call) setName(name string) {
	if c.name != name {
		c.name = name
	}
}

// Value implements [context.Context].
func (c *Call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.ctx.current().Value(key)
}

// Deadline implements [context.Context].
func (c *Call) Deadline() (time.Time, bool) { return c.ctx.current().Deadline() }

// Done implements [context.Context].
func (c *Call) Done() <-chan struct{} { return c.ctx.current().Done() }

// Err implements [context.Context].
func (c *Call) Err() error { return c.ctx.current().Err() }

// AfterFunc lets package context derive contexts without a goroutine.
func (c *Call) AfterFunc(f func()) (stop func() bool) { return c.ctx.afterFunc(f) }

// Method returns the request's method.
func (c *Call) Method() string { return c.method }

// Name returns the name of the tool or the prompt, or the URI of the resource. It is empty for
// other requests.
func (c *Call) Name() string { return c.name }

// Principal returns the principal of the request. It is never nil. It is shared and must not be
// modified.
func (c *Call) Principal() *Principal { return c.identity().principal }

// Revision returns the protocol revision of the request.
func (c *Call) Revision() mcp.Revision { return c.ex.Revision }

// ClientInfo returns the client's description of itself. It is untrusted and may be empty.
func (c *Call) ClientInfo() mcp.Implementation { return c.ex.Client.Info }

// ClientHas reports whether the client declared a capability, for example
// ClientHas("elicitation", "url").
func (c *Call) ClientHas(path ...string) bool { return c.ex.Client.Has(path...) }

// ClientExtension returns the settings object that the client declared for an extension. ok is
// false if it did not declare the extension; then the result must not use it, or the handler must
// reject the request ([mcp.MissingRequiredClientCapability]). The caller must not modify settings.
func (c *Call) ClientExtension(id string) (settings json.RawMessage, ok bool) {
	settings = c.ex.Client.Extension(c.ex.Features, id)
	return settings, settings != nil
}

// Meta returns the JSON text of the request's _meta object, or nil. The caller may keep it but must
// not modify it.
func (c *Call) Meta() json.RawMessage { return c.ex.Meta.Text() }

// notify sends a notification that belongs to the call or to its task.
func (c *Call) notify(method string, params []byte) error {
	if run := c.run.Load(); run != nil && run.isTask() {
		return run.notify(method, params)
	}
	return c.Notify(method, params)
}
