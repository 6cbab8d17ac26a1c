package oauth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/internal/auth/resumable"
	"mcpwire/internal/base/defaults"
	"mcpwire/internal/base/userwait"
	"mcpwire/internal/net/loopback"
)

// authorizationTimeout limits the time that the user may take for one authorization.
const authorizationTimeout = 10 * time.Minute

// AuthorizationCode is a grant for clients that act for a user, who logs in with a browser. It
// always uses PKCE with S256, and refuses an authorization server that does not advertise it. See
// https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization.
type AuthorizationCode struct {
	// Prompter takes the user to the authorization server and back, as [LoopbackPrompter] and
	// [ManualPrompter] do. If it is nil, stored tokens are used and refreshed, and a request that
	// needs the user fails with [ErrConsentRequired].
	Prompter Prompter
	// NoOfflineAccess stops the client from requesting the scope offline_access, and so a refresh
	// token.
	NoOfflineAccess bool
	// OnWait, if not nil, is called when requests start to wait for the user. own is false if
	// another process that uses the same file, see [NewFileStore], asks the user. over is called
	// when the wait ends. OnWait may be called for several servers at once.
	OnWait func(own bool) (over func())
}

// notifyWait calls OnWait if it is set, and stops the client's timeout for the request of ctx.
func (g AuthorizationCode) notifyWait(ctx context.Context, own bool) (over func()) {
	end := userwait.Begin(ctx)
	if g.OnWait == nil {
		return end
	}
	endNotice := g.OnWait(own)
	return func() {
		endNotice()
		end()
	}
}

// A Prompter takes users to authorization servers and returns their answers.
type Prompter interface {
	// Prepare prepares one authorization. known are the registered redirect URIs of the client; the
	// prompt uses one of them, with another port if necessary. If known is empty, the client
	// registers the URI of the returned Prompt.
	Prepare(ctx context.Context, known []string) (Prompt, error)
}

// A Prompt is one authorization.
type Prompt interface {
	// URI returns the redirect URI.
	URI() string
	// Authorize sends the user to an http or https URL, and returns the URL, with its query, that
	// the user was redirected to. It is called once.
	Authorize(ctx context.Context, authorizeURL string) (callbackURL string, err error)
	// Close is called once, at the end. Its error is logged, and fails no authorization.
	Close() error
}

// ManualPrompter is a [Prompter] for users without a browser on this machine, and for tests.
type ManualPrompter struct {
	// RedirectURI is https, or http on a loopback host. It needs no listener if the user copies the
	// URL from the browser.
	RedirectURI string
	// Visit sends the user to a URL and returns the URL that the user was redirected to.
	Visit func(ctx context.Context, authorizeURL string) (callbackURL string, err error)
}

// Prepare implements [Prompter].
func (m ManualPrompter) Prepare(context.Context, []string) (Prompt, error) {
	if m.Visit == nil {
		return nil, errors.New("oauth.ManualPrompter: Visit is nil")
	}
	return manualPrompt{m}, nil
}

type manualPrompt struct{ opts ManualPrompter }

func (mp manualPrompt) URI() string  { return mp.opts.RedirectURI }
func (mp manualPrompt) Close() error { return nil }
func (mp manualPrompt) Authorize(ctx context.Context, u string) (string, error) {
	return mp.opts.Visit(ctx, u)
}

func (g AuthorizationCode) check(*ClientOptions) error { return nil }

