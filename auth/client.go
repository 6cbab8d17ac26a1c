package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
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

// What an [AuthorizationError] wraps tells what can be done about it.
var (
	// ErrConsentRequired: the user has to log in, and there is nobody to ask, or they did not answer in time.
	ErrConsentRequired = errors.New("the user has to log in")
	// ErrDenied: the user, or the authorization server in their name, said no.
	ErrDenied = errors.New("access was denied")
	// ErrRefused: the authorization server refuses this client, its credentials, its scopes or its request.
	ErrRefused = errors.New("the authorization server refuses")
	// ErrUntrusted: what a server said contradicts what it should have said, and might be an attack. Nothing of it was used.
	ErrUntrusted = errors.New("not to be trusted")
	// ErrUnregistered: there is no client id for this authorization server and no way to get one.
	ErrUnregistered = errors.New("no client id for this authorization server")
	// ErrUnreachable: a server did not answer, or said that it cannot at the moment. It may later.
	ErrUnreachable = errors.New("not available")
	// ErrNotReplayable: the client is authorized now, but the request whose response asked for it cannot be sent again because it has no GetBody.
	ErrNotReplayable = errors.New("authorized, but the request cannot be sent again")
)

// An AuthorizationError says why a client has no token. It wraps one of the errors above, or a context's error, or what a [Store], a [Prompter] or a
// source of assertions failed with. Its text has no tokens, codes, secrets or URLs with parameters.
type AuthorizationError struct {
	// Op is what failed: "discover", "register", "authorize", "token", "refresh" or "store".
	Op string
	// Server is the MCP endpoint.
	Server string
	// Issuer is the authorization server, or "" if none is known yet.
	Issuer string
	// Code and Description are what the authorization server said, as "invalid_grant"; "" if it said nothing. Description is its own words, without control
	// characters and cut off at 200 bytes.
	Code, Description string
	// Err is never nil.
	Err error
}

// Error implements error.
func (e *AuthorizationError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "authorization for %s: %s: %v", e.Server, e.Op, e.Err)
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

// oauthError is an error that an authorization server answered with. See https://www.rfc-editor.org/rfc/rfc6749#section-5.2.
type oauthError struct {
	code, description string
	kind              error
}

func (e *oauthError) Error() string { return fmt.Sprintf("%v: %s", e.kind, e.code) }
func (e *oauthError) Unwrap() error { return e.kind }

// newOAuthError makes an error of what a server said, in which everything is a peer's text.
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

// authorizationError makes an AuthorizationError of an error, unless it is one.
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
	for _, c := range codes {
		if code == c {
			return true
		}
	}
	return false
}

// Limits on requests for metadata and tokens. They hold with every transport; a [GuardedTransport] has its own.
const (
	clientFetchTimeout  = 10 * time.Second
	maxClientFetchBytes = 256 << 10
)

// A fetcher sends the requests that authorization takes.
type fetcher struct {
	rt http.RoundTripper
	// loopback allows http to the machine itself.
	loopback bool
}

// A reply is a response that was read to its end.
type httpResponse struct {
	status int
	header http.Header
	body   []byte
}

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
		return nil, fmt.Errorf("%w: %s answered with more than %d bytes", ErrUntrusted, req.URL.Host, maxClientFetchBytes)
	}
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		return nil, fmt.Errorf("%w: %s answered with a redirect", ErrUntrusted, req.URL.Host)
	}
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500 {
		return nil, fmt.Errorf("%w: %s answered with status %d", ErrUnreachable, req.URL.Host, resp.StatusCode)
	}
	return &httpResponse{resp.StatusCode, resp.Header, body}, nil
}

// transportError describes an error of the transport. The caller's own context, if it has ended, is the reason.
func (f *fetcher) transportError(req *http.Request, err error) error {
	if req.Context().Err() != nil {
		return req.Context().Err()
	}
	return fmt.Errorf("%w: %s: %w", ErrUnreachable, req.URL.Host, err)
}

// get asks for a document. A status of 4xx means that there is none: found is false then.
func (f *fetcher) get(ctx context.Context, address string) (body []byte, found bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, false, fmt.Errorf("%w: a malformed URL", ErrUntrusted)
	}
	req.Header.Set("Accept", "application/json")
	r, err := f.do(ctx, req)
	if err != nil {
		return nil, false, err
	}
	if r.status != http.StatusOK {
		return nil, false, nil
	}
	// Sites that answer every path with their front page have no metadata.
	if t := r.header.Get("Content-Type"); strings.HasPrefix(t, "text/html") {
		return nil, false, nil
	}
	return r.body, true, nil
}

// post sends a body and returns whatever is answered, but for redirects and what says that the server is not available.
func (f *fetcher) post(ctx context.Context, address, contentType string, body []byte, header http.Header) (*httpResponse, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%w: a malformed URL", ErrUntrusted)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Accept", "application/json")
	return f.do(ctx, req)
}

// checkURL says whether requests may go to a URL that somebody else chose.
func (f *fetcher) checkURL(u *url.URL) error {
	if u.Host == "" || u.Opaque != "" || u.User != nil || u.Fragment != "" {
		return fmt.Errorf("%w: a URL that is not absolute, or has a password or a fragment", ErrUntrusted)
	}
	if u.Scheme == "https" || u.Scheme == "http" && f.loopback && isLoopbackHost(u.Hostname()) {
		return nil
	}
	return fmt.Errorf("%w: %s is not https", ErrUntrusted, printable(u.Scheme+"://"+u.Host, 200))
}

// checkEndpoint is checkURL for text.
func (f *fetcher) checkEndpoint(name, text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return fmt.Errorf("%w: %s is not a URL", ErrUntrusted, name)
	}
	if err := f.checkURL(u); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// decodeObject decodes a JSON object. Errors of the decoder are not passed on: they can quote what is secret.
func decodeObject(body []byte, v any) error {
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return fmt.Errorf("%w: not a JSON object", ErrUntrusted)
	}
	if json.Unmarshal(body, v) != nil {
		return fmt.Errorf("%w: malformed JSON, or members of other types than they should be", ErrUntrusted)
	}
	return nil
}
