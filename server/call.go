package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A Call is a request while its handler runs: tools/call, resources/read, prompts/get,
// completion/complete or a custom method. It is the handler's context, with the values of the
// context of its HTTP request, or of [Server.Serve]. It ends when the client cancels, when the
// handler's timeout expires, when the connection ends, and when the handler has returned. Its
// methods may be called by multiple goroutines at once.
type Call struct {
	callContext
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
	c.call = c
	if s.log.Enabled(context.Background(), slog.LevelError) {
		id := r.ID.String()
		c.id = &id
	}
	r.InitContext(&c.request, ex.Meta.Trace)
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
	return identityOf(&c.request)
}

// setName sets the name of the request's target. It does not write an equal name, which middleware
// may be reading.
func (c *Call) setName(name string) {
	if c.name != name {
		c.name = name
	}
}

// Method returns the request's method.
func (c *Call) Method() string { return c.method }

// Name returns the name of the tool or the prompt, or the URI of the resource. It is empty for
// other requests.
func (c *Call) Name() string { return c.name }

// Shows reports whether [Options.View] shows an item to the caller, so that a custom method can
// hide what the server's lists hide. name is that of [NewView].
func (c *Call) Shows(kind Kind, name string) bool { return c.view.shows(kind, name) }

// Session returns an identifier of the session that the request belongs to, for state of one client
// or for [Server.ListsChanged]. A connection such as standard input and output is one session, and
// so is what a legacy client opens with initialize over HTTP, at all processes that share it.
// Modern requests over HTTP belong to no session, and the identifier is empty. It isn't what the
// client sends. The server does not report the end of a session: bound what you keep.
func (c *Call) Session() string { return c.session.id }

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

type callKey struct{}

// CallOf returns the Call that ctx derives from, or nil.
func CallOf(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}

// A callContext is the context of a Call.
type callContext struct {
	call *Call
	// request is the context of the request.
	request rpc.Context
	// derived holds the handler's timeout and the values of middleware. It is nil without either.
	derived atomic.Pointer[derivedContext]
}

// A derivedContext is a context that derives from the request's.
type derivedContext struct{ context.Context }

// current returns the context that methods of the Call use.
func (cc *callContext) current() context.Context {
	if l := cc.derived.Load(); l != nil {
		return l.Context
	}
	return &cc.request
}

// Value implements [context.Context].
func (cc *callContext) Value(key any) any {
	if key == (callKey{}) {
		return cc.call
	}
	return cc.current().Value(key)
}

// Deadline implements [context.Context].
func (cc *callContext) Deadline() (time.Time, bool) { return cc.current().Deadline() }

// Done implements [context.Context].
func (cc *callContext) Done() <-chan struct{} { return cc.current().Done() }

// Err implements [context.Context].
func (cc *callContext) Err() error { return cc.current().Err() }

// AfterFunc lets package context derive contexts without a goroutine.
func (cc *callContext) AfterFunc(f func()) (stop func() bool) {
	if l := cc.derived.Load(); l != nil {
		return context.AfterFunc(l.Context, f)
	}
	return cc.request.AfterFunc(f)
}

// derive replaces the context with ctx, which derives from it.
func (cc *callContext) derive(ctx context.Context) { cc.derived.Store(&derivedContext{ctx}) }

// startTimer starts the handler's timeout, if d is positive. The caller must call stop when the
// handler has returned.
func (cc *callContext) startTimer(d time.Duration) (stop context.CancelFunc) {
	if d <= 0 {
		return func() {}
	}
	before := cc.derived.Load()
	ctx, cancel := context.WithTimeoutCause(cc.current(), d, ErrHandlerTimeout)
	cc.derive(ctx)
	return func() {
		cc.derived.Store(before) // middleware may continue with the call
		cancel()
	}
}

// ErrHandlerTimeout is the cause of the end of a handler's context when [Limits.HandlerTimeout]
// expires. It wraps context.DeadlineExceeded.
var ErrHandlerTimeout = fmt.Errorf("the handler's time limit expired: %w", context.DeadlineExceeded)

// leaveChain replaces the context with ctx, which the middleware passed on. It derives from the
// chainContext of the request.
func (cc *callContext) leaveChain(ctx context.Context) {
	if start, ok := ctx.(chainContext); ok && start.Context == &cc.request {
		cc.derived.Store(nil)
		return
	}
	cc.derive(ctx)
}

// joinContext returns a context that derives from the call, so that requests belong to it, and that
// also ends with ctx.
func joinContext(ctx context.Context, c *Call) (context.Context, context.CancelFunc) {
	if CallOf(ctx) == c {
		return context.WithCancel(ctx)
	}
	joined, cancel := context.WithCancelCause(c)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return joined, func() { stop(); cancel(nil) }
}

