package oauth

import (
	"bytes"
	"cmp"
	"container/list"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"mcpwire/auth"
	"mcpwire/internal/auth/egress"
	"mcpwire/internal/net/loopback"
)

// DPoPMode says whether tokens are bound to a key of the client
// (https://www.rfc-editor.org/rfc/rfc9449), which makes a stolen token useless.
type DPoPMode int

const (
	// DPoPAuto binds tokens if the MCP server asks for it and the authorization server supports it.
	DPoPAuto DPoPMode = iota
	// DPoPOn accepts only bound tokens.
	DPoPOn
	// DPoPOff does not bind tokens.
	DPoPOff
)

// ClientOptions are the options of [NewClient]. Nil and the zero value mean an [AuthorizationCode]
// client without a Prompter, with tokens in memory.
type ClientOptions struct {
	// Grant gets the first token. Nil means AuthorizationCode{}.
	Grant Grant
	// Store keeps tokens and registrations. Nil means a new memory store. See [NewFileStore].
	Store Store
	// Account separates the records of users who share a store.
	Account string

	// ClientID is the id of a client that is registered at the authorization server ClientIssuer,
	// which is then required.
	ClientID string
	// ClientSecret and ClientKey authenticate the client. At most one of them is set. ClientKey
	// also works with ClientIDMetadataURL.
	ClientSecret auth.Secret
	ClientKey    *ClientKey
	// ClientIssuer is the only accepted authorization server, compared as text, or
	// [TrustFirstIssuer].
	ClientIssuer string
	// TokenAuthMethod is how a client with ClientID authenticates at the token endpoint: "none",
	// "client_secret_basic", "client_secret_post" or "private_key_jwt". Empty means a method that
	// the authorization server supports.
	TokenAuthMethod string
	// ClientIDMetadataURL is the https URL of the client's metadata document. It is the client's id
	// if the authorization server supports that. See [Client.MetadataDocument]. Without it and
	// without ClientID, the client registers dynamically.
	ClientIDMetadataURL string
	// Registration describes the client in its metadata document and when it registers.
	Registration Registration

	// Scopes are requested in addition to the scopes that the server names when it rejects a
	// request, and in place of those in its metadata.
	Scopes []string
	// DPoP says whether tokens are bound to a key of the client.
	DPoP DPoPMode

	// MetadataTransport sends the requests for metadata, registrations and tokens. Nil means a
	// transport for addresses that servers choose: it connects only to public addresses and
	// MetadataNetworks, only with https, without a proxy, and limits time and size. Redirects are
	// not followed.
	MetadataTransport http.RoundTripper
	// MetadataNetworks are networks that are not public, such as that of an organization's own
	// authorization server, to which requests may go if MetadataTransport is nil.
	MetadataNetworks []netip.Prefix
	// MetadataTLS is the TLS configuration for these requests if MetadataTransport is nil. It may
	// be nil.
	MetadataTLS *tls.Config
	// MetadataOrigins are additional origins, such as "https://example.com", that resource_metadata
	// may be on.
	MetadataOrigins []string
	// RequireMetadata rejects servers without metadata that names an authorization server. By
	// default such a server is its own authorization server.
	RequireMetadata bool
	// AllowLoopbackHTTP allows http and loopback addresses. It is for development.
	AllowLoopbackHTTP bool

	// Logger receives the client's actions at level info and failed refreshes at level warn,
	// without secrets. Nil discards them.
	Logger *slog.Logger
}

// A Client gets, stores and renews the tokens for MCP servers. Many goroutines may use it at once.
// It starts no goroutines and need not be closed.
type Client struct {
	opts   ClientOptions
	fetch  *fetcher
	nonces nonceCache

	mu      sync.Mutex
	servers map[string]*serverAuth
}

