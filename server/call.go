package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A Call is one request while its handler runs: a tools/call, resources/read, prompts/get, completion/complete, or one of a custom method. It is the
// handler's context: it ends when the client cancels, when the handler's time is up, when the connection ends, and when the handler has
// returned. Its methods may be called by many goroutines at once.
type Call struct {
	jsonrpc.Context
	derived         atomic.Pointer[derivedContext] // the same, with the handler's timeout and what middleware added; nil if there is none of that
	session         *session
	sessionIdentity *identity // nil: as the context says, see who
	method          string
	name            string // of the tool or the prompt, the URI of the resource
	ex              era.Request
	view            *View
	id              *string                    // for the log; nil if nothing is logged
	input           atomic.Pointer[inputState] // with the client; nil as long as there is none

	run atomic.Pointer[taskRun] // if it is, or may become, a task

	progress atomic.Pointer[progressState] // nil until there is some
}

// A tally is how far a call has come.
type progressState struct {
	mu   sync.Mutex // held while sending, so that the order on the wire is that of the numbers
	last float64
}

// A limited is a context that stems from a Call's.
type derivedContext struct{ context.Context }

// newCall returns the Call of a request, whose context it becomes.
func (s *session) newCall(r *jsonrpc.Request, ex era.Request) *Call {
	c := &Call{session: s, method: internMethod(r.Method), ex: ex}
	if s.log.Enabled(context.Background(), slog.LevelError) {
		id := r.ID.String()
		c.id = &id
	}
	r.InitContext(&c.Context, ex.Meta.Trace)
	if !s.detached { // else it is of each request, which may know more, or have other scopes, than the one that opened the session
		c.sessionIdentity = s.identity
	}
	if v := s.srv.opts.View; v != nil {
		c.view = v(c, c.identity().principal)
	}
	return c
}

// identity returns on whose behalf the request comes. Few ask, so it is looked up then.
func (c *Call) identity() *identity {
	if c.sessionIdentity != nil {
		return c.sessionIdentity
	}
	return identityOf(&c.Context)
}

// setName sets what the request names. Middleware may have changed that; where it has not, it may be reading the name.
func (c *Call) setName(name string) {
	if c.name != name {
		c.name = name
	}
}

// startTimer gives the handler the time it may take. The caller calls stop when it has returned.
func (c *Call) startTimer() (stop context.CancelFunc) {
	d := c.session.srv.opts.HandlerTimeout
	if d <= 0 {
		return func() {}
	}
	before := c.derived.Load()
	ctx, cancel := context.WithTimeoutCause(c.context(), d, errHandlerTimeout)
	c.derived.Store(&derivedContext{ctx})
	return func() {
		c.derived.Store(before) // middleware may go on with the call
		cancel()
	}
}

// errHandlerTimeout tells the end of [Options.HandlerTimeout] from other deadlines.
var errHandlerTimeout = errors.New("the handler's time is up")

// listRequest returns how the call asks for a list.
func (c *Call) listRequest(kind Kind, member string) listRequest {
	return listRequest{srv: c.session.srv, kind: kind, member: member, view: c.view, features: c.ex.Features}
}

type callKey struct{}

// CallOf returns the Call that ctx stems from, or nil.
func CallOf(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}

// Value implements [context.Context].
func (c *Call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.context().Value(key)
}

// Deadline implements [context.Context].
func (c *Call) Deadline() (time.Time, bool) { return c.context().Deadline() }

// Done implements [context.Context].
func (c *Call) Done() <-chan struct{} { return c.context().Done() }

// Err implements [context.Context].
func (c *Call) Err() error { return c.context().Err() }

// AfterFunc is what package context uses to derive contexts without a goroutine.
func (c *Call) AfterFunc(f func()) (stop func() bool) {
	if l := c.derived.Load(); l != nil {
		return context.AfterFunc(l.Context, f)
	}
	return c.Context.AfterFunc(f)
}

func (c *Call) context() context.Context {
	if l := c.derived.Load(); l != nil {
		return l.Context
	}
	return &c.Context
}

// Method returns the request's method.
func (c *Call) Method() string { return c.method }