// A chainContext is the context at the start of the chain of an incoming message. It derives from
// the message's context, and CallOf finds the Call in it. Unlike the Call it does not have the
// values of middleware.
type chainContext struct {
	*rpc.Context
	call *Call
}

// Value implements [context.Context].
func (cc chainContext) Value(key any) any {
	if key == (callKey{}) {
		return cc.call
	}
	return cc.Context.Value(key)
}

// A sessionContext is the context.Context of messages that belong to no request of the session. It
// ends with the connection. It is created on demand, since most sessions need none.
type sessionContext struct {
	// Context supplies the values.
	context.Context
	conn *rpc.Conn
}

func (sc *sessionContext) Deadline() (time.Time, bool) { return time.Time{}, false }

func (sc *sessionContext) Done() <-chan struct{} { return sc.conn.Done() }

func (sc *sessionContext) Err() error {
	select {
	case <-sc.conn.Done():
		return context.Canceled
	default:
		return nil
	}
}

// A ClientFeature is a feature that a handler can ask the client for if the client has declared the
// capability.
type ClientFeature uint8

// The client features.
const (
	// FormElicitation asks the user to fill in a form.
	FormElicitation ClientFeature = iota
	// URLElicitation sends the user to a web page.
	URLElicitation
	// Sampling lets the client's model continue a conversation.
	Sampling
	// SamplingTools is Sampling with tools that the model may use.
	SamplingTools
	// Roots returns the folders that the client works in.
	Roots
	numClientFeatures
)

var clientFeatureNames = [numClientFeatures]string{"elicitation by form", "elicitation by URL", "sampling", "sampling with tools", "roots"}

// String returns the feature's name for messages.
func (f ClientFeature) String() string {
	if f >= numClientFeatures {
		return "unknown"
	}
	return clientFeatureNames[f]
}

// Supports reports whether the revision has the feature and the client has declared it.
func (c *Call) Supports(f ClientFeature) bool {
	switch f {
	case FormElicitation: // an empty capability means forms
		return c.ex.Elicitation && c.ClientHas("elicitation") &&
			(!c.ex.URLElicitation || c.ClientHas("elicitation", "form") || !c.ClientHas("elicitation", "url"))
	case URLElicitation:
		return c.ex.URLElicitation && c.ClientHas("elicitation", "url")
	case Sampling:
		return c.ClientHas("sampling")
	case SamplingTools:
		return c.ex.SamplingTools && c.ClientHas("sampling", "tools")
	case Roots:
		return c.ClientHas("roots")
	}
	return false
}

// Require returns an [*UnsupportedError] with the features that the client lacks, or nil. Input
// requests return the same error, but a handler that calls Require first has not done anything yet.
func (c *Call) Require(features ...ClientFeature) error {
	var missing []ClientFeature
	for _, f := range features {
		if !c.Supports(f) {
			missing = append(missing, f)
		}
	}
	if missing == nil {
		return nil
	}
	e := &UnsupportedError{Missing: missing}
	switch {
	case c.ex.Modern:
		e.wire = mcp.MissingRequiredClientCapability(capabilitiesFor(missing))
		e.wire.Message = e.Error()
	case c.method != mcp.MethodToolsCall: // a tool reports it in its result
		e.wire = jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "%s", e.Error())
	}
	return e
}

// An UnsupportedError reports that the client has not declared features that a handler needs. A
// handler may do without them or return the error. The client then gets the error -32021 with the
// required capabilities if the revision has that error
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/index#error-codes). In legacy
// revisions a tool's result says it with isError, so that the model can tell the user; other
// requests get the error -32600.
type UnsupportedError struct {
	// Missing lists the features that the client has not declared.
	Missing []ClientFeature

	// wire is nil if the error becomes the result of a tool.
	wire *jsonrpc.Error
}

func (e *UnsupportedError) Error() string {
	names := make([]string, len(e.Missing))
	for i, f := range e.Missing {
		names[i] = f.String()
	}
	return "the client has not declared a required capability: " + strings.Join(names, ", ")
}

// Unwrap returns the [*jsonrpc.Error] that is sent for the error, or nil.
func (e *UnsupportedError) Unwrap() error {
	if e.wire == nil {
		return nil
	}
	return e.wire
}

