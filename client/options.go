package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"mcpwire/internal/base/sparse"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/middleware"
	"mcpwire/schema"
)

// Options are the options of [Dial]. The zero value is ready to use, and nil means the zero value.
type Options struct {
	// Info describes the client to servers. An empty Name means "mcpwire", an empty Version "0".
	Info mcp.Implementation

	// Capabilities are declared in addition to those that Input implies. They take precedence over
	// implied capabilities of the same name.
	Capabilities map[string]json.RawMessage

	// Extensions are declared as capabilities.extensions. Each value is the extension's settings
	// object, {} if it has no settings.
	Extensions map[string]json.RawMessage

	// ResultTypes are the values of resultType that Extensions add. Results of other types are
	// errors.
	ResultTypes []mcp.ResultType

	// Tasks declares the extension io.modelcontextprotocol/tasks: a tool call may return a task
	// instead of a result.
	Tasks bool

	// Revisions are the revisions to speak. Nil means all.
	Revisions []mcp.Revision

	// Profile is the result of an earlier [Client.Profile] for this server. Dial then skips the
	// probe. It still probes if a modern Profile holds nothing but a revision.
	Profile *Profile

	// Input holds the handlers of the server's requests for input. The zero value declares none of
	// them.
	Input InputOptions

	// Timeouts limits the wait for responses.
	Timeouts Timeouts

	// Retry controls how often requests are repeated.
	Retry RetryPolicy

	// Reconnect controls how a lost connection is replaced.
	Reconnect ReconnectPolicy

	// Cache controls which responses the Client keeps.
	Cache CacheOptions

	// Limits bounds what a server may make the Client do.
	Limits Limits

	// OnNotification receives each notification of the server in order, one at a time, on its own
	// goroutine. params is valid until it returns.
	OnNotification func(method string, params json.RawMessage)

	// Middleware wraps all messages in both directions; the first one is the outermost. It sees
	// each call once, whatever the retries and input rounds, unless the cache answers it. It also
	// sees opening requests, the requests of legacy servers, and the notifications that the
	// protocol defines or OnNotification receives. It does not see cancellations by this side, nor
	// the input requests of modern servers, which are part of a result. With middleware, the Client
	// answers each ping on its own goroutine.
	Middleware []middleware.Func

	// OnEnd is called once when the Client has ended, with the result of [Client.Err].
	// [Client.Close] waits for it, so it must not call Close.
	OnEnd func(c *Client, err error)

	// SchemaEngine validates output schemas and forms with keywords that package schema does not
	// support. Use schema/fullschema for trusted servers only. Nil means package schema alone.
	SchemaEngine schema.Engine

	// NoOutputValidation skips the validation of tool results against their output schemas.
	NoOutputValidation bool

	// Logger receives the Client's log messages. Nil discards them.
	Logger *slog.Logger

	// Trace receives each message and must not keep the slice. It may be called concurrently.
	Trace func(dir jsonrpc.Direction, message []byte)
}

// InputOptions hold the handlers of a server's requests for input. A handler that is nil is not
// declared to the server.
//
// The handlers must return when their ctx ends: nobody needs the response then, and the call, or
// Close, waits for them. They may run concurrently. [FromContext] returns the Client of the server
// that asks.
type InputOptions struct {
	// Elicit asks the user to fill in a form, p.RequestedSchema, or to visit a web page, p.URL.
	// [AcceptForm] makes the result from a Go value. The Client validates the content of a form
	// against the schema. It reports an error to the server as canceled by the user.
	Elicit func(ctx context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error)

	// ElicitModes are the modes that Elicit supports. Nil means [mcp.ElicitModeForm] alone.
	ElicitModes []mcp.ElicitMode

	// Sample asks the user's model. An error refuses the request; the call that needed the response
	// fails with it.
	Sample func(ctx context.Context, p *mcp.CreateMessageRequestParams) (*mcp.CreateMessageResult, error)

	// SampleTools declares that Sample supports tools and a tool choice.
	SampleTools bool

	// Roots lists the folders that the server may know of, as file URIs without "..". An error
	// refuses the request, as for Sample.
	Roots func(ctx context.Context) ([]mcp.Root, error)

	// MaxRounds limits the input rounds of one call or task. Zero means 10.
	MaxRounds int
}

