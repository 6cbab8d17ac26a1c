package policy

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"mcpwire/auth"
	"mcpwire/cmd/internal/proxy/gateway"
	"mcpwire/cmd/internal/proxy/gateway/config"
	"mcpwire/oauth"
)

// A Source returns a secret from where the configuration says it is. It may be called often and
// must be quick.
type Source func() (auth.Secret, error)

// sourceTTL is how long a secret is used before its source is asked again.
const sourceTTL = time.Second

// Credentials are what the gateway authenticates with to one upstream over HTTP. At most one of
// Token, Client and Exchange is set, and without Headers for Authorization. Package config checks
// that.
type Credentials struct {
	// Headers are sent with each request.
	Headers map[string]Source
	// Token is sent as a bearer token.
	Token Source
	// Client gets a token for the gateway itself
	// (https://www.rfc-editor.org/rfc/rfc6749#section-4.4).
	// The secret is read once, and the upstream must name the issuer in its metadata.
	Client *config.ClientCredentials
	// Exchange gets a token for the caller (https://www.rfc-editor.org/rfc/rfc8693), with one of
	// Tokens. The upstream does not take part in the choice of the issuer.
	Exchange *config.Exchange
	Tokens   *CallerTokens
	// MetadataTransport sends the requests to authorization servers. Nil means a new
	// [http.Transport] with the proxy of the environment: the configuration names the authorization
	// servers, which may be in a private network.
	MetadataTransport http.RoundTripper
	// Logger receives what package oauth logs, and failures to read secrets. Nil discards it.
	Logger *slog.Logger
}

// Transport returns a transport that authenticates requests to the upstream with the endpoint URL
// server, and sends them by base. Requests to another origin are sent without credentials. With
// Exchange, the context of a request must have the principal of its caller.
//
// The secrets of Headers and Token are read again when they are older than a second. If that fails,
// the last ones are used.
func (c *Credentials) Transport(server string, base http.RoundTripper) (http.RoundTripper, error) {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" {
		return nil, errors.New("the URL of the server is malformed")
	}
	log := cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	h := &headerTransport{scheme: strings.ToLower(u.Scheme), host: strings.ToLower(u.Host), base: base}
	for name, source := range c.Headers {
		h.headers = append(h.headers, &header{name: name, source: source, log: log})
	}
	if c.Token != nil {
		h.headers = append(h.headers, &header{name: "Authorization", prefix: "Bearer ", source: c.Token, log: log})
	}
	for _, one := range h.headers {
		if _, err := one.value(); err != nil {
			return nil, err
		}
	}
	var next http.RoundTripper = h
	if len(h.headers) == 0 {
		next = base
	}
	if c.Client == nil && c.Exchange == nil {
		return next, nil
	}
	client, err := c.oauthClient(log)
	if err != nil {
		return nil, err
	}
	return client.Transport(server, next)
}

// oauthClient returns the client for Client or Exchange.
func (c *Credentials) oauthClient(log *slog.Logger) (*oauth.Client, error) {
	o := &oauth.ClientOptions{MetadataTransport: c.MetadataTransport, AllowLoopbackHTTP: true, Logger: log}
	if o.MetadataTransport == nil {
		o.MetadataTransport = &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: time.Minute}
	}
	var secret config.Reference
	if cc := c.Client; cc != nil {
		o.Grant, secret = oauth.ClientCredentials{}, cc.Secret
		o.ClientIssuer, o.ClientID, o.Scopes = cc.Issuer, cc.ID, cc.Scopes
	} else {
		ex := c.Exchange
		o.Grant, secret = oauth.TokenExchange{SubjectToken: c.Tokens.Of, Audience: ex.Audience, Resource: ex.Resource}, ex.Secret
		o.ClientIssuer, o.ClientID, o.Scopes = ex.Issuer, ex.ID, ex.Scopes
	}
	if !secret.IsZero() {
		var err error
		if o.ClientSecret, err = secret.Resolve(); err != nil {
			return nil, err
		}
	}
	return oauth.NewClient(o)
}

// A headerTransport adds headers to requests to one origin.
type headerTransport struct {
	scheme, host string
	headers      []*header
	base         http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *headerTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.ToLower(req.URL.Scheme) != t.scheme || strings.ToLower(req.URL.Host) != t.host {
		return t.base.RoundTrip(req)
	}
	out := req.Clone(req.Context())
	for _, h := range t.headers {
		value, err := h.value()
		if err != nil {
			if req.Body != nil {
				req.Body.Close()
			}
			return nil, err
		}
		out.Header.Set(h.name, value)
	}
	resp, err := t.base.RoundTrip(out)
	if resp != nil {
		resp.Request = req // without the secrets
	}
	return resp, err
}

