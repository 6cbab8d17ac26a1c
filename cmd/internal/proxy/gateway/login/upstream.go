package login

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"mcpwire/auth"
	"mcpwire/cmd/internal/proxy/gateway"
	"mcpwire/cmd/internal/proxy/gateway/config"
	"mcpwire/internal/net/challenge"
	"mcpwire/internal/net/loopback"
	"mcpwire/oauth"
)

// UpstreamOptions are the options of [Logins.Upstream].
type UpstreamOptions struct {
	// Name is the name of the upstream, and Server its endpoint.
	Name, Server string
	config.UpstreamLogin
	// ClientSecret is the text of Secret. It may be empty.
	ClientSecret auth.Secret
}

func (o *UpstreamOptions) equal(p *UpstreamOptions) bool {
	return o.Name == p.Name && o.Server == p.Server && reflect.DeepEqual(o.UpstreamLogin, p.UpstreamLogin) && o.ClientSecret.Reveal() == p.ClientSecret.Reveal()
}

// An Upstream is an upstream to which callers log in. It implements gateway.Login.
type Upstream struct {
	l    *Logins
	opts UpstreamOptions
	host string
	// redirectURI is where the authorization server sends browsers. Each upstream has another one,
	// so that the response of one authorization server cannot pass for that of another.
	redirectURI string
	// base sends requests to the upstream. It is that of the latest Transport.
	base atomic.Pointer[http.RoundTripper]
}

func newUpstream(l *Logins, o UpstreamOptions) (*Upstream, error) {
	u, err := url.Parse(o.Server)
	if err != nil || u.Host == "" {
		return nil, errors.New("the URL of the server is malformed")
	}
	up := &Upstream{l: l, opts: o, host: u.Scheme + "://" + u.Host, redirectURI: l.url + Path + "callback/" + o.Name}
	c, err := oauth.NewClient(up.clientOptions(oauth.NewMemoryStore(), ""))
	if err != nil {
		return nil, err
	}
	_, err = c.Transport(o.Server, nil) // checks the URL
	return up, err
}

// clientOptions returns the options of the OAuth client of one account.
func (u *Upstream) clientOptions(store oauth.Store, account string) *oauth.ClientOptions {
	server, _ := url.Parse(u.opts.Server)
	issuer, _ := url.Parse(u.opts.Issuer)
	local := loopback.IsHost(server.Hostname()) || issuer != nil && loopback.IsHost(issuer.Hostname())
	o := &oauth.ClientOptions{
		Store: store, Account: account, ClientIssuer: u.opts.Issuer, ClientID: u.opts.ID, ClientSecret: u.opts.ClientSecret, Scopes: u.opts.Scopes,
		Registration:      oauth.Registration{ClientName: "mcpwire gateway", RedirectURIs: []string{u.redirectURI}, ApplicationType: "web"},
		AllowLoopbackHTTP: local, Logger: u.l.opts.Logger.With("upstream", u.opts.Name),
	}
	if strings.HasPrefix(u.l.url, "http:") {
		o.Registration.ApplicationType = "native"
	} else if u.opts.ID == "" {
		o.ClientIDMetadataURL = u.l.url + Path + "client/" + u.opts.Name
	}
	if u.opts.Issuer != "" {
		// The configuration names both servers, which may be in a private network. Otherwise the
		// upstream chooses addresses, and the client's own transport checks them.
		o.MetadataTransport = u.l.opts.Transport
	}
	if u.opts.TokenEndpoint != "" {
		o.MetadataTransport = &endpoints{&u.opts, u.l.opts.Transport}
	}
	return o
}

// LoggedIn implements gateway.Login.
func (u *Upstream) LoggedIn(ctx context.Context) bool {
	a, err := u.l.accountOf(ctx, u)
	return err == nil && a.loggedIn(ctx)
}

// Refused implements gateway.Login.
func (u *Upstream) Refused(ctx context.Context) bool {
	a, err := u.l.accountOf(ctx, u)
	return err == nil && a.takeRefused()
}

// Pending implements gateway.Login.
func (u *Upstream) Pending(ctx context.Context, id string) *gateway.LoginPage {
	a, err := u.l.accountOf(ctx, u)
	if err != nil {
		return nil
	}
	u.l.look(a)
	return u.l.pendingPage(a, id)
}

// Page implements gateway.Login.
func (u *Upstream) Page(ctx context.Context) (*gateway.LoginPage, error) {
	a, err := u.l.accountOf(ctx, u)
	if err != nil {
		return nil, err
	}
	u.l.look(a)
	return u.l.pageFor(a)
}

