package config

import (
	"cmp"
	"time"
)

// A Config is the content of a file. [Load] returns one that is valid.
type Config struct {
	// Listen is where clients connect: an address such as 127.0.0.1:8080 for Streamable HTTP,
	// unix:PATH or tcp:HOST:PORT for sockets, stdio for one client on standard input and output, or
	// an object with more options. The default is 127.0.0.1:8080.
	Listen Listen `yaml:"listen" reload:"restart"`
	// Auth says which callers are admitted. By default, callers need no token; other machines can
	// then not connect unless listen.allowRemote is set.
	Auth *Auth `yaml:"auth" reload:"restart"`
	// Login says how callers log in to upstreams that have credentials.login.
	Login Login `yaml:"login" reload:"restart"`
	// Upstreams are the servers behind the gateway, by name. Their tools and prompts have the name
	// of the upstream and two underscores in front: files__read_file. Lists are in the order of the
	// upstreams here.
	Upstreams Upstreams `yaml:"upstreams,required" reload:"connect"`
	// Views say what a caller sees and may call. All views whose match fits the caller count: an
	// item must be allowed by one of them and denied by none. A caller without a view sees nothing.
	// Without views, every caller sees everything.
	Views []View `yaml:"views" reload:"live"`
	// Limits limit what one caller, and all callers together, may do.
	Limits Limits `yaml:"limits" reload:"live"`
	// Keys are secrets that gateways behind one load balancer share, each as env:NAME or file:PATH:
	// 32 random bytes or more in base64. The first one seals sessions, cursors, request states and
	// ids of tasks, all of them open, so that each gateway accepts those of the others, also after
	// a restart. By default, each gateway accepts only its own, until it stops.
	Keys []Reference `yaml:"keys" reload:"presence"`
	// Audit writes a line of JSON for each call: who, what, which upstream, the outcome, the time
	// in milliseconds and a digest of the arguments. By default, there is no audit. It is a FILE,
	// or stderr.
	Audit string `yaml:"audit" reload:"live"`
	// Pins is the file of the accepted definitions of items, for upstreams that pin them. The
	// default is a file in the folder for state (MCPWIRE_HOME).
	Pins string `yaml:"pins" reload:"live"`
	// Admin is where operators look: an address such as 127.0.0.1:9090, which serves /livez,
	// /readyz, /startupz, /metrics, /upstreamz and /configz without a token, or an object with more
	// options. By default, there is none.
	Admin Admin `yaml:"admin" reload:"restart"`
	// Capture is the folder for recordings of the traffic: each run writes one file there, without
	// credentials. By default, nothing is recorded.
	Capture string `yaml:"capture" reload:"restart"`
	// Instructions are given to clients before the instructions of the upstreams.
	Instructions string `yaml:"instructions" reload:"live"`
	// LabelElicitations puts the name of the upstream before the message of each elicitation,
	// as in "files: Delete it?". The default is auto, which does so with more than one upstream.
	LabelElicitations string `yaml:"labelElicitations" reload:"live" enum:"auto always never"`
	// ListWait is how long a list waits for upstreams that have not answered yet. Clients learn of
	// their tools when they have. The default is 2s. Raise it for clients that list once only.
	ListWait Duration `yaml:"listWait" reload:"live" least:"1ms"`
	// Drain is the grace period for pending requests when the gateway stops, or stops using an
	// upstream. The default is 10s.
	Drain Duration `yaml:"drain" reload:"restart" least:"1ms"`

	file *file
}