// Name returns the name of the tool or the prompt that the request names, or the URI of the resource; "" for other requests.
func (c *Call) Name() string { return c.name }

// Principal returns on whose behalf the request comes, which is never nil. It is shared and must not be changed.
func (c *Call) Principal() *Principal { return c.identity().principal }

// Revision returns the revision of the protocol that the request is of.
func (c *Call) Revision() mcp.Revision { return c.ex.Revision }

// ClientInfo returns what the client says it is. It is not to be trusted, and may be empty.
func (c *Call) ClientInfo() mcp.Implementation { return c.ex.Client.Info }

// ClientHas reports whether the client declared a capability, such as ClientHas("elicitation", "url").
func (c *Call) ClientHas(path ...string) bool { return c.ex.Client.Has(path...) }

// Meta returns the JSON text of the request's _meta object, or nil. It may be kept, but must not be changed.
func (c *Call) Meta() json.RawMessage { return c.ex.Meta.Text() }

// WantsProgress reports whether the client asked for progress notifications.
func (c *Call) WantsProgress() bool { return c.ex.Meta.ProgressToken != nil }

var (
	errProgress = errors.New("progress must be a finite number, greater than the last one")
	errLevel    = errors.New("no such logging level")
)

// Progress tells the client how far the tool is, if it asked for that. progress must grow with each call; total is left out if it is 0, message if it
// is empty. The notification is on the wire before the result. If there is one to send, it fails with [jsonrpc.ErrRequestEnded] once the call has ended.
func (c *Call) Progress(progress, total float64, message string) error {
	if math.IsNaN(progress) || math.IsInf(progress, 0) || math.IsNaN(total) || math.IsInf(total, 0) {
		return errProgress
	}
	t := c.progressState()
	t.mu.Lock()
	defer t.mu.Unlock()
	if progress <= t.last {
		return errProgress
	}
	t.last = progress
	token := c.ex.Meta.ProgressToken
	if token == nil {
		return nil
	}
	params := append(append([]byte(`{"progressToken":`), token...), `,"progress":`...)
	params = appendNumber(params, progress)
	if total != 0 {
		params = appendNumber(append(params, `,"total":`...), total)
	}
	if message != "" && c.ex.ProgressMessage {
		params = jsonwire.AppendQuote(append(params, `,"message":`...), message)
	}
	return c.sendNotification(mcp.NotificationProgress, append(params, '}'))
}

func (c *Call) progressState() *progressState {
	if c.progress.Load() == nil {
		c.progress.CompareAndSwap(nil, &progressState{last: math.Inf(-1)})
	}
	return c.progress.Load()
}

func appendNumber(dst []byte, f float64) []byte {
	if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return strconv.AppendInt(dst, int64(f), 10)
	}
	return strconv.AppendFloat(dst, f, 'g', -1, 64)
}

// Log sends a log message to the client, if the client wants messages of that level: a legacy
// client says so with logging/setLevel, for the requests that it sends behind that (until it does,
// it gets all), a modern one with each request. data is any value that encoding/json can encode.
// Logging is deprecated by the specification since 2026-07-28; what is meant for the server's
// operator belongs into the [Call.Logger].
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
		err = jsonwire.Valid(text, 0) // MarshalJSON methods, and json.RawMessage, can make it anything but UTF-8
	}
	if err != nil {
		return fmt.Errorf("log data: %w", err)
	}
	params := jsonwire.AppendQuote([]byte(`{"level":`), level.String())
	if logger != "" {
		params = jsonwire.AppendQuote(append(params, `,"logger":`...), logger)
	}
	params = append(append(params, `,"data":`...), text...)
	return c.sendNotification(mcp.NotificationMessage, append(params, '}'))
}

// Logger returns the server's log with the request's id, its method and what it names, and the trace id if the request carries one.
func (c *Call) Logger() *slog.Logger {
	id := ""
	if c.id != nil {
		id = *c.id
	}
	log := c.session.log.With("id", id, "method", c.method)
	if c.name != "" {
		log = log.With(nameAttr(c.method), clip(c.name))
	}
	if id := c.ex.Meta.Trace.ID(); id != "" {
		log = log.With("trace", id)
	}
	return log
}