func (g AuthorizationCode) tokens(ctx context.Context, f *flow) (*Tokens, string, error) {
	if err := f.discovery.as.checkPKCE(); err != nil {
		return nil, "", err
	}
	if g.Prompter == nil {
		return nil, "", ErrConsentRequired
	}
	cred, err := f.client.configuredCredentials(f.discovery.as)
	if cred == nil && err == nil {
		cred, err = f.client.registeredCredentials(ctx, f.discovery.issuer)
	}
	if err != nil {
		return nil, "", err
	}
	var known []string
	if cred != nil {
		known = slices.Clone(cred.redirectURIs)
	}
	prompt, err := g.Prompter.Prepare(ctx, known)
	if err != nil {
		return nil, "", fmt.Errorf("prepare to ask the user: %w", err)
	}
	defer func() {
		if err := prompt.Close(); err != nil { // this makes neither tokens nor a refusal invalid
			f.client.opts.Logger.WarnContext(ctx, "prompt not closed", "error", err)
		}
	}()
	if cred, err = f.credentialsFor(ctx, cred, prompt.URI()); err != nil {
		return nil, "", err
	}
	f.adjustOfflineAccess(g.NoOfflineAccess)
	p := newAuthorizationRequest(f, cred, prompt.URI())
	if r, ok := prompt.(resumable.Prompt); ok {
		if p.state, p.verifier = r.Secrets(); len(p.state) < minState || len(p.verifier) < minVerifier {
			return nil, "", errors.New("the prompt has chosen a state or a verifier that is too short")
		}
		if f.proof, err = chooseProofKey(f.proof, r.ProofKey); err != nil {
			return nil, "", fmt.Errorf("the key that the prompt has chosen: %w", err)
		}
	}
	address, err := p.authorizeURL()
	if err != nil {
		return nil, "", err
	}
	endWait := g.notifyWait(ctx, true)
	code, err := p.prompt(ctx, prompt, address)
	endWait()
	if err != nil {
		return nil, "", err
	}
	form := url.Values{
		"grant_type":    {"authorization_code"},
		"code":          {code},
		"redirect_uri":  {p.redirectURI},
		"code_verifier": {p.verifier},
		"resource":      {f.discovery.resource},
	}
	t, err := f.request(ctx, form, cred)
	if err != nil {
		return nil, "", f.client.forgetClient(ctx, f.discovery.issuer, cred, err)
	}
	t.Requested = f.scopes
	if t.Granted == nil {
		t.Granted = f.scopes
	}
	return t, cred.id, nil
}

// credentialsFor returns credentials for which the redirect URI is registered.
func (f *flow) credentialsFor(ctx context.Context, cred *credentials, redirectURI string) (*credentials, error) {
	if err := checkRedirectURI(redirectURI); err != nil {
		return nil, err
	}
	if cred != nil && slices.ContainsFunc(cred.redirectURIs, func(known string) bool { return sameRedirect(known, redirectURI) }) {
		return cred, nil
	}
	if cred != nil && !cred.dynamic {
		return nil, fmt.Errorf("the redirect URI %q is not in Registration.RedirectURIs", redirectURI)
	}
	return f.client.register(ctx, f.discovery, redirectURI)
}

// forgetClient deletes a registration that the authorization server no longer knows, so that the
// next attempt registers again. It returns err.
func (c *Client) forgetClient(ctx context.Context, issuer string, cred *credentials, err error) error {
	if cred.dynamic && isOAuthError(err, "invalid_client", "unauthorized_client") {
		return errors.Join(err, c.opts.Store.Delete(ctx, c.registrationKey(issuer)))
	}
	return err
}

const offlineAccess = "offline_access"

// adjustOfflineAccess adds or removes the scope for refresh tokens, depending on what the
// authorization server supports. It does not add it to a request without scopes, which asks for the
// default scopes.
func (f *flow) adjustOfflineAccess(not bool) {
	offered := slices.Contains(f.discovery.as.ScopesSupported, offlineAccess)
	switch {
	case offered && !not && len(f.scopes) > 0:
		f.scopes = unionScopes(f.scopes, []string{offlineAccess})
	case not || !offered && f.discovery.as.ScopesSupported != nil:
		f.scopes = withoutScope(f.scopes, offlineAccess)
	}
}

func withoutScope(scopes []string, scope string) []string {
	return slices.DeleteFunc(slices.Clone(scopes), func(s string) bool { return s == scope })
}

// authorizationRequest is the state of an authorization until its callback. It is made before the
// user is sent away, and used once.
type authorizationRequest struct {
	*flow
	clientID, redirectURI string
	state, verifier       string
}