// Timeouts limit how long a Client waits for responses. Apart from MaxCall, they do not run while a
// handler of Options.Input runs, or a request waits for a user to log in with package oauth.
type Timeouts struct {
	// Probe limits the wait for a response to the probe. After that the Client sends initialize,
	// and after the same time again, at most 5 s, also on a second connection. Zero means 5 s.
	Probe time.Duration

	// Handshake limits the wait for a response to initialize. Zero means 30 s.
	Handshake time.Duration

	// Call limits the wait of calls without [WithTimeout]. Zero means 5 min; negative means no
	// limit.
	Call time.Duration

	// MaxCall limits the total time of calls without [WithTotalTimeout]. Zero or negative means no
	// limit.
	MaxCall time.Duration
}

// CacheOptions control which responses a Client keeps, as far as the server allows it.
type CacheOptions struct {
	// Shared holds responses that the server marked public. Clients of the same server may share
	// it. Nil means no shared cache.
	Shared *Cache

	// MaxBytes limits the Client's own cache. Zero means 16 MiB; negative disables the cache.
	MaxBytes int

	// StaleIfError is how long the Client may use an expired response when it cannot reach the
	// server. Zero disables that.
	StaleIfError time.Duration
}

// Limits bounds what a server may make a Client do.
type Limits struct {
	// MaxPages limits the pages of a list in one iteration. Zero means 10,000.
	MaxPages int

	// MaxDepth limits the nesting of a message, in levels. Zero means 512.
	MaxDepth int

	// MaxRequests limits the concurrent requests of a legacy server. Zero means 64.
	MaxRequests int
}

// A RetryPolicy controls how often the Client repeats requests. It repeats a request that is safe
// to repeat when the connection is lost, and any request that the server certainly did not process.
// If the server's machine refuses connections, it does so for [ReconnectPolicy.MaxWait].
// An HTTP server that is overloaded (503) or rate-limits its clients (429) can delay the next
// attempt by up to 30 s (Retry-After). A call without enough time left fails at once with the
// server's error. The zero value is ready to use.
type RetryPolicy struct {
	// MaxAttempts limits the attempts of one request. Zero means 3; 1 or less disables retries.
	MaxAttempts int
	// MinBackoff is the wait before the second attempt. It doubles with each attempt. A random part
	// of up to half is subtracted, and the delay that the server asks for is added. Zero means 100
	// ms.
	MinBackoff time.Duration
	// MaxBackoff limits that wait, not including the server's delay. Zero means 5 s.
	MaxBackoff time.Duration
	// IgnoreHints makes the Client ignore the tool annotations that say read-only or idempotent, so
	// that it does not repeat calls. Set it for untrusted servers.
	IgnoreHints bool
}

// A ReconnectPolicy controls how a Client replaces a lost connection. The zero value is ready to
// use.
//
// Failures are failed attempts to connect, and connections that end before StableAfter. A
// successful call resets the count of consecutive failures: the Client restarts a server that works
// but crashes now and then after MinBackoff, without end.
type ReconnectPolicy struct {
	// Disabled ends the Client when its connection ends.
	Disabled bool
	// MinBackoff is the wait after the first failure. It doubles with each consecutive failure, and
	// a random part of up to half is subtracted. Zero means 200 ms.
	MinBackoff time.Duration
	// MaxBackoff limits that wait. Zero means 30 s.
	MaxBackoff time.Duration
	// MaxFailures is the number of consecutive failures after which the Client gives up. Zero means
	// 8; negative means no limit.
	MaxFailures int
	// StableAfter is the age from which the end of a connection does not count as a failure. The
	// next attempt then follows at once. Zero means 10 s.
	StableAfter time.Duration
	// MaxWait limits how long a call or a notification waits for a connection before it fails with
	// a *[NotConnectedError]. Zero means 1 min; negative means no limit but the call's own timeouts
	// and its context.
	MaxWait time.Duration
}