// NewClient returns a Client, or an error if the options contradict each other. It copies opts,
// which may be nil.
func NewClient(opts *ClientOptions) (*Client, error) {
	var o ClientOptions
	if opts != nil {
		o = *opts
	}
	o.Scopes = unionScopes(nil, o.Scopes)
	o.Registration.RedirectURIs = slices.Clone(o.Registration.RedirectURIs)
	o.MetadataOrigins = slices.Clone(o.MetadataOrigins)
	o.Grant = cmp.Or[Grant](o.Grant, AuthorizationCode{})
	if o.Store == nil {
		o.Store = NewMemoryStore()
	}
	if o.MetadataTransport == nil {
		o.MetadataTransport = egress.NewTransport(&egress.Options{AllowLoopback: o.AllowLoopbackHTTP, AllowNetworks: slices.Clone(o.MetadataNetworks), TLS: o.MetadataTLS})
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("oauth: %w", err)
	}
	return &Client{
		opts:    o,
		fetch:   &fetcher{o.MetadataTransport, o.AllowLoopbackHTTP},
		servers: map[string]*serverAuth{},
	}, nil
}

// How a client authenticates at a token endpoint. Spec:
// https://www.iana.org/assignments/oauth-parameters/oauth-parameters.xhtml#token-endpoint-auth-method
const (
	// authNone sends the client id only.
	authNone = "none"
	// authSecretBasic sends the client's secret in the Authorization header.
	authSecretBasic = "client_secret_basic"
	// authSecretPost sends the client's secret in the body.
	authSecretPost = "client_secret_post"
	// authPrivateKeyJWT signs an assertion with the client's key: RFC 7523.
	authPrivateKeyJWT = "private_key_jwt"
)

func (o *ClientOptions) check() error {
	if o.ClientID != "" && o.ClientIssuer == "" {
		return errors.New("ClientID needs ClientIssuer: a client id and its secret belong to one authorization server")
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
	case "", authNone, authSecretBasic, authSecretPost, authPrivateKeyJWT:
	default:
		return fmt.Errorf("unknown TokenAuthMethod %q", o.TokenAuthMethod)
	}
	if err := o.Registration.check(); err != nil {
		return err
	}
	return o.Grant.check(o)
}

// Transport returns a transport that authorizes requests to the MCP server with the endpoint URL
// server, and sends them by base. Nil means [http.DefaultTransport]. Transports for the same server
// share its tokens.
//
// Only requests to the origin of server without an Authorization header get a token; others go to
// base unchanged. After a response with status 401, or 403 with the error insufficient_scope, the
// client gets a token, for which the user may have to log in, and sends the request again. It does
// that once for a 401, and again if another process had got the token. For more scopes it does that
// at most twice in ten minutes for one operation, and ten times for all: an operation is the method
// and the subject of the request's message, such as "tools/call weather", and all requests without
// a message are one operation. If the server still rejects the request, the response is returned
// unchanged. The body of any other response is not read.
//
// RoundTrip fails with an [*AuthorizationError] if the client gets no token, and with
// [ErrNotReplayable] if it gets one but the request has a body and no GetBody.
//
// server must be https, unless [ClientOptions.AllowLoopbackHTTP] is set and the host is a loopback
// host.
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

// Forget deletes the tokens for a server, also in the store, and resets its failures. The
// registration of the client stays.
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
		return nil, fmt.Errorf("oauth: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	name := u.String()
	s, ok := c.servers[name]
	if !ok {
		s = c.newServerAuth(u, name)
		if g, ok := c.opts.Grant.(TokenExchange); ok {
			s.subjects = &subjects{grant: g, byHash: map[[sha256.Size]byte]*list.Element{}}
		}
		c.servers[name] = s
	}
	return s, nil
}

func (c *Client) newServerAuth(u *url.URL, name string) *serverAuth {
	return &serverAuth{client: c, server: u, name: name, origin: originOf(u), renewal: make(chan struct{}, 1), stepUps: map[string]*stepUpState{}}
}

type withoutLoginKey struct{}

// WithoutLogin returns a context for requests that must not make a user log in, such as those of a
// monitor. They use a token that is available without the user, and otherwise fail with
// [ErrConsentRequired]. Such a failure affects only them: the next request has the user log in.
func WithoutLogin(ctx context.Context) context.Context {
	return context.WithValue(ctx, withoutLoginKey{}, true)
}

func loginAllowed(ctx context.Context) bool { return ctx.Value(withoutLoginKey{}) == nil }

