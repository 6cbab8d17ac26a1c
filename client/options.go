package client

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/schema"
)

// Options are the options of [Dial]. The zero value is ready to use, and what nil means.
type Options struct {
	Name        string // of this client, as it presents itself; "" is "mcpwire"
	Version     string // "" is "0"
	Title       string // shown to people
	Description string
	WebsiteURL  string
	Icons       []mcp.Icon

	// Capabilities are declared besides those that the handlers below imply. A member that both have is taken from here.
	Capabilities map[string]json.RawMessage
	// Extensions are declared as capabilities.extensions: the settings object of each, {} if there is nothing to set.
	Extensions map[string]json.RawMessage
	// ResultTypes are the values of resultType that Extensions add. Results with others are errors.
	ResultTypes []string

	Revisions []mcp.Revision // the only ones to speak; nil is all
	Profile   *Profile       // what is known of the server already, from [Client.Profile]: it is not probed

	ProbeTimeout     time.Duration // without an answer to the probe, after which the server counts as legacy; 0 is 5 s
	HandshakeTimeout time.Duration // without an answer to initialize; 0 is 30 s
	CallTimeout      time.Duration // of calls without WithTimeout; 0 is 5 min, negative none
	MaxCallTimeout   time.Duration // of calls without WithMaxTimeout; 0 or negative is none

	Retry     RetryPolicy
	Reconnect ReconnectPolicy
	MaxRounds int // in which a server may ask for input before it answers one request, or ends one task; 0 is 10

	// IgnoreHints is for servers that are not trusted: tools that say of themselves that they are read-only or idempotent are not believed, so that their
	// calls are not repeated.
	IgnoreHints bool

	// The handlers below have to return when their ctx ends: the answer is not wanted any more then, and the call, or Close, waits for them. They may be
	// called many at once. [FromContext] tells which server asks.

	// Elicit asks the user: to fill in a form, p.RequestedSchema, which the content of the result is held against, or to visit a web page, p.URL. An error
	// is taken as the user's cancel.
	Elicit      func(ctx context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error)
	ElicitModes ElicitModes // that Elicit can do; 0 is ElicitForm
	// Sample asks the user's model. An error refuses, and is the error of the call that the server wanted it for.
	Sample      func(ctx context.Context, p *mcp.CreateMessageRequestParams) (*mcp.CreateMessageResult, error)
	SampleTools bool // Sample takes tools and a tool choice
	// Roots lists the folders that the server may know of, by file URIs without "..". An error refuses, as that of Sample does.
	Roots func(ctx context.Context) ([]mcp.Root, error)

	// OnNotification sees each notification of the server, in order, one at a time, on a goroutine of its own. params is valid until it returns.
	OnNotification func(method string, params json.RawMessage)

	// Middleware sees all messages in both directions, the first one as the outermost: calls (once each, however often they are repeated and asked about, and
	// only those that the cache does not answer), the requests that open a connection, what legacy servers ask, and notifications that the protocol has,
	// or that OnNotification sees. What a modern server asks is part of a result, and cancellations of this side's calls go past it. With middleware,
	// pings are answered on goroutines of their own. Without, none of this costs anything.
	Middleware []Middleware
	// OnEnd is called once, when the Client has ended, with what [Client.Err] returns; [Client.Close] waits for it. It must not call Close.
	OnEnd func(c *Client, err error)

	Cache        *Cache        // of responses that the server marked public, shared by clients of the same server; nil is none
	CacheBytes   int           // of responses that this client keeps for itself; 0 is 16 MiB, negative keeps none
	StaleIfError time.Duration // how long after its end a cached response still serves if the server cannot be reached; 0 is not at all
	MaxPages     int           // of a list in one iteration; 0 is 10,000

	SchemaEngine       schema.Engine // for output schemas and forms with keywords that package schema lacks; see schema/fullschema, which is for servers that are trusted
	NoOutputValidation bool          // take tools' results without holding them against their output schemas
	Tasks              bool          // take tasks: a tool may answer with one instead of a result. Declares the extension io.modelcontextprotocol/tasks

	MaxDepth    int // levels of nesting in a message; 0 is 512
	MaxRequests int // of a legacy server being handled at once; 0 is 64

	Logger *slog.Logger                                // nil discards
	Trace  func(dir jsonrpc.Direction, message []byte) // sees each message; must not keep the slice. May be called by many goroutines at once
}

// ElicitModes are the ways in which a client can ask its user.
type ElicitModes uint8

// The modes, to be joined with |.
const (
	ElicitForm ElicitModes = 1 << iota // by a form of the client's
	ElicitURL                          // by sending the user to a web page; since 2025-11-25
)