// CloseIdleConnections closes the idle connections of base, for [http.Client.CloseIdleConnections].
func (t *headerTransport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// A header is a header whose value is secret.
type header struct {
	name, prefix string
	source       Source
	log          *slog.Logger

	mu     sync.Mutex
	secret auth.Secret
	until  time.Time
	failed bool
}

// value returns the current value. It fails only if there has never been one.
func (h *header) value() (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := time.Now(); h.until.IsZero() || !now.Before(h.until) {
		secret, err := h.source()
		if err == nil && strings.ContainsFunc(secret.Reveal(), func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			err = errors.New("it has characters that a header cannot contain")
		}
		switch {
		case err == nil:
			h.secret, h.failed = secret, false
		case h.secret.IsZero():
			return "", fmt.Errorf("header %s: %w", h.name, err)
		case !h.failed:
			h.failed = true
			h.log.Warn("a secret cannot be read again; the last one is used", "header", h.name, "error", err)
		}
		h.until = now.Add(sourceTTL)
	}
	return h.prefix + h.secret.Reveal(), nil
}

// Limits of CallerTokens.
const (
	maxCallerTokens     = 10_000
	maxCallerTokenBytes = 64 << 20
)

// CallerTokens remembers the latest token of each caller, to exchange it later: connections to
// upstreams outlive the requests of callers and their tokens. Callers with the same principal but
// other scopes are kept apart, so that none gets more than its own token allows. When all tokens
// with the scopes of a connection have expired, nobody with those scopes is left, and the latest
// token of the principal is used: a client that got more scopes keeps its session.
//
// The tokens are in memory only. The least recently used ones are forgotten first. The zero value
// is ready to use.
type CallerTokens struct {
	mu    sync.Mutex
	byKey map[string]*list.Element
	// latest holds the latest token by the id of the principal.
	latest map[string]*callerToken
	// recent holds each *callerToken, the most recent first.
	recent list.List
	bytes  int
}

type callerToken struct {
	// key is the id of the principal, with the scopes.
	key, principal string
	token          auth.Secret
	expires        time.Time
}

// size returns the bytes that an entry counts for.
func (t *callerToken) size() int { return len(t.key) + len(t.token.Reveal()) }

// Verifier returns a verifier that remembers the tokens that v accepts. The guard in front of the
// gateway must have it.
func (c *CallerTokens) Verifier(v auth.Verifier) auth.Verifier { return &rememberingVerifier{v, c} }

type rememberingVerifier struct {
	auth.Verifier
	tokens *CallerTokens
}

// Verify implements auth.Verifier.
func (v *rememberingVerifier) Verify(ctx context.Context, token string) (*auth.Principal, error) {
	p, err := v.Verifier.Verify(ctx, token)
	if err == nil && p != nil {
		v.tokens.remember(p, token)
	}
	return p, err
}

func (c *CallerTokens) remember(p *auth.Principal, token string) {
	principal, key := p.ID(), gateway.CredentialID(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byKey[key]; ok {
		c.recent.MoveToFront(e)
		t := e.Value.(*callerToken)
		t.expires = p.Expires
		c.latest[principal] = t
		if t.token.Reveal() == token {
			return
		}
		c.bytes -= t.size()
		t.token = auth.NewSecret(token)
		c.bytes += t.size()
	} else {
		if c.byKey == nil {
			c.byKey, c.latest = map[string]*list.Element{}, map[string]*callerToken{}
		}
		t := &callerToken{key, principal, auth.NewSecret(token), p.Expires}
		c.byKey[key] = c.recent.PushFront(t)
		c.latest[principal] = t
		c.bytes += t.size()
	}
	for c.recent.Len() > maxCallerTokens || c.bytes > maxCallerTokenBytes {
		t := c.recent.Remove(c.recent.Back()).(*callerToken)
		delete(c.byKey, t.key)
		if c.latest[t.principal] == t {
			delete(c.latest, t.principal)
		}
		c.bytes -= t.size()
	}
}

// Of returns the token of the caller of ctx. The error says what is missing.
func (c *CallerTokens) Of(ctx context.Context) (auth.Secret, error) {
	p := auth.PrincipalOf(ctx)
	if p == nil {
		return auth.Secret{}, errors.New("the caller has no token")
	}
	principal, now := p.ID(), time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.latest[principal]
	if e, ok := c.byKey[gateway.CredentialID(p)]; ok {
		c.recent.MoveToFront(e)
		if own := e.Value.(*callerToken); own.valid(now) || t == nil {
			t = own
		}
	}
	switch {
	case t == nil:
		return auth.Secret{}, errors.New("the caller's token is no longer known; it is with the caller's next request")
	case !t.valid(now):
		return auth.Secret{}, auth.ErrExpired
	}
	return t.token, nil
}

// valid reports whether the token has not expired.
func (t *callerToken) valid(now time.Time) bool { return t.expires.IsZero() || now.Before(t.expires) }