// setLevel acts on logging/setLevel.
func (s *session) setLevel(r *jsonrpc.Request) error {
	name, err := stringParam(r, "level")
	if err != nil {
		return err
	}
	level, ok := mcp.ParseLoggingLevel(name)
	if !ok {
		return invalidParams("params.level must be one of debug, info, notice, warning, error, critical, alert, emergency")
	}
	s.era.SetLogLevel(level)
	return nil
}

// callTool answers tools/call (https://modelcontextprotocol.io/specification/2026-07-28/server/tools#calling-tools).
func (s *session) callTool(c *Call, r *jsonrpc.Request, dst []byte) ([]byte, error) {
	t, _ := r.Route.(*tool)
	if t == nil || !c.view.shows(KindTool, t.key) {
		name, err := stringParam(r, "name")
		if err != nil {
			return dst, err
		}
		return dst, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "unknown tool: %s", clip(name))
	}
	c.setName(t.key)
	args, ok := r.Param("arguments")
	switch {
	case !ok, string(args) == "null":
		args = emptyObject
	case args[0] != '{':
		return dst, invalidParams("params.arguments must be an object")
	}
	if err := c.checkHeaderParams(r, t, args); err != nil {
		return dst, err
	}
	if err := c.resumeInput(r); err != nil {
		return dst, err
	}
	if ttl, yes, err := c.wantsTask(t, r); yes || err != nil {
		if err != nil {
			return dst, err
		}
		return s.callAsTask(c, t, r, args, dst, ttl)
	}
	defer c.startTimer()()
	out, err := t.invoke(c, args, dst)
	return c.respond(r, dst, out, err)
}

var emptyObject = []byte("{}")

// nameAttr is what the log calls that which a request of the method names.
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

// A ClientFeature is something that a handler can ask the client for, if the client has declared the capability.
type ClientFeature uint8

// The features.
const (
	FormElicitation ClientFeature = iota // the user fills in a form
	URLElicitation                       // the user is sent to a web page
	Sampling                             // the client's model continues a conversation
	SamplingTools                        // the same, with tools that the model may use
	Roots                                // the folders that the client works in
	numClientFeatures
)

var clientFeatureNames = [numClientFeatures]string{"elicitation by form", "elicitation by URL", "sampling", "sampling with tools", "roots"}

// String returns what the feature is called in messages.
func (f ClientFeature) String() string {
	if f >= numClientFeatures {
		return "unknown"
	}
	return clientFeatureNames[f]
}

// Supports reports whether the client can be asked for the feature: the revision has it and the client has declared it.
func (c *Call) Supports(f ClientFeature) bool {
	switch f {
	case FormElicitation: // an empty capability stands for it
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

// Require fails with an [*UnsupportedError] that names the features which the client does not have. What asks for one of them fails with it too, but a
// handler that calls Require first has not done anything by then.
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
	case c.method != mcp.MethodToolsCall: // a tool can say so in its result
		e.wire = jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "%s", e.Error())
	}
	return e
}

// An UnsupportedError says that the client was to be asked for what it has not declared that it can do. A handler may do without, or return the error.
// It is answered as the error -32021, with the capabilities that are required, where the revision has that
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/index#error-codes). In legacy revisions a tool's result says so with isError, so that
// the model can tell the user, and other requests get the error -32600.
type UnsupportedError struct {
	Missing []ClientFeature

	wire *jsonrpc.Error // nil if it becomes the result of a tool
}

func (e *UnsupportedError) Error() string {
	names := make([]string, len(e.Missing))
	for i, f := range e.Missing {
		names[i] = f.String()
	}
	return "the client has not declared what is needed here: " + strings.Join(names, ", ")
}

// Unwrap returns the [*jsonrpc.Error] that it is answered as, or nil.
func (e *UnsupportedError) Unwrap() error {
	if e.wire == nil {
		return nil
	}
	return e.wire
}

// capabilitiesFor returns the capabilities that a client declares if it has the features.
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
