package auth

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
	"time"
)

// authorizationTimeout is how long an authorization may take from its beginning to the answer.
const authorizationTimeout = 10 * time.Minute

// AuthorizationCode is for clients that act for a user, who logs in with a browser. PKCE with S256 is always used; an authorization server that does not
// say that it supports it is refused. See https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization.
type AuthorizationCode struct {
	// Prompter brings the user to the authorization server and back, as [LoopbackPrompter] and [ManualPrompter] do. If it is nil, stored tokens are used and refreshed,
	// and a request that would need the user fails with [ErrConsentRequired].
	Prompter Prompter
	// NoOfflineAccess stops the client from asking for offline_access, and with that for a refresh token, where the authorization server offers it.
	NoOfflineAccess bool
	// OnWait, unless it is nil, is called when requests begin to wait for the user: own if this client is about to ask, not if another process does that shares its
	// [LoginLocker]. What it returns is called when they wait no more. It may be called for several servers at once.
	OnWait func(own bool) (over func())
}

// notifyWait calls OnWait, if it is there.
func (g AuthorizationCode) notifyWait(own bool) (over func()) {
	if g.OnWait == nil {
		return func() {}
	}
	return g.OnWait(own)
}

// A Prompter brings users to authorization servers and their answers back.
type Prompter interface {
	// Prepare returns what one authorization takes. known are the redirect URIs that the client is registered with, of which one is to be used, if need be
	// with another port; it is empty if the client will be registered with the one that is returned.
	Prepare(ctx context.Context, known []string) (Prompt, error)
}

// A Prompt is one authorization.
type Prompt interface {
	// URI is the redirect URI.
	URI() string
	// Authorize sends the user to a URL, which is http or https, and returns the URL that the user was sent back to, with its query. It is called once.
	Authorize(ctx context.Context, authorizeURL string) (callbackURL string, err error)
	// Close is called once, at the end.
	Close() error
}

// ManualPrompter is a [Prompter] for users who have no browser on this machine, and for tests.
type ManualPrompter struct {
	// RedirectURI is https, or http on the machine itself. Nobody has to listen there if the user copies the URL out of the browser.
	RedirectURI string
	// Visit sends the user to a URL and returns the one that the user was sent back to.
	Visit func(ctx context.Context, authorizeURL string) (callbackURL string, err error)
}