// A RetryPolicy says how often requests are sent again that are safe to repeat and whose connection was lost, or that were certainly not carried out: a server over HTTP that
// is overloaded (503) or limits its callers (429) says when it wants the next attempt (Retry-After), which is obeyed up to 30 s. A call that has not so much time left fails
// at once, with the server's reason. The zero value is ready to use.
type RetryPolicy struct {
	// MaxAttempts is the number of times that a request is sent at most. Zero means 3; 1 or less never sends one again.
	MaxAttempts int
	// MinBackoff is the wait before the second attempt. It doubles with each, up to a half of it is taken off at random, and what the server asks for is added. Zero means 100 ms.
	MinBackoff time.Duration
	// MaxBackoff limits that wait, without what the server asks for. Zero means 5 s.
	MaxBackoff time.Duration
}

// A ReconnectPolicy says what becomes of a Client whose connection is lost. The zero value is ready to use.
//
// A failure is an attempt to connect that fails, and a connection that ends before StableAfter. Failures are in a row unless a call was answered in
// between: a server that serves and crashes now and then is started again after MinBackoff, for ever.
type ReconnectPolicy struct {
	// Disabled ends the Client with its connection.
	Disabled bool
	// MinBackoff is the wait after the first failure. It doubles with each further one in a row, and up to a half of it is taken off at random. Zero means 200 ms.
	MinBackoff time.Duration
	// MaxBackoff limits that wait. Zero means 30 s.
	MaxBackoff time.Duration
	// MaxFailures is the number of failures in a row after which the Client ends. Zero means 8; a negative number, never.
	MaxFailures int
	// StableAfter is the life after which the end of a connection is no failure: the next attempt comes at once. Zero means 10 s.
	StableAfter time.Duration
	// MaxWait limits the time for which a call or a notification waits for a connection before it fails with a *[NotConnectedError]. Zero means 1 min; a
	// negative duration, as long as the call's own time limits and its context allow.
	MaxWait time.Duration
}