// A Listen is an address for clients.
type Listen struct {
	// Address is HOST:PORT for Streamable HTTP, unix:PATH or tcp:HOST:PORT for a socket, or stdio.
	// The default is 127.0.0.1:8080.
	Address string `yaml:"address"`
	// Path is the path of the endpoint over HTTP. The default is /mcp.
	Path string `yaml:"path" pattern:"^/[^{}?#\\s]*$"`
	// SSE also serves the older HTTP+SSE transport, at /sse and /messages.
	SSE bool `yaml:"sse"`
	// TLS is the certificate to serve HTTPS with. By default, the endpoint is HTTP.
	TLS *ServerTLS `yaml:"tls"`
	// Hosts are names that clients use in addition to localhost and the host of auth.resource.
	Hosts []string `yaml:"hosts"`
	// Origins are the web pages that may connect, such as https://app.example.com.
	Origins []string `yaml:"origins"`
	// Behind are networks or addresses of reverse proxies, whose X-Forwarded-For identifies
	// callers.
	Behind []string `yaml:"behind"`
	// AllowRemote allows an address that other machines can reach although callers need no token.
	AllowRemote bool `yaml:"allowRemote"`
	// Sessions is the largest number of clients at a time. The default is 10000.
	Sessions int `yaml:"sessions" least:"1"`
	// Streams is the largest number of streams that clients keep open over HTTP: subscriptions, and
	// what legacy sessions listen to. The default is 10000.
	Streams int `yaml:"streams" least:"1"`
	// PerCaller is how many sessions, and separately how many open streams, one caller may have
	// over HTTP. The default is 1000. More are rejected with the status 429.
	PerCaller int `yaml:"perCaller" least:"1"`
	// SessionTimeout is how long a legacy session over HTTP lasts without a stream or a request.
	// The default is 30m.
	SessionTimeout Duration `yaml:"sessionTimeout" least:"1s"`
	// MaxMessage is the size of the largest message that a client may send. The default is 4M over
	// HTTP and 64M elsewhere.
	MaxMessage Size `yaml:"maxMessage" least:"1K"`
}

// A ServerTLS is the certificate of the gateway. The files are read again when they change.
type ServerTLS struct {
	// Cert is the file with the certificate, followed by its chain, in PEM.
	Cert Path `yaml:"cert,required"`
	// Key is the file with the private key, in PEM.
	Key Path `yaml:"key,required"`
}

// An Admin is an address for operators.
type Admin struct {
	// Address is HOST:PORT.
	Address string `yaml:"address,required"`
	// AllowRemote allows an address that other machines can reach, for the probes of Kubernetes.
	// Who reaches it sees the names and states of upstreams.
	AllowRemote bool `yaml:"allowRemote"`
}

// An Auth says which callers are admitted: those with the token, or with a token of an issuer.
type Auth struct {
	// Token is the only token that is admitted, as env:NAME or file:PATH.
	Token Reference `yaml:"token"`
	// Resource is the public URL of the gateway, and the audience of tokens. It is required with
	// issuers.
	Resource string `yaml:"resource"`
	// Issuers are the authorization servers whose tokens are admitted.
	Issuers []Issuer `yaml:"issuers"`
	// Scopes are required from every caller.
	Scopes []string `yaml:"scopes"`
}

// An Issuer is an authorization server.
type Issuer struct {
	// URL is the identifier of the authorization server.
	URL string `yaml:"url,required"`
	// Audience lists names of the gateway in tokens. The default is auth.resource. If several
	// services share a name, each can use the tokens of the others.
	Audience Texts `yaml:"audience"`
	// JWKS is the URL of the keys. The default is the one in the metadata of the issuer.
	JWKS string `yaml:"jwks"`
	// Introspection asks the issuer about each token, for issuers whose tokens are not JWTs.
	Introspection *Introspection `yaml:"introspection"`
}

// An Introspection is how to ask an issuer about tokens (RFC 7662).
type Introspection struct {
	// Endpoint is the URL of the endpoint.
	Endpoint string `yaml:"endpoint,required"`
	// ClientID identifies the gateway at the issuer.
	ClientID string `yaml:"clientId,required"`
	// ClientSecret authenticates the gateway at the issuer, as env:NAME or file:PATH.
	ClientSecret Reference `yaml:"clientSecret,required"`
}

// A Login says where the pages are on which callers log in to upstreams, and how the gateway knows
// who opens them.
type Login struct {
	// URL is the public URL of the gateway without a path, such as https://mcp.example.com.
	// Authorization servers send browsers back to /oauth/ there. The default is that of
	// auth.resource, or the address of the pages on this machine.
	URL string `yaml:"url"`
	// Address is HOST:PORT of a separate address for the pages. The default is that of the gateway
	// over HTTP, and otherwise a free port of this machine.
	Address string `yaml:"address"`
	// Identity is how browsers log in to the gateway itself, so that nobody logs in for somebody
	// else. It is required with auth.issuers.
	Identity *LoginIdentity `yaml:"identity"`
	// Store is the folder for the tokens that callers have got, or memory. The default is a folder
	// in the folder for state (MCPWIRE_HOME). With keys, the tokens are encrypted.
	Store string `yaml:"store"`
}

