package gateway

import (
	"cmp"
	"context"
	"crypto/sha256"
	"log/slog"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/mcp"
)

// Separator separates the name of the upstream from the server's own name of a tool or prompt.
const Separator = "__"

// Options configure a [Gateway]. The zero value of each field is the default. Package config checks
// the names of upstreams, tools and prompts.
type Options struct {
	// Info describes the gateway to clients. Its zero value means the name "mcpwire-gateway".
	Info mcp.Implementation
	// Instructions come before those of the upstreams.
	Instructions string
	// LabelElicitations puts the name of the upstream before the message of each elicitation.
	LabelElicitations bool
	// Upstreams are the servers. Their order is that of lists, and decides which upstream keeps a
	// URI scheme or name that several have.
	Upstreams []Upstream

	// Secrets seal list cursors and request states, and authenticate task ids. The first one seals,
	// all of them open. Each has at least 32 random bytes. Gateways with the same secrets accept
	// each other's. Nil means a random secret of this gateway.
	Secrets [][]byte

	// ListWait limits how long a list waits for the catalog of a server. Zero means 2 s.
	ListWait time.Duration
	// CatalogTTL limits the age of a catalog. A list that finds an older one requests it again.
	// Zero means 5 min.
	CatalogTTL time.Duration
	// DrainTimeout limits how long pending requests may run when an upstream is removed. Zero
	// means 10 s.
	DrainTimeout time.Duration
	// MaxSessions limits the legacy sessions of clients. Zero means 10,000.
	MaxSessions int

	// View returns what the caller of ctx may see and use. It must be quick. A nil function and a
	// nil View allow everything.
	View func(ctx context.Context) View
	// Admit admits a call to an upstream, or returns the error for the client, such as a
	// *relay.RejectedError. The gateway calls release, which may be nil, after the call. A nil
	// function admits all.
	Admit func(ctx context.Context, upstream string) (release func(), err error)
	// Check returns an error to deny a call. A *jsonrpc.Error goes to the client unchanged; of
	// others it gets the text with code -32603. It must not keep the CallInfo. A nil function
	// allows all.
	Check func(ctx context.Context, call *CallInfo) error
	// Audit is called after each call, also if it was denied, and for each resource and task of a
	// modern subscription when the server has acknowledged it or not. It must not block for long,
	// and must not keep the CallRecord. Nil means no audit.
	Audit func(*CallRecord)
	// Pin decides about the definition of an item when its catalog, one of Catalogs, was read.
	// definition is its JSON object as the server sent it, and must not be kept or changed. That of
	// KindServer has the instructions of the server. Nil shows all.
	Pin func(upstream, catalog string, kind Kind, name string, definition []byte) PinDecision

	// TaskOwners remember who has started the tasks of legacy clients, so that tasks/list has them
	// at other gateways and after a restart. Nil means that this gateway remembers its own.
	TaskOwners TaskOwners

	// Observe observes the requests of clients, and the requests to upstreams that they become. It
	// sees neither notifications, nor requests of servers, nor the gateway's own. Nil observes
	// nothing.
	Observe ObserveFunc

	// Record receives the traffic of both sides. The gateway does not close it. Nil records
	// nothing.
	Record *capture.Writer
	// Watched reports if Record wants traffic at present, and may be called by many goroutines at
	// once. While it does not, calls cost less. Nil means always.
	Watched func() bool
	// Logger receives the log. Nil discards it.
	Logger *slog.Logger
}

// An Isolation says which clients share a connection or process of an upstream.
type Isolation string

const (
	// IsolatePrincipals shares an upstream between the clients of one principal, as
	// bridge.Options.Shared does. The zero value means the same.
	IsolatePrincipals Isolation = "principal"
	// IsolateClients gives each legacy session its own. Modern clients have no sessions: each
	// principal has one, or each network address without principals.
	IsolateClients Isolation = "client"
	// IsolateNone shares an upstream between all clients. Input requests only go to the principal
	// whose call caused them.
	IsolateNone Isolation = "shared"
)

