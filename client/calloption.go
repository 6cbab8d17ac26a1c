package client

import (
	"fmt"
	"time"

	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
)

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
