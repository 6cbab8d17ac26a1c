package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
)

// DPoPMode says whether tokens are bound to a key of the client's (https://www.rfc-editor.org/rfc/rfc9449), so that they are of no use to a thief.
type DPoPMode int

const (
	// DPoPAuto binds tokens if the MCP server asks for it and the authorization server supports it.
	DPoPAuto DPoPMode = iota
	// DPoPOn takes no other tokens.
	DPoPOn
	// DPoPOff binds none.
	DPoPOff
)

// ClientOptions are the options of [NewClient]. nil, and the zero value, are an [AuthorizationCode] client without anybody to ask, with tokens in memory.
type ClientOptions struct {
	// Grant is how the first token is got. nil means AuthorizationCode{}.
	Grant Grant
	// Store keeps tokens and registrations. nil means a new memory store. See [NewFileStore].
	Store Store
	// Account parts the records of users who share a store.
	Account string

	// ClientID is that of a client which is registered by hand, at the authorization server ClientIssuer and nowhere else. With it, ClientIssuer is required.
	ClientID string
	// ClientSecret and ClientKey authenticate the client; at most one of them is set. ClientKey also goes with ClientIDMetadataURL.
	ClientSecret Secret
	ClientKey    *ClientKey
	// ClientIssuer is the only authorization server that is accepted, compared as text, or [TrustFirstIssuer].
	ClientIssuer string
	// TokenAuthMethod is how a client with ClientID authenticates at the token endpoint. "" chooses among what the authorization server supports.
	TokenAuthMethod string
	// ClientIDMetadataURL is the https URL of the client's metadata document, which is its id where the authorization server supports that. See
	// [Client.MetadataDocument]. Without it and without ClientID the client registers by itself.
	ClientIDMetadataURL string
	Registration        Registration

	// Scopes are asked for besides those that the server names when it refuses a request, and instead of those that its metadata lists.
	Scopes []string
	DPoP   DPoPMode

	// MetadataTransport sends the requests for metadata, registrations and tokens. nil means a [GuardedTransport]. Its redirects are not followed.
	MetadataTransport http.RoundTripper
	// MetadataOrigins are origins, as "https://example.com", besides the server's own, that resource_metadata may be on.
	MetadataOrigins []string
	// RequireMetadata refuses servers without metadata that names an authorization server. Otherwise such a server is taken for its own authorization server.
	RequireMetadata bool
	// AllowLoopbackHTTP allows http, and servers on the machine itself. It is for development.
	AllowLoopbackHTTP bool

	// Logf gets a line for what a client does besides the caller's requests. There are no secrets in it. nil means silence.
	Logf func(format string, args ...any)
}

// A Client gets, keeps and renews the tokens for MCP servers. It may be used by many goroutines at once. It has no goroutines of its own and needs no Close.
type Client struct {
	opts   ClientOptions
	fetch  *fetcher
	nonces nonceCache

	mu      sync.Mutex
	servers map[string]*serverAuth
}

// NewClient returns a Client, or an error if the options contradict each other. It copies opts, which may be nil.
func NewClient(opts *ClientOptions) (*Client, error) {
	var o ClientOptions
	if opts != nil {
		o = *opts
	}
	o.Scopes = unionScopes(nil, o.Scopes)
	o.Registration.RedirectURIs = slices.Clone(o.Registration.RedirectURIs)
	o.MetadataOrigins = slices.Clone(o.MetadataOrigins)
	if o.Grant == nil {
		o.Grant = AuthorizationCode{}
	}
	if o.Store == nil {
		o.Store = NewMemoryStore()
	}
	if o.MetadataTransport == nil {
		o.MetadataTransport = GuardedTransport(&EgressOptions{AllowLoopback: o.AllowLoopbackHTTP})
	}
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("auth client: %w", err)
	}
	return &Client{
		opts:    o,
		fetch:   &fetcher{o.MetadataTransport, o.AllowLoopbackHTTP},
		servers: map[string]*serverAuth{},
	}, nil
}

