package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// pendingLifetime is how long an authorization may take from its beginning to the answer.
const pendingLifetime = 10 * time.Minute

// AuthorizationCode is for clients that act for a user, who logs in with a browser. PKCE with S256 is always used; an authorization server that does not
// say that it supports it is refused. See https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization.
type AuthorizationCode struct {
	// Redirector brings the user to the authorization server and back, as [Loopback] and [Manual] do. If it is nil, stored tokens are used and refreshed,
	// and a request that would need the user fails with [ErrConsentRequired].
	Redirector Redirector
	// NoOfflineAccess stops the client from asking for offline_access, and with that for a refresh token, where the authorization server offers it.
	NoOfflineAccess bool
	// Wait, unless it is nil, is called when requests begin to wait for the user: own if this client is about to ask, not if another process does that shares its
	// [LoginLocker]. What it returns is called when they wait no more. It may be called for several servers at once.
	Wait func(own bool) (over func())
}

// wait calls Wait, if it is there.
func (g AuthorizationCode) wait(own bool) (over func()) {
	if g.Wait == nil {
		return func() {}
	}
	return g.Wait(own)
}

// A Redirector brings users to authorization servers and their answers back.
type Redirector interface {
	// Prepare returns what one authorization takes. known are the redirect URIs that the client is registered with, of which one is to be used, if need be
	// with another port; it is empty if the client will be registered with the one that is returned.
	Prepare(ctx context.Context, known []string) (Redirection, error)
}

// A Redirection is one authorization.
type Redirection interface {
	// URI is the redirect URI.
	URI() string
	// Authorize sends the user to a URL, which is http or https, and returns the URL that the user was sent back to, with its query. It is called once.
	Authorize(ctx context.Context, authorizeURL string) (callbackURL string, err error)
	// Close is called once, at the end.
	Close() error
}

// Manual is a [Redirector] for users who have no browser on this machine, and for tests.
type Manual struct {
	// RedirectURI is https, or http on the machine itself. Nobody has to listen there if the user copies the URL out of the browser.
	RedirectURI string
	// Visit sends the user to a URL and returns the one that the user was sent back to.
	Visit func(ctx context.Context, authorizeURL string) (callbackURL string, err error)
}

// Prepare implements [Redirector].
func (m Manual) Prepare(context.Context, []string) (Redirection, error) {
	if m.Visit == nil {
		return nil, errors.New("Manual has no Visit")
	}
	return manualRedirection{m}, nil
}

type manualRedirection struct{ m Manual }

func (r manualRedirection) URI() string  { return r.m.RedirectURI }
func (r manualRedirection) Close() error { return nil }
func (r manualRedirection) Authorize(ctx context.Context, u string) (string, error) {
	return r.m.Visit(ctx, u)
}

func (g AuthorizationCode) check(*ClientOptions) error { return nil }

func (g AuthorizationCode) tokens(ctx context.Context, f *flow) (_ *Tokens, _ string, err error) {
	if err := f.d.as.checkPKCE(); err != nil {
		return nil, "", err
	}
	if g.Redirector == nil {
		return nil, "", ErrConsentRequired
	}
	cred, err := f.c.configured(f.d.as)
	if cred == nil && err == nil {
		cred, err = f.c.registered(ctx, f.d.issuer)
	}
	if err != nil {
		return nil, "", err
	}
	var known []string
	if cred != nil {
		known = slices.Clone(cred.redirectURIs)
	}
	red, err := g.Redirector.Prepare(ctx, known)
	if err != nil {
		return nil, "", fmt.Errorf("preparing to ask the user: %w", err)
	}
	defer func() { err = errors.Join(err, red.Close()) }()
	if cred, err = f.client(ctx, cred, red.URI()); err != nil {
		return nil, "", err
	}
	f.addOffline(g.NoOfflineAccess)
	p := newPending(f, cred, red.URI())
	address, err := p.url(f)
	if err != nil {
		return nil, "", err
	}
	over := g.wait(true)
	code, err := p.ask(ctx, red, address)
	over()
	if err != nil {
		return nil, "", err
	}
	form := url.Values{
		"grant_type":    {"authorization_code"},
		"code":          {code},
		"redirect_uri":  {p.redirectURI},
		"code_verifier": {p.verifier},
		"resource":      {f.d.resource},
	}
	t, err := f.request(ctx, form, cred)
	if err != nil {
		return nil, "", f.c.forgetClient(ctx, f.d.issuer, cred, err)
	}
	t.Requested = f.scopes
	if t.Granted == nil {
		t.Granted = f.scopes
	}
	return t, cred.id, nil
}

// client returns credentials that the redirect URI is registered with.
func (f *flow) client(ctx context.Context, cred *credentials, redirectURI string) (*credentials, error) {
	if err := checkRedirectURI(redirectURI); err != nil {
		return nil, err
	}
	if cred != nil && slices.ContainsFunc(cred.redirectURIs, func(known string) bool { return sameRedirect(known, redirectURI) }) {
		return cred, nil
	}
	if cred != nil && !cred.dynamic {
		return nil, fmt.Errorf("the redirect URI %q is not in Registration.RedirectURIs", redirectURI)
	}
	return f.c.register(ctx, f.d, redirectURI)
}

// forgetClient forgets a registration that the authorization server does not know any more, so that the next attempt makes a new one. It returns err.
func (c *Client) forgetClient(ctx context.Context, issuer string, cred *credentials, err error) error {
	if cred.dynamic && isWire(err, "invalid_client", "unauthorized_client") {
		return errors.Join(err, c.opts.Store.Delete(ctx, c.clientKey(issuer)))
	}
	return err
}