// Errors that an [AuthorizationError] wraps. They say what can be done.
var (
	// ErrConsentRequired means that the user must log in, and cannot be asked or did not answer in
	// time.
	ErrConsentRequired = errors.New("the user must log in")
	// ErrDenied means that the user, or the authorization server on their behalf, denied access.
	ErrDenied = errors.New("access was denied")
	// ErrRefused means that the authorization server rejects this client, its credentials, its
	// scopes or its request.
	ErrRefused = errors.New("the authorization server refused")
	// ErrUntrusted means that a server's answer contradicts what it should be, and might be an
	// attack. The answer was not used.
	ErrUntrusted = errors.New("not to be trusted")
	// ErrUnregistered means that the client has no id for this authorization server and cannot get
	// one.
	ErrUnregistered = errors.New("no client id for this authorization server")
	// ErrUnreachable means that a server did not answer or is temporarily unavailable.
	ErrUnreachable = errors.New("not available")
	// ErrNotReplayable means that the client is now authorized, but cannot send the request again
	// because it has no GetBody.
	ErrNotReplayable = errors.New("authorized, but the request cannot be sent again")
)

// An AuthorizationError says why a client has no token. It wraps one of the errors above, a
// context's error, or the error of a [Store], a [Prompter] or a source of assertions. Its text has
// no tokens, codes, secrets or URLs with parameters.
type AuthorizationError struct {
	// Op is the failed operation: "discover", "register", "authorize", "token", "refresh" or
	// "store".
	Op string
	// Server is the MCP endpoint, with its query.
	Server string
	// Issuer is the authorization server, or "" if it is not known yet.
	Issuer string
	// Code and Description are the authorization server's error, for example "invalid_grant", or
	// "". Description has no control characters and at most 200 bytes.
	Code, Description string
	// Err is the cause. It is never nil.
	Err error
}

// Error implements error. It prints Server without user name, query and fragment, which may contain
// secrets.
func (e *AuthorizationError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "authorization for %s: %s: %v", withoutParameters(e.Server), e.Op, e.Err)
	if e.Code != "" {
		fmt.Fprintf(&b, " (%s)", e.Code)
	}
	if e.Description != "" {
		fmt.Fprintf(&b, ": %q", e.Description)
	}
	return b.String()
}

// Unwrap returns Err.
func (e *AuthorizationError) Unwrap() error { return e.Err }

// withoutParameters returns a URL for messages: only scheme, host and path, because the other parts
// may contain secrets.
func withoutParameters(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "a malformed URL"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
}

// oauthError is an error response of an authorization server. See
// https://www.rfc-editor.org/rfc/rfc6749#section-5.2.
type oauthError struct {
	code, description string
	kind              error
}

func (e *oauthError) Error() string { return fmt.Sprintf("%v: %s", e.kind, e.code) }
func (e *oauthError) Unwrap() error { return e.kind }

// newOAuthError returns the error for a server's code and description, which are untrusted text.
func newOAuthError(code, description string) *oauthError {
	e := &oauthError{code: printable(code, 64), description: printable(description, 200), kind: ErrRefused}
	switch code {
	case "access_denied":
		e.kind = ErrDenied
	case "login_required", "consent_required", "interaction_required", "account_selection_required":
		e.kind = ErrConsentRequired
	case "server_error", "temporarily_unavailable", "slow_down":
		e.kind = ErrUnreachable
	}
	return e
}

// printable returns the printable ASCII of a peer's text, at most limit bytes.
func printable(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r > 0x7e {
			return -1
		}
		return r
	}, s)
}

// authorizationError wraps err in an AuthorizationError, unless it is one.
func authorizationError(op, server, issuer string, err error) error {
	if _, ok := errors.AsType[*AuthorizationError](err); ok {
		return err
	}
	e := &AuthorizationError{Op: op, Server: server, Issuer: printable(issuer, 256), Err: err}
	if w, ok := errors.AsType[*oauthError](err); ok {
		e.Code, e.Description, e.Err = w.code, w.description, w.kind
	}
	return e
}

// isOAuthError reports whether err is an authorization server's error with one of these codes.
func isOAuthError(err error, codes ...string) bool {
	var code string
	if w, ok := errors.AsType[*oauthError](err); ok {
		code = w.code
	} else if a, ok := errors.AsType[*AuthorizationError](err); ok {
		code = a.Code
	}
	return slices.Contains(codes, code)
}