// An Upstream is a server behind the gateway.
type Upstream struct {
	// Name is the name of the server: letters, digits, "-" and "_". It must be unique, must not
	// contain "__", nor begin or end with "_".
	Name string
	// Bridge has the connection to the server and its limits. Connect is required. The gateway sets
	// Name, ClientEra, Shared, BaseContext, Record, Recording and Logger.
	//
	// With PerPrincipal, the contexts of Connect and of HTTP requests to the server have the
	// values of a request of the principal, such as auth.PrincipalOf.
	Bridge bridge.Options
	// Isolation says which clients share a connection or process.
	Isolation Isolation
	// PerPrincipal says that the credentials depend on the caller. Each principal, or set of scopes
	// of one, then has separate connections and catalogs.
	PerPrincipal bool
	// Login knows which callers have logged in to the server. It needs PerPrincipal. Nil means that
	// callers need not log in.
	Login Login
	// Rename has the gateway's whole name for tools and prompts, by the server's own name. It must
	// be unique, and must not look like a name of an upstream.
	Rename map[string]string
	// RequirePin refuses calls of tools and prompts about which Options.Pin has not decided,
	// because the lists of the server could not be read.
	RequirePin bool
	// Fingerprint identifies the configuration. [Gateway.Apply] keeps the connections of an
	// upstream whose Name, Fingerprint, Isolation and PerPrincipal are unchanged.
	Fingerprint string
}

// A Kind is a kind of item in a catalog.
type Kind uint8

const (
	KindTool Kind = iota
	KindPrompt
	KindResource
	KindTemplate
	numKinds
	// KindServer is the server itself. It is not in lists.
	KindServer = numKinds
)

var kindNames = [...]string{"tool", "prompt", "resource", "resource template", "server"}

// Catalogs are the names of the catalogs of an upstream: for clients of either era, with and
// without MCP Apps.
var Catalogs = []string{"legacy", "modern", "legacy with apps", "modern with apps"}

// String returns the name of the kind in English.
func (k Kind) String() string { return kindNames[k] }

// A View is the part of the gateway that a caller may see and use. Two Views with the same Key must
// allow the same.
type View interface {
	// Allows reports if the view has an item. name is the server's own name of a tool or prompt,
	// the URI of a resource, or the URI template. The gateway asks with KindResource for each URI
	// that a client uses, including those of templates.
	Allows(kind Kind, upstream, name string) bool
	// Key identifies the view.
	Key() string
}

// A CallInfo describes a call before it is sent: tools/call, prompts/get, resources/read,
// resources/subscribe, completion/complete, or a request about tasks.
type CallInfo struct {
	Method   string
	Upstream string
	Kind     Kind
	// Name is the server's own name of the tool or prompt, the URI or URI template of a resource,
	// or the server's own id of a task. It is "" for tasks/list, which is a call to each upstream.
	Name string
	// Arguments is the JSON text of params.arguments, or nil.
	Arguments []byte
	// Meta is the JSON text of params._meta, or nil.
	Meta []byte
}

// An Outcome says how a call ended.
type Outcome string

const (
	// OutcomeOK is a result.
	OutcomeOK Outcome = "ok"
	// OutcomeToolError is a result of a tool with isError.
	OutcomeToolError Outcome = "tool_error"
	// OutcomeInput is a result that asks the client for input.
	OutcomeInput Outcome = "input_required"
	// OutcomeLogin is a response that asks the caller to log in to the upstream.
	OutcomeLogin Outcome = "login_required"
	// OutcomeError is a JSON-RPC error of the server or of the connection to it.
	OutcomeError Outcome = "error"
	// OutcomeDenied is a call that View or Check did not allow, or that names nothing.
	OutcomeDenied Outcome = "denied"
	// OutcomeRejected is a call above a limit.
	OutcomeRejected Outcome = "rejected"
	// OutcomeCanceled is a call that the client gave up.
	OutcomeCanceled Outcome = "canceled"
)

// A CallRecord describes a call after its end.
type CallRecord struct {
	CallInfo
	// Context has the values of the call's context, such as auth.PrincipalOf and relay.CallerOf.
	Context context.Context
	Start   time.Time
	// Duration is the time from Start to the response.
	Duration time.Duration
	Outcome  Outcome
	// Code is the code of the JSON-RPC error, or 0.
	Code int
	// RequestBytes is the length of the request to the upstream, or of the client's own if there is
	// no upstream for it, and ResponseBytes that of the upstream's response. They are 0 without
	// one.
	RequestBytes, ResponseBytes int
}

