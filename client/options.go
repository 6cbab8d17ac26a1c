package client

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

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