const offlineAccess = "offline_access"

// addOffline asks for a refresh token if the authorization server has a scope for that, and does not ask for it if it has not. A request without scopes
// gets no scope thereby: it would no longer be for the default.
func (f *flow) addOffline(not bool) {
	offered := slices.Contains(f.d.as.ScopesSupported, offlineAccess)
	switch {
	case offered && !not && len(f.scopes) > 0:
		f.scopes = unionScopes(f.scopes, []string{offlineAccess})
	case not || !offered && f.d.as.ScopesSupported != nil:
		f.scopes = withoutScope(f.scopes, offlineAccess)
	}
}

func withoutScope(scopes []string, scope string) []string {
	return slices.DeleteFunc(slices.Clone(scopes), func(s string) bool { return s == scope })
}

// pending is what must be remembered of an authorization until its answer comes: it is made before the user is sent away, and used once.
type pending struct {
	issuer, clientID, redirectURI string
	state, verifier               string
	// issAdvertised is set if an answer without iss is not the authorization server's.
	issAdvertised bool
	deadline      time.Time
}

func newPending(f *flow, cred *credentials, redirectURI string) *pending {
	var verifier [32]byte
	rand.Read(verifier[:])
	return &pending{
		issuer:        f.d.issuer,
		clientID:      cred.id,
		redirectURI:   redirectURI,
		state:         rand.Text(),
		verifier:      base64.RawURLEncoding.EncodeToString(verifier[:]),
		issAdvertised: f.d.as.IssInResponse,
		deadline:      time.Now().Add(pendingLifetime),
	}
}

// url returns where the user is to go. It is made of a parsed URL, has a scheme of the web and a host, and so begins with neither a dash nor anything else
// that means something to a program that is given it.
func (p *pending) url(f *flow) (string, error) {
	u, err := url.Parse(f.d.as.AuthorizationEndpoint)
	if err != nil {
		return "", fmt.Errorf("%w: the authorization endpoint is not a URL", ErrUntrusted)
	}
	if err := f.c.fetch.checkURL(u); err != nil {
		return "", fmt.Errorf("authorization_endpoint: %w", err)
	}
	challenge := sha256.Sum256([]byte(p.verifier))
	q := u.Query()
	q.Set("response_type", "code")
	q.Set("client_id", p.clientID)
	q.Set("redirect_uri", p.redirectURI)
	q.Set("state", p.state)
	q.Set("code_challenge", base64.RawURLEncoding.EncodeToString(challenge[:]))
	q.Set("code_challenge_method", "S256")
	q.Set("resource", f.d.resource)
	if len(f.scopes) > 0 {
		q.Set("scope", strings.Join(f.scopes, " "))
	}
	if slices.Contains(f.scopes, offlineAccess) { // or OpenID providers leave that scope out: https://openid.net/specs/openid-connect-core-1_0.html#OfflineAccess
		q.Set("prompt", "consent")
	}
	if f.proof != nil {
		q.Set("dpop_jkt", f.proof.thumbprint)
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// ask sends the user away and returns the code of the answer.
func (p *pending) ask(ctx context.Context, red Redirection, address string) (string, error) {
	within, cancel := context.WithDeadline(ctx, p.deadline)
	defer cancel()
	callback, err := red.Authorize(within, address)
	if err != nil {
		if within.Err() != nil && ctx.Err() == nil {
			return "", fmt.Errorf("%w: no answer within %v", ErrConsentRequired, pendingLifetime)
		}
		return "", fmt.Errorf("asking the user: %w", err)
	}
	return p.code(callback)
}

// code checks an answer and returns its code. Nothing of the answer is used before state and iss are what they must be.
// See https://www.rfc-editor.org/rfc/rfc9207#section-2.4.
func (p *pending) code(callback string) (string, error) {
	u, err := url.Parse(callback)
	if err != nil {
		return "", fmt.Errorf("%w: the answer is not a URL", ErrUntrusted)
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil || !atRedirect(u, p.redirectURI) {
		return "", fmt.Errorf("%w: the answer came to another URL than the redirect URI, or its query is malformed", ErrUntrusted)
	}
	for _, name := range []string{"state", "iss", "code", "error"} {
		if len(q[name]) > 1 {
			return "", fmt.Errorf("%w: the answer has %s twice", ErrUntrusted, name)
		}
	}
	if subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(p.state)) != 1 {
		return "", fmt.Errorf("%w: the answer is to another question: its state differs", ErrUntrusted)
	}
	switch {
	case q.Has("iss") && q.Get("iss") != p.issuer:
		return "", fmt.Errorf("%w: the answer is another authorization server's: its iss differs", ErrUntrusted)
	case !q.Has("iss") && p.issAdvertised:
		return "", fmt.Errorf("%w: the answer has no iss, which the authorization server said it would", ErrUntrusted)
	case q.Get("error") != "":
		return "", newWireError(q.Get("error"), q.Get("error_description"))
	case q.Get("code") == "":
		return "", fmt.Errorf("%w: the answer has neither a code nor an error", ErrUntrusted)
	}
	return q.Get("code"), nil
}

// atRedirect reports whether u is the redirect URI but for its query.
func atRedirect(u *url.URL, redirectURI string) bool {
	r, err := url.Parse(redirectURI)
	return err == nil && u.Scheme == r.Scheme && u.Host == r.Host && strings.TrimPrefix(u.EscapedPath(), "/") == strings.TrimPrefix(r.EscapedPath(), "/")
}