// Digest returns the SHA-256 of the arguments.
func (r *CallRecord) Digest() [sha256.Size]byte { return sha256.Sum256(r.Arguments) }

// A PinDecision says what to do with a definition.
type PinDecision uint8

const (
	// PinShow shows the item.
	PinShow PinDecision = iota
	// PinWarn shows the item and counts it in [UpstreamStatus].
	PinWarn
	// PinHide hides the item: it is not listed, and calls of it fail as those of an unknown one.
	// Clients do not get the instructions of a hidden server.
	PinHide
)

// An UpstreamStatus describes the state of an upstream.
type UpstreamStatus struct {
	Name string `json:"name"`
	// State is "idle" before the first connection, "up", "down" after an error that nothing has
	// contradicted yet, or "draining".
	State string `json:"state"`
	// Eras are the eras that the server is known to support.
	Eras []string `json:"eras,omitempty"`
	// Revision is the revision of the server in the last handshake, or "".
	Revision string `json:"revision,omitempty"`
	// Server and Version are the server's name for itself.
	Server  string `json:"server,omitempty"`
	Version string `json:"version,omitempty"`
	// Sessions is the number of clients of its bridges, including the catalogs' own.
	Sessions int `json:"sessions"`
	// Connections is the number of open connections or processes.
	Connections int `json:"connections"`
	// InFlight is the number of pending requests of clients, without subscriptions.
	InFlight int `json:"inFlight"`
	// Requests, Errors and Restarts count since the start.
	Requests int64 `json:"requests"`
	Errors   int64 `json:"errors"`
	Restarts int64 `json:"restarts"`
	// LastError is the last error of the server or of a catalog, or "". It may contain the command
	// and standard error of a process.
	LastError string `json:"lastError,omitempty"`
	// Catalogs describes the catalogs, by era.
	Catalogs map[string]CatalogStatus `json:"catalogs,omitempty"`
	// Nodes are the nodes of a cluster that run the processes of the server. A Gateway leaves it
	// empty: it has connections to them.
	Nodes []NodeStatus `json:"nodes,omitempty"`
}

// A NodeStatus describes the processes of an upstream at a node of a cluster.
type NodeStatus struct {
	// Node is the name of the node.
	Node string `json:"node"`
	// State is "idle", "up" or "down", as in UpstreamStatus.
	State string `json:"state"`
	// Processes is the number of running processes.
	Processes int `json:"processes"`
	// InFlight is the number of their pending requests without subscriptions, and Subscriptions
	// that of subscriptions, such as those of the gateways to changes of lists.
	InFlight      int `json:"inFlight"`
	Subscriptions int `json:"subscriptions"`
	// Restarts counts since the node runs them.
	Restarts int64 `json:"restarts"`
	// LastError is as in UpstreamStatus.
	LastError string `json:"lastError,omitempty"`
}

// A CatalogStatus describes a catalog.
type CatalogStatus struct {
	Tools     int `json:"tools"`
	Prompts   int `json:"prompts"`
	Resources int `json:"resources"`
	Templates int `json:"templates"`
	// Duplicates is the number of items that are hidden because their name is taken.
	Duplicates int `json:"duplicates,omitempty"`
	// Warned and Hidden are the numbers of items for which Options.Pin decided so.
	Warned int `json:"warned,omitempty"`
	Hidden int `json:"hidden,omitempty"`
	// AgeSeconds is the age of the catalog.
	AgeSeconds float64 `json:"ageSeconds"`
	// Stale says that the last attempt to read it again failed.
	Stale bool `json:"stale,omitempty"`
}

func (o Options) withDefaults() Options {
	if o.Info.Name == "" {
		o.Info.Name, o.Info.Version = "mcpwire-gateway", "1"
	}
	o.ListWait = cmp.Or(o.ListWait, 2*time.Second)
	o.CatalogTTL = cmp.Or(o.CatalogTTL, 5*time.Minute)
	o.DrainTimeout = cmp.Or(o.DrainTimeout, 10*time.Second)
	o.MaxSessions = cmp.Or(o.MaxSessions, 10_000)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o
}