// resolve replaces zero values by the defaults and validates the options.
func (o *Options) resolve() error {
	o.Info.Name = cmp.Or(o.Info.Name, "mcpwire")
	o.Info.Version = cmp.Or(o.Info.Version, "0")
	if o.Input.ElicitModes == nil {
		o.Input.ElicitModes = []mcp.ElicitMode{mcp.ElicitModeForm}
	}
	for _, mode := range o.Input.ElicitModes {
		if mode != mcp.ElicitModeForm && mode != mcp.ElicitModeURL {
			return fmt.Errorf("client.Options.Input.ElicitModes: unknown mode %q: use mcp.ElicitModeForm and mcp.ElicitModeURL", mode)
		}
	}
	o.Timeouts.Probe = cmp.Or(o.Timeouts.Probe, 5*time.Second)
	o.Timeouts.Handshake = cmp.Or(o.Timeouts.Handshake, 30*time.Second)
	o.Timeouts.Call = cmp.Or(o.Timeouts.Call, 5*time.Minute)
	o.Input.MaxRounds = cmp.Or(o.Input.MaxRounds, 10)
	o.Limits.MaxRequests = cmp.Or(o.Limits.MaxRequests, 64)
	o.Retry.MaxAttempts = cmp.Or(o.Retry.MaxAttempts, 3)
	o.Retry.MinBackoff = cmp.Or(o.Retry.MinBackoff, 100*time.Millisecond)
	o.Retry.MaxBackoff = cmp.Or(o.Retry.MaxBackoff, 5*time.Second)
	o.Reconnect.MinBackoff = cmp.Or(o.Reconnect.MinBackoff, 200*time.Millisecond)
	o.Reconnect.MaxBackoff = cmp.Or(o.Reconnect.MaxBackoff, 30*time.Second)
	o.Reconnect.MaxFailures = cmp.Or(o.Reconnect.MaxFailures, 8)
	o.Reconnect.StableAfter = cmp.Or(o.Reconnect.StableAfter, 10*time.Second)
	o.Reconnect.MaxWait = cmp.Or(o.Reconnect.MaxWait, time.Minute)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Revisions = slices.Clone(o.Revisions); len(o.Revisions) == 0 {
		o.Revisions = mcp.Revisions()
	}
	for _, r := range o.Revisions {
		if _, err := r.MarshalText(); err != nil {
			return fmt.Errorf("client.Options.Revisions: %w", err)
		}
	}
	if o.Profile != nil && !slices.Contains(o.Revisions, o.Profile.Revision) {
		return fmt.Errorf("client.Options.Profile.Revision %v is not an allowed revision: %v", o.Profile.Revision, o.Revisions)
	}
	o.Extensions = maps.Clone(o.Extensions)
	if o.Tasks && o.Extensions[mcp.ExtensionTasks] == nil {
		sparse.Set(&o.Extensions, mcp.ExtensionTasks, json.RawMessage("{}"))
	}
	if err := checkJSONValues("Capabilities", o.Capabilities, nil); err != nil {
		return err
	}
	return checkJSONValues("Extensions", o.Extensions, func(name string, settings json.RawMessage) error {
		if err := checkObject(settings); err != nil {
			return fmt.Errorf("settings: %w; use {} for none", err)
		}
		return era.CheckExtensionID(name)
	})
}

// checkJSONValues checks that the values are valid JSON and pass check, which may be nil.
func checkJSONValues(option string, texts map[string]json.RawMessage, check func(name string, text json.RawMessage) error) error {
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		err := jsonwire.Valid(texts[name], 0)
		if err == nil && check != nil {
			err = check(name, texts[name])
		}
		if err != nil {
			return fmt.Errorf("client.Options.%s[%q]: %w", option, name, err)
		}
	}
	return nil
}

// offer returns what the client declares to the server.
func (o *Options) offer() era.ClientProfile {
	elicits := o.Input.Elicit != nil
	return era.ClientProfile{
		Info:          o.Info,
		Form:          elicits && slices.Contains(o.Input.ElicitModes, mcp.ElicitModeForm),
		URL:           elicits && slices.Contains(o.Input.ElicitModes, mcp.ElicitModeURL),
		Sampling:      o.Input.Sample != nil,
		SamplingTools: o.Input.SampleTools,
		Roots:         o.Input.Roots != nil,
		Extensions:    o.Extensions,
		Extra:         maps.Clone(o.Capabilities),
	}
}

// acceptsResultType reports whether a declared extension adds that resultType for the method.
func (o *Options) acceptsResultType(method string, kind mcp.ResultType) bool {
	task := kind == mcp.ResultTypeTask && method == mcp.MethodToolsCall && o.Extensions[mcp.ExtensionTasks] != nil
	return task || slices.Contains(o.ResultTypes, kind)
}

// A CallOption changes one call.
type CallOption func(*callOptions)

