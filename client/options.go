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
	Known     *Verdict       // what is known of the server already, from [Client.Verdict]: it is not probed

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

// A RetryPolicy says how often requests that are safe to repeat are sent again when their connection is lost. The zero value is ready to use.
type RetryPolicy struct {
	MaxAttempts int           // of a request, the first one included; 0 is 3, 1 or less never retries
	MinBackoff  time.Duration // before the second attempt, or when the server asks for one; it doubles with each. 0 is 100 ms
	MaxBackoff  time.Duration // that it does not exceed; 0 is 5 s
}

// A ReconnectPolicy says what becomes of a Client whose connection is lost. The zero value is ready to use.
type ReconnectPolicy struct {
	Disabled    bool          // the Client ends with its connection
	MinBackoff  time.Duration // before the second attempt in a row; it doubles with each. 0 is 200 ms
	MaxBackoff  time.Duration // that it does not exceed; 0 is 30 s
	MaxFailures int           // in a row, after which the Client ends; 0 is 8, negative never
	StableAfter time.Duration // after which the end of a connection is no failure; 0 is 10 s
}