// Limits of requests for metadata and tokens. They apply to every transport; the default one
// has its own in addition.
const (
	clientFetchTimeout  = 10 * time.Second
	maxClientFetchBytes = 256 << 10
)

// A fetcher sends requests for metadata, registrations and tokens.
type fetcher struct {
	rt http.RoundTripper
	// loopback allows http to loopback hosts.
	loopback bool
}

// An httpResponse is a response with its whole body.
type httpResponse struct {
	status int
	header http.Header
	body   []byte
}

// ok reports whether the status means success. Some servers send 201 for a new token.
func (r *httpResponse) ok() bool { return r.status/100 == 2 }

// do sends a request and reads the response. It does not follow redirects.
func (f *fetcher) do(ctx context.Context, req *http.Request) (*httpResponse, error) {
	if err := f.checkURL(req.URL); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, clientFetchTimeout)
	defer cancel()
	resp, err := f.rt.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return nil, f.transportError(req, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxClientFetchBytes+1))
	if err != nil {
		return nil, f.transportError(req, err)
	}
	if len(body) > maxClientFetchBytes {
		return nil, fmt.Errorf("%w: %s responded with more than %d bytes", ErrUntrusted, req.URL.Host, maxClientFetchBytes)
	}
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		return nil, fmt.Errorf("%w: %s responded with a redirect", ErrUntrusted, req.URL.Host)
	}
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500 {
		return nil, fmt.Errorf("%w: %s responded with status %d", ErrUnreachable, req.URL.Host, resp.StatusCode)
	}
	return &httpResponse{resp.StatusCode, resp.Header, body}, nil
}

// transportError returns the error for a failed request. It is the caller's context error if that
// context has ended.
func (f *fetcher) transportError(req *http.Request, err error) error {
	if req.Context().Err() != nil {
		return req.Context().Err()
	}
	return fmt.Errorf("%w: %s: %w", ErrUnreachable, req.URL.Host, err)
}

// get fetches a document. found is false if it does not exist: for any status but 2xx.
func (f *fetcher) get(ctx context.Context, address string) (body []byte, found bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, false, fmt.Errorf("%w: malformed URL", ErrUntrusted)
	}
	req.Header.Set("Accept", "application/json")
	r, err := f.do(ctx, req)
	if err != nil {
		return nil, false, err
	}
	if !r.ok() {
		return nil, false, nil
	}
	// Some sites answer every path with their front page.
	if t := r.header.Get("Content-Type"); strings.HasPrefix(t, "text/html") {
		return nil, false, nil
	}
	return r.body, true, nil
}

// post sends a body and returns any response except redirects and those that mean an unavailable
// server.
func (f *fetcher) post(ctx context.Context, address, contentType string, body []byte, header http.Header) (*httpResponse, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%w: malformed URL", ErrUntrusted)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Accept", "application/json")
	return f.do(ctx, req)
}

// checkURL reports whether requests may go to a URL that somebody else chose.
func (f *fetcher) checkURL(u *url.URL) error {
	if u.Host == "" || u.Opaque != "" || u.User != nil || u.Fragment != "" {
		return fmt.Errorf("%w: the URL is not absolute, or has a password or a fragment", ErrUntrusted)
	}
	if u.Scheme == "https" || u.Scheme == "http" && f.loopback && loopback.IsHost(u.Hostname()) {
		return nil
	}
	return fmt.Errorf("%w: %s is not https", ErrUntrusted, printable(u.Scheme+"://"+u.Host, 200))
}

// parseEndpoint parses a URL to which requests may go, see checkURL. name is its name in errors.
func (f *fetcher) parseEndpoint(name, text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %s is not a URL", ErrUntrusted, name)
	}
	if err := f.checkURL(u); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return u, nil
}

// decodeObject decodes a JSON object. It drops the decoder's errors, which can quote secrets.
func decodeObject(body []byte, v any) error {
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return fmt.Errorf("%w: not a JSON object", ErrUntrusted)
	}
	if json.Unmarshal(body, v) != nil {
		return fmt.Errorf("%w: malformed JSON, or a member has the wrong type", ErrUntrusted)
	}
	return nil
}