// resolve puts the defaults in place of zero values and checks the rest.
func (o *Options) resolve() error {
	setDefault(&o.Name, "mcpwire")
	setDefault(&o.Version, "0")
	setDefault(&o.ElicitModes, ElicitForm)
	setDefault(&o.ProbeTimeout, 5*time.Second)
	setDefault(&o.HandshakeTimeout, 30*time.Second)
	setDefault(&o.CallTimeout, 5*time.Minute)
	setDefault(&o.MaxRounds, 10)
	setDefault(&o.MaxRequests, 64)
	setDefault(&o.Retry.MaxAttempts, 3)
	setDefault(&o.Retry.MinBackoff, 100*time.Millisecond)
	setDefault(&o.Retry.MaxBackoff, 5*time.Second)
	setDefault(&o.Reconnect.MinBackoff, 200*time.Millisecond)
	setDefault(&o.Reconnect.MaxBackoff, 30*time.Second)
	setDefault(&o.Reconnect.MaxFailures, 8)
	setDefault(&o.Reconnect.StableAfter, 10*time.Second)
	setDefault(&o.Reconnect.MaxWait, time.Minute)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Revisions = slices.Clone(o.Revisions); len(o.Revisions) == 0 {
		o.Revisions = mcp.Revisions()
	}
	for _, r := range o.Revisions {
		if _, err := r.MarshalText(); err != nil {
			return fmt.Errorf("client.Options.Revisions: %w", err)
		}
	}
	if o.Profile != nil && !slices.Contains(o.Revisions, o.Profile.Revision) {
		return fmt.Errorf("client.Options.Profile.Revision %v is not one to be spoken: %v", o.Profile.Revision, o.Revisions)
	}
	if err := checkJSONValues("Capabilities", o.Capabilities, nil); err != nil {
		return err
	}
	return checkJSONValues("Extensions", o.Extensions, func(name string, settings json.RawMessage) error {
		if err := checkObject(settings); err != nil {
			return fmt.Errorf("settings: %w; {} stands for none", err)
		}
		return mcp.CheckExtensionID(name)
	})
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// checkJSONValues checks that the values are JSON, and what else is to be checked.
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

// offer is what the options come to for the server.
func (o *Options) offer() era.ClientProfile {
	elicits := o.Elicit != nil
	offer := era.ClientProfile{
		Info: mcp.Implementation{
			Name: o.Name, Version: o.Version, Title: o.Title, Description: o.Description, WebsiteURL: o.WebsiteURL, Icons: o.Icons,
		},
		Form:          elicits && o.ElicitModes&ElicitForm != 0,
		URL:           elicits && o.ElicitModes&ElicitURL != 0,
		Sampling:      o.Sample != nil,
		SamplingTools: o.SampleTools,
		Roots:         o.Roots != nil,
		Extensions:    maps.Clone(o.Extensions),
		Extra:         maps.Clone(o.Capabilities),
	}
	if o.Tasks && offer.Extensions[mcp.ExtensionTasks] == nil {
		if offer.Extensions == nil {
			offer.Extensions = make(map[string]json.RawMessage)
		}
		offer.Extensions[mcp.ExtensionTasks] = json.RawMessage("{}")
	}
	return offer
}

// acceptsResultType reports whether an extension that the client declares has results of that kind.
func (o *Options) acceptsResultType(method, kind string) bool {
	if kind == mcp.ResultTypeTask && method == mcp.MethodToolsCall && (o.Tasks || o.Extensions[mcp.ExtensionTasks] != nil) {
		return true
	}
	return slices.Contains(o.ResultTypes, kind)
}

// A CallOption changes one call.
type CallOption func(*callOptions)

// callOptions are the options of one call. The zero value is what the Client's Options say.
type callOptions struct {
	timeout    time.Duration // 0 is Options.CallTimeout, negative none
	maxTimeout time.Duration // 0 is Options.MaxCallTimeout, negative none
	progress   func(mcp.ProgressNotificationParams)
	logLevel   mcp.LoggingLevel
	log        func(mcp.LoggingMessageNotificationParams)
	meta       []byte // members for _meta, JSON text: `"key":value,"key":value`
	err        error  // of an option that cannot be
	retry      retryMode
	fresh      bool // not from the cache
	task       taskOptions
}

// A retryMode says whether a request may be sent again when its connection is lost.
type retryMode uint8

const (
	retryIfRepeatable retryMode = iota
	retryNever
	retryAlways
)

// newCallOptions applies the options in order.
func newCallOptions(opts []CallOption) (o callOptions) {
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// WithTimeout bounds how long the call waits for its answer, or for progress if [WithProgress] is given too: each progress notification starts the
// time again. The time that handlers of the server's own questions take does not count. A negative d is no bound.
func WithTimeout(d time.Duration) CallOption { return func(o *callOptions) { o.timeout = d } }

// WithMaxTimeout bounds the whole call: progress, retries and rounds of questions included. A negative d is no bound.
func WithMaxTimeout(d time.Duration) CallOption { return func(o *callOptions) { o.maxTimeout = d } }

// WithProgress asks the server for progress notifications and passes them to fn, in order, on the goroutine that made the call and before it returns.
// If fn cannot keep up, older ones are dropped. Of a call that becomes a task, legacy servers go on to tell until the task has ended, to whoever waits for
// it or polls; modern ones do not: see [WithTaskStatus].
func WithProgress(fn func(mcp.ProgressNotificationParams)) CallOption {
	return func(o *callOptions) { o.progress = fn }
}

// WithLog asks the server for log messages of the level and above and passes them to fn as [WithProgress] does. On a connection that several calls
// share at once nothing in a message says which of them it is for: each that wants its level gets it. Legacy servers are not asked: they send what
// logging/setLevel wants.
func WithLog(level mcp.LoggingLevel, fn func(mcp.LoggingMessageNotificationParams)) CallOption {
	return func(o *callOptions) {
		if _, err := level.MarshalText(); err != nil {
			o.err = fmt.Errorf("WithLog: %w", err)
		}
		o.logLevel, o.log = level, fn
	}
}

// WithMeta adds a member to the request's _meta. value is as params of [Client.Call], but may be any JSON value. The call fails if the key is not one that the
// specification allows, or one that this package sets itself.
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
		o.addMember(jsonwire.AppendQuote(nil, key), text)
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
		o.addMember(jsonwire.AppendQuote(nil, members.KeyString()), members.Value())
	}
}

// addMember adds one, given as JSON texts.
func (o *callOptions) addMember(key, value []byte) {
	name := jsonwire.UnquoteString(key[1 : len(key)-1])
	if err := mcp.CheckMetaKey(name); err != nil {
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
	o.meta = append(append(append(o.meta, key...), ':'), value...)
}

// WithoutRetry makes the call fail if its connection is lost, even if it could be repeated safely.
func WithoutRetry() CallOption { return func(o *callOptions) { o.retry = retryNever } }

// WithRetry tells that the call may be repeated if its connection is lost, although nothing says that this is safe.
func WithRetry() CallOption { return func(o *callOptions) { o.retry = retryAlways } }

// WithFresh has the answer come from the server, not from the cache. The cache keeps it.
func WithFresh() CallOption { return func(o *callOptions) { o.fresh = true } }