// A LoginIdentity is the gateway as a client of its own authorization server, by OpenID Connect.
type LoginIdentity struct {
	// Issuer is the URL of the authorization server, which is one of auth.issuers.
	Issuer string `yaml:"issuer,required"`
	// ID identifies the gateway there. Its redirect URI is /oauth/identity of login.url.
	ID string `yaml:"id,required"`
	// Secret authenticates the gateway, as env:NAME or file:PATH.
	Secret Reference `yaml:"secret"`
	// Claim identifies a user both in ID tokens and in the tokens of callers. The default is sub.
	// It must neither change nor be given to another user.
	Claim string `yaml:"claim"`
	// Scopes are requested in addition to openid.
	Scopes []string `yaml:"scopes"`
}

// Upstreams are upstreams in the order of the file.
type Upstreams []*Upstream

// An Upstream is a server behind the gateway: a command, a URL or a socket.
type Upstream struct {
	// Name is the key of the upstream.
	Name string `yaml:"-"`

	// Command is the program to run, with its arguments: a list, or the program alone. Relative
	// programs are searched in PATH. A server on standard input and output.
	Command Texts `yaml:"command"`
	// Args are more arguments.
	Args []string `yaml:"args"`
	// Env are variables of the command. A value that is a secret is env:NAME or file:PATH.
	Env Values `yaml:"env"`
	// Inherit names variables of the gateway that the command gets too, such as HTTPS_PROXY. A name
	// that ends in * stands for all names that begin so. The command always gets PATH, HOME and
	// others that hold no secrets, and never a variable that an env:NAME of this file names, unless
	// its own env has it.
	Inherit []string `yaml:"inherit"`
	// Cwd is the folder that the command runs in, relative to that of this file. The default is the
	// folder that the gateway runs in.
	Cwd string `yaml:"cwd"`
	// Framing is how the command or the socket delimits messages. The default is line.
	Framing string `yaml:"framing" enum:"line header"`

	// URL is the endpoint of a server over HTTP. A URL with a secret in it is env:NAME or
	// file:PATH.
	URL Value `yaml:"url"`
	// Transport is http for Streamable HTTP, or sse for the older HTTP+SSE. The default is auto,
	// which tries one after the other.
	Transport string `yaml:"transport" enum:"auto http sse"`
	// Headers are sent with each request. A value that is a secret is env:NAME or file:PATH.
	Headers Values `yaml:"headers" reload:"reread"`
	// TLS is for servers whose certificate the system does not trust.
	TLS *ClientTLS `yaml:"tls"`
	// Credentials are how the gateway authenticates to the server. A caller's token is never
	// forwarded.
	Credentials *Credentials `yaml:"credentials"`

	// Socket is unix:PATH or tcp:HOST:PORT.
	Socket string `yaml:"socket"`

	// Era is the era of the server: legacy with a handshake, modern without. The default is auto,
	// which asks the server.
	Era string `yaml:"era" enum:"auto legacy modern"`
	// Isolation says who shares a process or session: no two sessions (client), the clients of one
	// caller (principal), or all clients (shared). Modern servers have no sessions; a process of
	// theirs is shared the same way. Modern clients have no sessions either: with client, those of
	// one caller share, or without auth those of one network address. The default is principal.
	Isolation string `yaml:"isolation" enum:"client principal shared"`
	// Idle is how long an unused process or session is kept. The default is 10m.
	Idle Duration `yaml:"idle" least:"1s"`
	// Timeouts limit how long the gateway waits for the server.
	Timeouts Timeouts `yaml:"timeouts"`
	// Limits limit the use of the server. Limits that are not given are those of limits.upstream.
	Limits UpstreamLimits `yaml:"limits"`

	// Rename maps names of tools and prompts of the server to the whole names that clients see
	// instead: with read_file: read, files__read_file is read.
	Rename map[string]string `yaml:"rename" reload:"live"`
	// Tools says which tools of the server are offered.
	Tools Filter `yaml:"tools" reload:"live"`
	// Prompts says which prompts of the server are offered.
	Prompts Filter `yaml:"prompts" reload:"live"`
	// Resources says which resources of the server are offered, by URI.
	Resources Filter `yaml:"resources" reload:"live"`
	// Pin says what to do when the definition of a tool, prompt, resource or template, or the
	// instructions of the server, differ from the accepted ones, or the first ones that were seen:
	// warn logs it, hide also hides the item until mcpwire gateway pins accept. The default is off.
	Pin string `yaml:"pin" reload:"live" enum:"off warn hide"`

	// Disabled leaves the upstream out.
	Disabled bool `yaml:"disabled" reload:"live"`
}