// Transport returns a transport that sends requests to the upstream by base, with the token of the
// caller in their context. The request of a caller who has not logged in fails with an
// [*oauth.AuthorizationError] that wraps [oauth.ErrConsentRequired], and is not sent.
func (u *Upstream) Transport(base http.RoundTripper) http.RoundTripper {
	u.base.Store(&base)
	return &transport{u, base}
}

type transport struct {
	u    *Upstream
	base http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	a, err := t.u.l.accountOf(ctx, t.u)
	if err == nil && !a.loggedIn(ctx) {
		err = oauth.ErrConsentRequired
	}
	var rt http.RoundTripper
	if err == nil {
		rt, err = a.transport(&observer{a, t.base})
	}
	if err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, &oauth.AuthorizationError{Op: "authorize", Server: t.u.opts.Server, Err: err}
	}
	seen := &rejection{}
	resp, err := rt.RoundTrip(req.WithContext(context.WithValue(oauth.WithoutLogin(ctx), rejectionKey{}, seen)))
	if errors.Is(err, oauth.ErrConsentRequired) {
		a.reject(seen)
	}
	if resp != nil {
		resp.Request = req
	}
	return resp, err
}

// CloseIdleConnections closes the idle connections of base, for [http.Client.CloseIdleConnections].
func (t *transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// A rejection is what the upstream answered to a request that needs a login, and the hash of the
// token that came with it.
type rejection struct {
	status int
	header []string
	token  [32]byte
}

type rejectionKey struct{}

// An observer notes rejections.
type observer struct {
	a    *account
	base http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (o *observer) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := o.base.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden {
		return resp, err
	}
	if o.a.up.opts.TokenEndpoint != "" {
		hideMetadata(resp.Header)
	}
	if seen, ok := req.Context().Value(rejectionKey{}).(*rejection); ok {
		*seen = rejection{resp.StatusCode, slices.Clone(resp.Header.Values("WWW-Authenticate")), hashOf(req.Header.Get("Authorization"))}
	}
	return resp, nil
}

// hideMetadata removes the URL of metadata from a rejection, where the configuration has the
// endpoints.
func hideMetadata(h http.Header) {
	list, _ := challenge.Parse(h.Values("WWW-Authenticate"))
	h.Del("WWW-Authenticate")
	for _, c := range list {
		var params []string
		for _, name := range []string{"error", "scope"} {
			if v := c.Params[name]; v != "" && !strings.ContainsAny(v, "\"\\") {
				params = append(params, name+`="`+v+`"`)
			}
		}
		h.Add("WWW-Authenticate", strings.TrimSpace(c.Scheme+" "+strings.Join(params, ", ")))
	}
}

// endpoints is a transport that answers requests for the metadata of an upstream and its
// authorization server from the configuration.
type endpoints struct {
	opts *UpstreamOptions
	base http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (e *endpoints) RoundTrip(req *http.Request) (*http.Response, error) {
	var doc map[string]any
	server, issuer := parseURL(e.opts.Server), parseURL(e.opts.Issuer)
	switch at := req.URL.Path; {
	case req.Method != http.MethodGet:
	case strings.HasPrefix(at, "/.well-known/oauth-protected-resource") && originOf(req.URL) == originOf(server):
		doc = map[string]any{"resource": e.opts.Server, "authorization_servers": []string{e.opts.Issuer}}
	case strings.HasPrefix(at, "/.well-known/oauth-authorization-server") && originOf(req.URL) == originOf(issuer):
		doc = map[string]any{
			"issuer": e.opts.Issuer, "authorization_endpoint": e.opts.AuthorizationEndpoint, "token_endpoint": e.opts.TokenEndpoint,
			"code_challenge_methods_supported": []string{"S256"},
		}
	}
	if doc == nil {
		return e.base.RoundTrip(req)
	}
	text, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	return respond(req, http.StatusOK, http.Header{"Content-Type": {"application/json"}}, string(text)), nil
}

// parseURL returns a URL that was checked, or an empty one.
func parseURL(text string) *url.URL {
	u, err := url.Parse(text)
	if err != nil {
		return &url.URL{}
	}
	return u
}

func originOf(u *url.URL) string {
	return strings.TrimSuffix(strings.ToLower(u.Scheme+"://"+u.Host), map[string]string{"https": ":443", "http": ":80"}[strings.ToLower(u.Scheme)])
}

// respond returns a response that comes from no server.
func respond(req *http.Request, status int, h http.Header, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: req,
	}
}