// callOptions are the options of one call. The zero value means the Client's Options.
type callOptions struct {
	// timeout limits the wait for a response. Zero means Options.Timeouts.Call; negative, no limit.
	timeout time.Duration
	// maxTimeout limits the whole call. Zero means Options.Timeouts.MaxCall; negative, no limit.
	maxTimeout time.Duration
	progress   func(*mcp.ProgressNotificationParams)
	logLevel   mcp.LoggingLevel
	log        func(*mcp.LoggingMessageNotificationParams)
	// meta has the members of _meta as JSON text: `"key":value,"key":value`.
	meta []byte
	// err is the error of an invalid option.
	err   error
	retry retryMode
	// fresh bypasses the cache.
	fresh bool
	task  taskOptions
}

// A retryMode controls whether a request may be repeated when its connection is lost.
type retryMode uint8

const (
	retryIfRepeatable retryMode = iota
	retryNever
	retryAlways
)

// newCallOptions applies the options in order.
func newCallOptions(opts []CallOption) callOptions {
	if len(opts) == 0 {
		return callOptions{} // applyOptions allocates
	}
	return applyOptions(opts)
}

func applyOptions(opts []CallOption) (o callOptions) {
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// WithTimeout limits how long the call waits for its response. With [WithProgress], each progress
// notification restarts the time. The time that handlers take for input requests does not count. A
// negative d means no limit.
func WithTimeout(d time.Duration) CallOption { return func(o *callOptions) { o.timeout = d } }

// WithTotalTimeout limits the whole call, including progress, retries and input rounds. A negative
// d means no limit.
func WithTotalTimeout(d time.Duration) CallOption { return func(o *callOptions) { o.maxTimeout = d } }

// WithProgress asks the server for progress notifications and passes them to fn, in order, on the
// goroutine that made the call and before it returns. The Client drops the oldest ones if fn is too
// slow. If the call becomes a task, a legacy server reports progress until the task ends, to the
// goroutine that waits for the task or polls it. Modern servers do not: see [WithTaskStatus].
func WithProgress(fn func(*mcp.ProgressNotificationParams)) CallOption {
	return func(o *callOptions) { o.progress = fn }
}

// WithLog asks the server for log messages of the level and above, and passes them to fn as
// [WithProgress] does. Messages do not name their call: of the concurrent calls on a connection,
// each with a matching level receives them. Legacy servers ignore this option and use the level of
// [Client.SetLevel].
func WithLog(level mcp.LoggingLevel, fn func(*mcp.LoggingMessageNotificationParams)) CallOption {
	return func(o *callOptions) {
		if _, err := level.MarshalText(); err != nil {
			o.err = fmt.Errorf("WithLog: %w", err)
		}
		o.logLevel, o.log = level, fn
	}
}

// WithMeta adds a member to the request's _meta. value is like the params of [Client.Call], but may
// be any JSON value. The call fails if the specification does not allow the key or this package
// sets it itself.
func WithMeta(key string, value any) CallOption {
	return func(o *callOptions) {
		text, err := encodeValue(value)
		if text == nil && err == nil {
			text = []byte("null")
		}
		if err != nil {
			o.err = fmt.Errorf("_meta %q: %w", key, err)
			return
		}
		o.addMember(key, text)
	}
}

// addMeta adds the members of a _meta object.
func (o *callOptions) addMeta(object []byte) {
	if len(object) == 0 || object[0] != '{' {
		o.err = fmt.Errorf("_meta must be an object")
		return
	}
	members := jsonwire.ObjectMembers(object)
	for members.Next() {
		o.addMember(members.KeyString(), members.Value())
	}
}

// addMember adds a member whose value is JSON text.
func (o *callOptions) addMember(name string, value []byte) {
	if err := era.CheckMetaKey(name); err != nil {
		o.err = err
		return
	}
	switch name {
	case mcp.MetaProtocolVersion, mcp.MetaClientCapabilities, mcp.MetaClientInfo, mcp.MetaLogLevel, mcp.MetaProgressToken:
		o.err = fmt.Errorf("_meta %q is set by the client itself, see its options and WithProgress and WithLog", name)
		return
	}
	if len(o.meta) > 0 {
		o.meta = append(o.meta, ',')
	}
	o.meta = append(append(jsonwire.AppendQuote(o.meta, name), ':'), value...)
}

// WithRetry says whether the call is repeated when its connection is lost. True declares that it is
// safe to repeat. False makes the call fail, even if it is safe to repeat.
func WithRetry(repeat bool) CallOption {
	if repeat {
		return func(o *callOptions) { o.retry = retryAlways }
	}
	return func(o *callOptions) { o.retry = retryNever }
}

// WithoutCache bypasses the cache for this call. The response is cached as usual.
func WithoutCache() CallOption { return func(o *callOptions) { o.fresh = true } }