// A ClientTLS says which certificates of a server are trusted.
type ClientTLS struct {
	// CA is a file of certificates to trust in addition to those of the system, in PEM.
	CA Path `yaml:"ca"`
	// Insecure accepts every certificate. It is for tests.
	Insecure bool `yaml:"insecure"`
}

// Timeouts limit how long the gateway waits for a server.
type Timeouts struct {
	// Connect limits the start of the process or connection, with the handshake. The default is
	// 30s.
	Connect Duration `yaml:"connect" least:"10ms"`
	// Call limits the time without a response, progress or an input request. The default is 5m.
	Call Duration `yaml:"call" least:"10ms"`
	// Restart limits how long a request waits for the restart of a server that ended, or whose
	// machine refuses connections. The default is 10s.
	Restart Duration `yaml:"restart" least:"1ms"`
}

// A Filter chooses items of an upstream: tools and prompts by the names that the server gives them,
// resources by URI. In a pattern, * stands for any text.
type Filter struct {
	// Allow lists patterns of names or URIs to offer. The default is all.
	Allow []string `yaml:"allow"`
	// Deny lists patterns of names or URIs to hide, also if allow has them.
	Deny []string `yaml:"deny"`
}

// Credentials are how the gateway authenticates to a server: with a token, as a client of an
// authorization server, with a token that it gets in exchange for that of the caller, or with one
// that the caller has logged in for.
type Credentials struct {
	// Token is sent as a bearer token, as env:NAME or file:PATH. A file is read again when it
	// changes.
	Token Reference `yaml:"token" reload:"reread"`
	// Client gets a token for the gateway itself (client credentials, RFC 6749).
	Client *ClientCredentials `yaml:"client"`
	// Exchange gets a token for the caller of each request (token exchange, RFC 8693).
	Exchange *Exchange `yaml:"exchange"`
	// Login has each caller log in with a browser (authorization code, RFC 6749). {} is enough for
	// servers that say where.
	Login *UpstreamLogin `yaml:"login"`
}

// ClientCredentials are those of the gateway at an authorization server.
type ClientCredentials struct {
	// Issuer is the URL of the authorization server.
	Issuer string `yaml:"issuer,required"`
	// ID identifies the gateway.
	ID string `yaml:"id,required"`
	// Secret authenticates the gateway, as env:NAME or file:PATH.
	Secret Reference `yaml:"secret,required"`
	// Scopes are requested. The default is what the server asks for.
	Scopes []string `yaml:"scopes"`
}

// An Exchange is how to exchange the token of a caller for one that a server accepts.
type Exchange struct {
	// Issuer is the URL of the authorization server.
	Issuer string `yaml:"issuer,required"`
	// ID identifies the gateway. By default, the gateway does not authenticate.
	ID string `yaml:"id"`
	// Secret authenticates the gateway, as env:NAME or file:PATH.
	Secret Reference `yaml:"secret"`
	// Audience is the name of the server at the authorization server.
	Audience string `yaml:"audience"`
	// Resource is the URL of the server at the authorization server. The default is the URL of the
	// upstream if there is no audience.
	Resource string `yaml:"resource"`
	// Scopes are requested. The default is what the server asks for.
	Scopes []string `yaml:"scopes"`
}

// An UpstreamLogin is the gateway as a client of the authorization server of an upstream.
type UpstreamLogin struct {
	// Issuer is the URL of the only authorization server that is accepted. The default is the one
	// that the server names.
	Issuer string `yaml:"issuer"`
	// ID identifies the gateway at the issuer. Its redirect URI is /oauth/callback/NAME of
	// login.url, with the name of the upstream. By default, the gateway uses the URL of its
	// metadata document if the issuer supports that, and otherwise registers itself.
	ID string `yaml:"id"`
	// Secret authenticates the gateway, as env:NAME or file:PATH.
	Secret Reference `yaml:"secret"`
	// Scopes are requested. The default is what the server asks for.
	Scopes []string `yaml:"scopes"`
	// AuthorizationEndpoint is the URL to send browsers to, for issuers without metadata.
	AuthorizationEndpoint string `yaml:"authorizationEndpoint"`
	// TokenEndpoint is the URL to get tokens from, for issuers without metadata.
	TokenEndpoint string `yaml:"tokenEndpoint"`
}