func (o *ClientOptions) check() error {
	if o.ClientID != "" && o.ClientIssuer == "" {
		return errors.New("ClientID needs ClientIssuer: a client id, and its secret, are for one authorization server")
	}
	if o.ClientID == "" && (!o.ClientSecret.IsZero() || o.TokenAuthMethod != "") {
		return errors.New("ClientSecret and TokenAuthMethod need ClientID")
	}
	if !o.ClientSecret.IsZero() && o.ClientKey != nil {
		return errors.New("ClientSecret and ClientKey exclude each other")
	}
	if o.ClientKey != nil {
		if _, err := o.ClientKey.signer(); err != nil {
			return err
		}
		if o.ClientID == "" && o.ClientIDMetadataURL == "" {
			return errors.New("ClientKey needs ClientID or ClientIDMetadataURL")
		}
	}
	if o.ClientIDMetadataURL != "" {
		if err := checkMetadataURL(o.ClientIDMetadataURL); err != nil {
			return err
		}
	}
	switch o.TokenAuthMethod {
	case "", "none", "client_secret_basic", "client_secret_post", "private_key_jwt":
	default:
		return fmt.Errorf("unknown TokenAuthMethod %q", o.TokenAuthMethod)
	}
	if err := o.Registration.check(); err != nil {
		return err
	}
	return o.Grant.check(o)
}

// Transport returns a transport that authorizes requests to one MCP server, whose endpoint's URL is server, and sends them by base; nil means
// [http.DefaultTransport]. Transports for the same server share its tokens.
//
// Only requests to the origin of server get a token, and only if they have no Authorization of their own; others go to base as they are. A response with
// status 401, or 403 with the error insufficient_scope, makes the client get a token, for which the user may have to log in, and send the request again.
// That happens once for a 401, or as often as other processes had got the token meanwhile, and for more scopes at most twice in ten minutes for one operation,
// see [WithOperation], and ten times for all. A response that still says no is returned as it is. The body of any other response is not touched.
//
// RoundTrip fails with an [*AuthorizationError] if no token can be had, and with [ErrNotReplayable] if one can, but the request has a body and no GetBody.
//
// server must be https, unless [ClientOptions.AllowLoopbackHTTP] is set and it is on the machine itself.
func (c *Client) Transport(server string, base http.RoundTripper) (http.RoundTripper, error) {
	s, err := c.serverAuth(server)
	if err != nil {
		return nil, err
	}
	if base == nil {
		base = http.DefaultTransport
	}
	return &clientTransport{s, base}, nil
}

// Forget forgets the tokens for a server, in the store too, and whatever was denied there. The registration of the client stays.
func (c *Client) Forget(ctx context.Context, server string) error {
	s, err := c.serverAuth(server)
	if err != nil {
		return err
	}
	return s.forget(ctx)
}

// serverAuth returns the state for a server.
func (c *Client) serverAuth(server string) (*serverAuth, error) {
	u, err := canonicalServer(server)
	if err == nil {
		err = c.fetch.checkURL(u)
	}
	if err != nil {
		return nil, fmt.Errorf("auth client: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	name := u.String()
	s, ok := c.servers[name]
	if !ok {
		s = &serverAuth{client: c, server: u, name: name, origin: originOf(u), renewal: make(chan struct{}, 1), stepUps: map[string]*stepUpState{}}
		c.servers[name] = s
	}
	return s, nil
}

func (c *Client) logf(format string, args ...any) {
	if c.opts.Logf != nil {
		c.opts.Logf(format, args...)
	}
}

type operationKey struct{}

// WithOperation names the operation that requests with this context are part of, as "tools/call weather". How often a client asks for more scopes is
// counted for each operation of a server. The message that a request brings names it otherwise, by its method and what that is about; all that bring none are one operation.
func WithOperation(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, operationKey{}, name)
}

type withoutLoginKey struct{}

// WithoutLogin returns a context for requests that are not worth a user's time, as those of a monitor: they go with the token that there is, or that can be had without anybody's
// help, and fail with [ErrConsentRequired] if that is not enough. Such a failure counts for them only: the next request has the user log in.
func WithoutLogin(ctx context.Context) context.Context {
	return context.WithValue(ctx, withoutLoginKey{}, true)
}

func loginAllowed(ctx context.Context) bool { return ctx.Value(withoutLoginKey{}) == nil }