const (
	// minState is the least number of bytes of a state, and minVerifier that of a verifier
	// (https://www.rfc-editor.org/rfc/rfc7636#section-4.1).
	minState, minVerifier = 22, 43
)

func newAuthorizationRequest(f *flow, cred *credentials, redirectURI string) *authorizationRequest {
	var verifier [32]byte
	rand.Read(verifier[:])
	return &authorizationRequest{
		flow:        f,
		clientID:    cred.id,
		redirectURI: redirectURI,
		state:       rand.Text(),
		verifier:    base64.RawURLEncoding.EncodeToString(verifier[:]),
	}
}

// authorizeURL returns the URL to send the user to. It is built from a parsed URL with the scheme
// http or https and a host, so it never starts with a dash or another character that is special to
// a program that receives it.
func (r *authorizationRequest) authorizeURL() (string, error) {
	u, err := r.client.fetch.parseEndpoint("authorization_endpoint", r.discovery.as.AuthorizationEndpoint)
	if err != nil {
		return "", err
	}
	challenge := sha256.Sum256([]byte(r.verifier))
	q := u.Query()
	q.Set("response_type", "code")
	q.Set("client_id", r.clientID)
	q.Set("redirect_uri", r.redirectURI)
	q.Set("state", r.state)
	q.Set("code_challenge", base64.RawURLEncoding.EncodeToString(challenge[:]))
	q.Set("code_challenge_method", "S256")
	q.Set("resource", r.discovery.resource)
	if len(r.scopes) > 0 {
		q.Set("scope", strings.Join(r.scopes, " "))
	}
	// OpenID providers drop the scope without this:
	// https://openid.net/specs/openid-connect-core-1_0.html#OfflineAccess
	if slices.Contains(r.scopes, offlineAccess) {
		q.Set("prompt", "consent")
	}
	if r.proof != nil {
		q.Set("dpop_jkt", r.proof.thumbprint)
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// prompt sends the user away and returns the code from the callback.
func (r *authorizationRequest) prompt(ctx context.Context, prompt Prompt, address string) (string, error) {
	within, cancel := context.WithTimeout(ctx, authorizationTimeout)
	defer cancel()
	callback, err := prompt.Authorize(within, address)
	if err != nil {
		if within.Err() != nil && ctx.Err() == nil {
			return "", fmt.Errorf("%w: no authorization response within %v", ErrConsentRequired, authorizationTimeout)
		}
		return "", fmt.Errorf("ask the user: %w", err)
	}
	return r.checkCallback(callback)
}

// checkCallback checks a callback and returns its code. It uses nothing else of the callback before
// it has checked state and iss. See https://www.rfc-editor.org/rfc/rfc9207#section-2.4.
func (r *authorizationRequest) checkCallback(callback string) (string, error) {
	u, err := url.Parse(callback)
	if err != nil {
		return "", fmt.Errorf("%w: the authorization response is not a URL", ErrUntrusted)
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil || !isRedirectURI(u, r.redirectURI) {
		return "", fmt.Errorf("%w: the authorization response went to another URL than the redirect URI, or its query is malformed", ErrUntrusted)
	}
	for _, name := range []string{"state", "iss", "code", "error"} {
		if len(q[name]) > 1 {
			return "", fmt.Errorf("%w: the authorization response has %s twice", ErrUntrusted, name)
		}
	}
	if subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(r.state)) != 1 {
		return "", fmt.Errorf("%w: the authorization response belongs to another request: its state differs", ErrUntrusted)
	}
	switch {
	case q.Has("iss") && q.Get("iss") != r.discovery.issuer:
		return "", fmt.Errorf("%w: the authorization response is from another authorization server: its iss differs", ErrUntrusted)
	case !q.Has("iss") && r.discovery.as.IssInResponse:
		return "", fmt.Errorf("%w: the authorization response has no iss, which the authorization server's metadata promises", ErrUntrusted)
	case q.Get("error") != "":
		return "", newOAuthError(q.Get("error"), q.Get("error_description"))
	case q.Get("code") == "":
		return "", fmt.Errorf("%w: the authorization response has neither a code nor an error", ErrUntrusted)
	}
	return q.Get("code"), nil
}

// isRedirectURI reports whether u is the redirect URI, ignoring the query.
func isRedirectURI(u *url.URL, redirectURI string) bool {
	r, err := url.Parse(redirectURI)
	return err == nil && u.Scheme == r.Scheme && u.Host == r.Host && strings.TrimPrefix(u.EscapedPath(), "/") == strings.TrimPrefix(r.EscapedPath(), "/")
}

const (
	defaultLoopbackTimeout = 3 * time.Minute
	loopbackShutdown       = time.Second
)

// loopbackPage is the only page of the listener. It contains nothing from the request.
const loopbackPage = `<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Done</title></head>
<body><p>You can close this window and go back to the application.</p></body></html>
`

// LoopbackPrompter is a [Prompter] for users with a browser on this machine. It listens on a
// loopback address for one callback. See https://www.rfc-editor.org/rfc/rfc8252#section-7.3.
type LoopbackPrompter struct {
	// Show receives the URL for the user to open. One of Show and Browse is required.
	Show func(authorizeURL string)
	// Browse opens the URL in the user's browser, with their consent. It is called after Show and
	// may ask for the consent. If the user opens the URL in another way meanwhile, the callback is
	// accepted and ends ctx. Browse must return when the browser was started or ctx has ended. It
	// must not use a shell: the URL is a checked http or https URL, but a server chose it. If
	// Browse fails and Show is set, the user can still open the URL.
	Browse func(ctx context.Context, authorizeURL string) error
	// Port is the port to listen on. Zero means a random port.
	Port int
	// Timeout limits how long the user may take. Zero means 3 minutes.
	Timeout time.Duration
}

// Prepare implements [Prompter]. It listens on the loopback host of the known redirect URIs. If
// known is empty, it listens on 127.0.0.1 (or ::1 without IPv4), on a path that cannot be guessed.
func (l LoopbackPrompter) Prepare(_ context.Context, known []string) (Prompt, error) {
	if l.Show == nil && l.Browse == nil {
		return nil, errors.New("oauth.LoopbackPrompter: Show and Browse are nil")
	}
	hosts, path := []string{"127.0.0.1", "::1"}, "/callback/"+rand.Text()
	if len(known) > 0 {
		if hosts, path = loopbackHosts(known); hosts == nil {
			return nil, errors.New("none of the client's redirect URIs is on this machine")
		}
	}
	r := &loopbackPrompt{opts: l, path: path, answers: make(chan string, 1)}
	if err := r.listen(hosts, l.Port); err != nil {
		return nil, err
	}
	return r, nil
}

// loopbackHosts returns the path of the first loopback redirect URI, and the hosts of all that have
// this path.
func loopbackHosts(known []string) (hosts []string, path string) {
	for _, k := range known {
		u, err := url.Parse(k)
		if err != nil || u.Scheme != "http" || !loopback.IsHost(u.Hostname()) {
			continue
		}
		if hosts == nil {
			path = u.EscapedPath()
		}
		if u.EscapedPath() == path {
			hosts = append(hosts, u.Hostname())
		}
	}
	return hosts, path
}

type loopbackPrompt struct {
	opts       LoopbackPrompter
	host, path string
	listeners  []net.Listener
	server     *http.Server
	serving    sync.WaitGroup
	// answers receives the query of the callback.
	answers chan string
	// state is the expected state of the callback. Without one, none is accepted.
	state string
	// answered is set when a callback was accepted.
	answered atomic.Bool
}

// listen listens on the first of the hosts where it can.
func (lp *loopbackPrompt) listen(hosts []string, port int) error {
	var errs []error
	for _, host := range hosts {
		listeners, err := listenLoopback(host, port)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		_, p, _ := net.SplitHostPort(listeners[0].Addr().String())
		lp.host, lp.listeners = net.JoinHostPort(host, p), listeners
		return nil
	}
	return fmt.Errorf("listen for the authorization response: %w", errors.Join(errs...))
}

// listenLoopback listens on a loopback address. A browser may resolve "localhost" to IPv4 or IPv6,
// so it listens on both if possible.
func listenLoopback(host string, port int) ([]net.Listener, error) {
	if host != "localhost" {
		ln, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		return []net.Listener{ln}, err
	}
	ln, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		ln, err = net.Listen("tcp6", net.JoinHostPort("::1", strconv.Itoa(port)))
		return []net.Listener{ln}, err
	}
	_, p, _ := net.SplitHostPort(ln.Addr().String())
	if ln6, err := net.Listen("tcp6", net.JoinHostPort("::1", p)); err == nil {
		return []net.Listener{ln, ln6}, nil
	}
	return []net.Listener{ln}, nil
}

// URI implements [Prompt].
func (lp *loopbackPrompt) URI() string { return "http://" + lp.host + lp.path }

// Authorize implements [Prompt].
func (lp *loopbackPrompt) Authorize(ctx context.Context, authorizeURL string) (string, error) {
	u, err := url.Parse(authorizeURL)
	if err != nil || u.Host == "" || u.Scheme != "https" && !(u.Scheme == "http" && loopback.IsHost(u.Hostname())) {
		return "", fmt.Errorf("%w: the authorization URL does not use http or https", ErrUntrusted)
	}
	lp.state = u.Query().Get("state")
	lp.serve()
	timeout := lp.opts.Timeout
	defaults.IfNotPositive(&timeout, defaultLoopbackTimeout)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	if lp.opts.Show != nil {
		lp.opts.Show(u.String())
	}
	failed := make(chan error, 1)
	if lp.opts.Browse != nil {
		var browsing sync.WaitGroup
		defer browsing.Wait()
		browseCtx, stop := context.WithCancel(ctx)
		defer stop()
		browsing.Go(func() {
			if err := lp.opts.Browse(browseCtx, u.String()); err != nil && lp.opts.Show == nil {
				failed <- fmt.Errorf("open the browser: %w", err)
			}
		})
	}
	select {
	case query := <-lp.answers:
		return lp.URI() + "?" + query, nil
	case err := <-failed:
		return "", err
	case <-timer.C:
		return "", fmt.Errorf("%w: no authorization response within %v", ErrConsentRequired, timeout)
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (lp *loopbackPrompt) serve() {
	lp.server = &http.Server{
		Handler:           http.HandlerFunc(lp.handle),
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      5 * time.Second,
		IdleTimeout:       time.Second,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	for _, ln := range lp.listeners {
		lp.serving.Go(func() { lp.server.Serve(ln) })
	}
}

// handle accepts the one request that is the callback: with the host and the path of the redirect
// URI, and with the expected state. Other requests, which a page in the user's browser can make,
// change nothing.
func (lp *loopbackPrompt) handle(w http.ResponseWriter, req *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Connection", "close")
	expected := req.Host == lp.host && req.Method == http.MethodGet && req.URL.EscapedPath() == lp.path &&
		lp.state != "" && subtle.ConstantTimeCompare([]byte(req.URL.Query().Get("state")), []byte(lp.state)) == 1
	if !expected || lp.answered.Swap(true) {
		http.Error(w, "not found", http.StatusNotFound)
		return
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	io.WriteString(w, loopbackPage)
	lp.answers <- req.URL.RawQuery
}

// Close implements [Prompt]. It lets the page of the last request be sent first.
func (lp *loopbackPrompt) Close() error {
	if lp.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), loopbackShutdown)
		defer cancel()
		if lp.server.Shutdown(ctx) != nil {
			lp.server.Close()
		}
	}
	for _, ln := range lp.listeners {
		ln.Close()
	}
	lp.serving.Wait()
	return nil
}