// A View says what some callers see and may call.
type View struct {
	// Match says which callers the view is for. The default is all.
	Match Match `yaml:"match"`
	// Allow lists patterns of what to show: github__search_* for names of tools and prompts as the
	// servers give them, docs__file:///public/* for URIs of resources. A pattern that begins with
	// tool:, prompt: or resource: is only for those. In a pattern, * stands for any text.
	Allow []string `yaml:"allow"`
	// Deny lists patterns of what to hide, also if another view allows it.
	Deny []string `yaml:"deny"`
}

// A Match chooses callers. All that it has must fit.
type Match struct {
	// Claims maps claims of the token to patterns of values, of which one must match. A claim that
	// is a list must contain one of them. A name that begins with a slash is a JSON pointer, such
	// as /realm_access/roles.
	Claims map[string]Texts `yaml:"claims"`
	// Scopes must all have been granted.
	Scopes []string `yaml:"scopes"`
	// Principals lists patterns of callers, of which one must match: SUBJECT, "ISSUER SUBJECT" or
	// "ISSUER SUBJECT CLIENT".
	Principals []string `yaml:"principals"`
}

// Limits limit what callers may do.
type Limits struct {
	// PerCaller limits each caller: a principal, or a network address without auth.
	PerCaller CallerLimits `yaml:"perCaller"`
	// Upstream limits the use of each upstream, unless the upstream has its own limits.
	Upstream UpstreamLimits `yaml:"upstream"`
}

// CallerLimits limit one caller.
type CallerLimits struct {
	// Rate is the number of calls per second. The default is unlimited.
	Rate float64 `yaml:"rate" least:"0.001"`
	// Burst is the number of calls that may come at once after a pause. The default is the rate.
	Burst int `yaml:"burst" least:"1"`
	// Concurrent is the number of pending calls. The default is unlimited.
	Concurrent int `yaml:"concurrent" least:"1"`
}

// UpstreamLimits limit the use of an upstream.
type UpstreamLimits struct {
	// Rate is the number of calls per second of all callers. The default is unlimited.
	Rate float64 `yaml:"rate" reload:"live" least:"0.001"`
	// Burst is the number of calls that may come at once after a pause. The default is the rate.
	Burst int `yaml:"burst" reload:"live" least:"1"`
	// Concurrent is the number of pending calls of all callers. The default is unlimited.
	Concurrent int `yaml:"concurrent" reload:"live" least:"1"`
	// Processes is the number of processes or sessions for callers. The default is 100. The gateway
	// may need a few more to read the lists.
	Processes int `yaml:"processes" reload:"connect" least:"1"`
	// ProcessesPerCaller is the number of processes or sessions of one caller. The default is 32.
	ProcessesPerCaller int `yaml:"processesPerCaller" reload:"connect" least:"1"`
}

// The defaults of a Config.
const (
	DefaultAddress        = "127.0.0.1:8080"
	DefaultPath           = "/mcp"
	DefaultSessions       = 10_000
	DefaultSessionTimeout = 30 * time.Minute
	DefaultDrain          = 10 * time.Second
	DefaultIdle           = 10 * time.Minute
	DefaultProcesses      = 100
	DefaultPerCaller      = 32
)

// Upstream returns the upstream of a name, or nil.
func (c *Config) Upstream(name string) *Upstream {
	for _, u := range c.Upstreams {
		if u.Name == name {
			return u
		}
	}
	return nil
}

// LabelsElicitations reports whether elicitations say which upstream asks.
func (c *Config) LabelsElicitations() bool {
	enabled := 0
	for _, u := range c.Upstreams {
		if !u.Disabled {
			enabled++
		}
	}
	return c.LabelElicitations == "always" || c.LabelElicitations != "never" && enabled > 1
}

// HasLogins reports whether callers log in to an upstream that is not disabled.
func (c *Config) HasLogins() bool {
	for _, u := range c.Upstreams {
		if !u.Disabled && u.Credentials != nil && u.Credentials.Login != nil {
			return true
		}
	}
	return false
}

// MaxSessions returns Sessions or its default.
func (l *Listen) MaxSessions() int { return cmp.Or(l.Sessions, DefaultSessions) }