// Prepare implements [Prompter].
func (m ManualPrompter) Prepare(context.Context, []string) (Prompt, error) {
	if m.Visit == nil {
		return nil, errors.New("Manual has no Visit")
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

func (g AuthorizationCode) tokens(ctx context.Context, f *flow) (_ *Tokens, _ string, err error) {
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
		return nil, "", fmt.Errorf("preparing to ask the user: %w", err)
	}
	defer func() { err = errors.Join(err, prompt.Close()) }()
	if cred, err = f.credentialsFor(ctx, cred, prompt.URI()); err != nil {
		return nil, "", err
	}
	f.adjustOfflineAccess(g.NoOfflineAccess)
	p := newAuthorizationRequest(f, cred, prompt.URI())
	address, err := p.authorizeURL(f)
	if err != nil {
		return nil, "", err
	}
	endWait := g.notifyWait(true)
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

// credentialsFor returns credentials that the redirect URI is registered with.
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

// forgetClient forgets a registration that the authorization server does not know any more, so that the next attempt makes a new one. It returns err.
func (c *Client) forgetClient(ctx context.Context, issuer string, cred *credentials, err error) error {
	if cred.dynamic && isOAuthError(err, "invalid_client", "unauthorized_client") {
		return errors.Join(err, c.opts.Store.Delete(ctx, c.registrationKey(issuer)))
	}
	return err
}

const offlineAccess = "offline_access"

// adjustOfflineAccess asks for a refresh token if the authorization server has a scope for that, and does not ask for it if it has not. A request without scopes
// gets no scope thereby: it would no longer be for the default.
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

// authorizationRequest is what must be remembered of an authorization until its answer comes: it is made before the user is sent away, and used once.
type authorizationRequest struct {
	issuer, clientID, redirectURI string
	state, verifier               string
	// issAdvertised is set if an answer without iss is not the authorization server's.
	issAdvertised bool
	deadline      time.Time
}

func newAuthorizationRequest(f *flow, cred *credentials, redirectURI string) *authorizationRequest {
	var verifier [32]byte
	rand.Read(verifier[:])
	return &authorizationRequest{
		issuer:        f.discovery.issuer,
		clientID:      cred.id,
		redirectURI:   redirectURI,
		state:         rand.Text(),
		verifier:      base64.RawURLEncoding.EncodeToString(verifier[:]),
		issAdvertised: f.discovery.as.IssInResponse,
		deadline:      time.Now().Add(authorizationTimeout),
	}
}

// authorizeURL returns where the user is to go. It is made of a parsed URL, has a scheme of the web and a host, and so begins with neither a dash nor anything else
// that means something to a program that is given it.
func (r *authorizationRequest) authorizeURL(f *flow) (string, error) {
	u, err := url.Parse(f.discovery.as.AuthorizationEndpoint)
	if err != nil {
		return "", fmt.Errorf("%w: the authorization endpoint is not a URL", ErrUntrusted)
	}
	if err := f.client.fetch.checkURL(u); err != nil {
		return "", fmt.Errorf("authorization_endpoint: %w", err)
	}
	challenge := sha256.Sum256([]byte(r.verifier))
	q := u.Query()
	q.Set("response_type", "code")
	q.Set("client_id", r.clientID)
	q.Set("redirect_uri", r.redirectURI)
	q.Set("state", r.state)
	q.Set("code_challenge", base64.RawURLEncoding.EncodeToString(challenge[:]))
	q.Set("code_challenge_method", "S256")
	q.Set("resource", f.discovery.resource)
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

// prompt sends the user away and returns the code of the answer.
func (r *authorizationRequest) prompt(ctx context.Context, prompt Prompt, address string) (string, error) {
	within, cancel := context.WithDeadline(ctx, r.deadline)
	defer cancel()
	callback, err := prompt.Authorize(within, address)
	if err != nil {
		if within.Err() != nil && ctx.Err() == nil {
			return "", fmt.Errorf("%w: no answer within %v", ErrConsentRequired, authorizationTimeout)
		}
		return "", fmt.Errorf("asking the user: %w", err)
	}
	return r.checkCallback(callback)
}

// checkCallback checks an answer and returns its code. Nothing of the answer is used before state and iss are what they must be.
// See https://www.rfc-editor.org/rfc/rfc9207#section-2.4.
func (r *authorizationRequest) checkCallback(callback string) (string, error) {
	u, err := url.Parse(callback)
	if err != nil {
		return "", fmt.Errorf("%w: the answer is not a URL", ErrUntrusted)
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil || !isRedirectURI(u, r.redirectURI) {
		return "", fmt.Errorf("%w: the answer came to another URL than the redirect URI, or its query is malformed", ErrUntrusted)
	}
	for _, name := range []string{"state", "iss", "code", "error"} {
		if len(q[name]) > 1 {
			return "", fmt.Errorf("%w: the answer has %s twice", ErrUntrusted, name)
		}
	}
	if subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(r.state)) != 1 {
		return "", fmt.Errorf("%w: the answer is to another question: its state differs", ErrUntrusted)
	}
	switch {
	case q.Has("iss") && q.Get("iss") != r.issuer:
		return "", fmt.Errorf("%w: the answer is another authorization server's: its iss differs", ErrUntrusted)
	case !q.Has("iss") && r.issAdvertised:
		return "", fmt.Errorf("%w: the answer has no iss, which the authorization server said it would", ErrUntrusted)
	case q.Get("error") != "":
		return "", newOAuthError(q.Get("error"), q.Get("error_description"))
	case q.Get("code") == "":
		return "", fmt.Errorf("%w: the answer has neither a code nor an error", ErrUntrusted)
	}
	return q.Get("code"), nil
}

// isRedirectURI reports whether u is the redirect URI but for its query.
func isRedirectURI(u *url.URL, redirectURI string) bool {
	r, err := url.Parse(redirectURI)
	return err == nil && u.Scheme == r.Scheme && u.Host == r.Host && strings.TrimPrefix(u.EscapedPath(), "/") == strings.TrimPrefix(r.EscapedPath(), "/")
}

const (
	defaultLoopbackTimeout = 3 * time.Minute
	loopbackShutdown       = time.Second
)

// loopbackPage is all that the listener ever shows. It has nothing of the request in it.
const loopbackPage = `<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Done</title></head>
<body><p>You can close this window and go back to the application.</p></body></html>
`

// LoopbackPrompter is a [Prompter] for users with a browser on this machine. It listens on the machine itself for one answer and stops.
// See https://www.rfc-editor.org/rfc/rfc8252#section-7.3.
type LoopbackPrompter struct {
	// Show is given the URL that the user has to open. One of Show and Browse is required.
	Show func(authorizeURL string)
	// Browse opens the URL in the user's browser, with their consent. It is called after Show and
	// may ask for the consent: the answer of a user who opens the URL otherwise is taken meanwhile,
	// and ends ctx. It must return when the browser was started or ctx has ended. It must not use a
	// shell: the URL is checked to be one of the web, but it was chosen by a server. If it fails,
	// and there is Show, the user can still open the URL.
	Browse func(ctx context.Context, authorizeURL string) error
	// Port is the port to listen on; 0 means a random one.
	Port int
	// Timeout is how long the user may take. 0 means 3 minutes.
	Timeout time.Duration
}

// Prepare implements [Prompter]: it listens, where the known redirect URIs say that is on this machine, or else on 127.0.0.1 (on ::1 if there is no
// IPv4) and on a path that nobody can guess.
func (l LoopbackPrompter) Prepare(_ context.Context, known []string) (Prompt, error) {
	if l.Show == nil && l.Browse == nil {
		return nil, errors.New("Loopback has neither Show nor Browse")
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

// loopbackHosts returns the path of the first redirect URI on this machine, and the hosts of all that have this path.
func loopbackHosts(known []string) (hosts []string, path string) {
	for _, k := range known {
		u, err := url.Parse(k)
		if err != nil || u.Scheme != "http" || !isLoopbackHost(u.Hostname()) {
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
	// answers gets the one answer.
	answers chan string

	mu sync.Mutex
	// state is what an answer must have; "" while none is wanted.
	state string
}

// listen listens on the first of the hosts on which it can.
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
	return fmt.Errorf("listening for the answer: %w", errors.Join(errs...))
}

// listenLoopback listens on an address of this machine. A browser may take "localhost" for either of two, so it is listened on both, if there are both.
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
	if err != nil || u.Host == "" || u.Scheme != "https" && !(u.Scheme == "http" && isLoopbackHost(u.Hostname())) {
		return "", fmt.Errorf("%w: the authorization URL is not one of the web", ErrUntrusted)
	}
	lp.mu.Lock()
	lp.state = u.Query().Get("state")
	lp.mu.Unlock()
	lp.serve()
	timeout := lp.opts.Timeout
	if timeout <= 0 {
		timeout = defaultLoopbackTimeout
	}
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
				failed <- fmt.Errorf("opening the browser: %w", err)
			}
		})
	}
	select {
	case query := <-lp.answers:
		return lp.URI() + "?" + query, nil
	case err := <-failed:
		return "", err
	case <-timer.C:
		return "", fmt.Errorf("%w: no answer within %v", ErrConsentRequired, timeout)
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

// handle takes the one request that is an answer: to the host and the path that the redirect URI has, and to the question that was asked. All others, as
// those that a page in the user's browser can make, change nothing.
func (lp *loopbackPrompt) handle(w http.ResponseWriter, req *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Connection", "close")
	if req.Host != lp.host || req.Method != http.MethodGet || req.URL.EscapedPath() != lp.path || !lp.acceptState(req.URL.Query().Get("state")) {
		http.Error(w, "not found", http.StatusNotFound)
		return
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	io.WriteString(w, loopbackPage)
	lp.answers <- req.URL.RawQuery
}

// acceptState reports whether an answer with this state is wanted. It says so once.
func (lp *loopbackPrompt) acceptState(state string) bool {
	lp.mu.Lock()
	defer lp.mu.Unlock()
	if lp.state == "" || subtle.ConstantTimeCompare([]byte(state), []byte(lp.state)) != 1 {
		return false
	}
	lp.state = ""
	return true
}

// Close implements [Prompt]. The page that answers the last request is sent first.
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