// capabilitiesFor returns the capabilities of a client that has the features.
func capabilitiesFor(features []ClientFeature) mcp.ClientCapabilities {
	var caps mcp.ClientCapabilities
	for _, f := range features {
		switch f {
		case FormElicitation, URLElicitation:
			if caps.Elicitation == nil {
				caps.Elicitation = new(mcp.ElicitationCapability)
			}
			if f == FormElicitation {
				caps.Elicitation.Form = json.RawMessage(`{}`)
			} else {
				caps.Elicitation.URL = json.RawMessage(`{}`)
			}
		case Sampling, SamplingTools:
			if caps.Sampling == nil {
				caps.Sampling = new(mcp.SamplingCapability)
			}
			if f == SamplingTools {
				caps.Sampling.Tools = json.RawMessage(`{}`)
			}
		case Roots:
			caps.Roots = new(mcp.RootsCapability)
		}
	}
	return caps
}

var errLevel = errors.New("no such logging level")

// Log sends a log message to the client if the client wants messages of that level. A legacy client
// selects the level with logging/setLevel for its later requests; until then it gets all messages.
// A modern client selects the level in each request. data is any value that encoding/json can
// encode.
//
// The specification deprecates logging since 2026-07-28. Use [Call.Logger] for messages to the
// server's operator.
func (c *Call) Log(level mcp.LoggingLevel, logger string, data any) error {
	if level.String() == "" {
		return errLevel
	}
	least := c.ex.Client.LogLevel
	if c.ex.Modern {
		if least = c.ex.Meta.LogLevel; least == mcp.LevelNone {
			return nil
		}
	}
	if level < least {
		return nil
	}
	text, err := json.Marshal(data)
	if err == nil {
		err = jsonwire.Valid(text, 0) // MarshalJSON methods can return invalid UTF-8
	}
	if err != nil {
		return fmt.Errorf("log data: %w", err)
	}
	params := &mcp.LoggingMessageNotificationParams{Level: level, Logger: logger, Data: text}
	return c.notify(mcp.NotificationMessage, mcp.Append(nil, params, c.ex.Revision))
}

// Logger returns the server's logger with the request's id, method and target, and its trace id if
// it has one.
func (c *Call) Logger() *slog.Logger {
	id := ""
	if c.id != nil {
		id = *c.id
	}
	log := c.session.log.With("id", id, "method", c.method)
	if c.name != "" {
		log = log.With(nameAttr(c.method), clip.String(c.name, 100))
	}
	if id := c.ex.Meta.Trace.ID(); id != "" {
		log = log.With("trace", id)
	}
	return log
}

// nameAttr returns the log attribute for the target of the method's requests.
func nameAttr(method string) string {
	switch method {
	case mcp.MethodToolsCall:
		return "tool"
	case mcp.MethodPromptsGet:
		return "prompt"
	case mcp.MethodResourcesRead:
		return "uri"
	}
	return "name"
}

// A callProgress orders the progress notifications of a call.
type callProgress struct {
	// mu is held while sending, so that the notifications are in the order of the numbers.
	mu sync.Mutex
	// last is the last progress.
	last float64
}

var errProgress = errors.New("progress must be a finite number, greater than the last one")

// advance calls send if progress is greater than the last one.
func (cp *callProgress) advance(progress float64, send func() error) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if progress <= cp.last {
		return errProgress
	}
	cp.last = progress
	return send()
}

// WantsProgress reports whether the client asked for progress notifications.
func (c *Call) WantsProgress() bool { return c.ex.Meta.ProgressToken != nil }

// Progress notifies the client of the call's progress, if it asked for that. progress must grow
// with each call. A zero total and an empty message are left out. The notification is sent before
// the result. Progress returns [jsonrpc.ErrRequestEnded] if there is a notification to send and the
// call has ended.
func (c *Call) Progress(progress, total float64, message string) error {
	if math.IsNaN(progress) || math.IsInf(progress, 0) || math.IsNaN(total) || math.IsInf(total, 0) {
		return errProgress
	}
	if c.progress.Load() == nil {
		c.progress.CompareAndSwap(nil, &callProgress{last: math.Inf(-1)})
	}
	return c.progress.Load().advance(progress, func() error { return c.sendProgress(progress, total, message) })
}

// sendProgress sends a progress notification if the client asked for that.
func (c *Call) sendProgress(progress, total float64, message string) error {
	token := c.ex.Meta.ProgressToken
	if token == nil {
		return nil
	}
	params := &mcp.ProgressNotificationParams{ProgressToken: token, Progress: progress, Message: message}
	if total != 0 {
		params.Total = &total
	}
	return c.notify(mcp.NotificationProgress, mcp.Append(nil, params, c.ex.Revision))
}
