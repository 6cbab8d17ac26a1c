package login

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"mcpwire/auth"
	"mcpwire/cmd/internal/proxy/gateway"
	"mcpwire/internal/auth/resumable"
	"mcpwire/internal/net/loopback"
	"mcpwire/oauth"
)

const (
	// pageLife is how long a page can be used.
	pageLife = 10 * time.Minute
	// maxPages limits the unused pages, and maxPagesPerUser the unused pages of one user.
	maxPages        = 10_000
	maxPagesPerUser = 32
	// maxStarts limits the attempts at one page.
	maxStarts = 10
	// watchInterval is the time between looks if the user has logged in at another gateway.
	watchInterval = 2 * time.Second
	// startWait limits the time from a click to the redirect, and finishWait that from the response
	// of an authorization server to the last page.
	startWait  = 30 * time.Second
	finishWait = 60 * time.Second
)

// A pageSet holds the pages that can be used.
type pageSet struct {
	byID map[string]*page
	// byAccount has the page that errors of requests of the account name.
	byAccount map[*account]*page
	byUser    map[string]int
}

// A page is where a user logs in to an upstream.
type page struct {
	id      string
	account *account
	created time.Time
	done    chan struct{}
	// timer removes the page, and watch looks if the user has logged in at another gateway; nil
	// without Options.Ring.
	timer, watch *time.Timer
	// starts counts the attempts. Logins.mu guards it.
	starts int
}

// public returns the page as the gateway sees it.
func (p *page) public() *gateway.LoginPage {
	u := p.account.up
	return &gateway.LoginPage{ID: p.id, URL: u.l.url + Path + "login/" + p.id, Host: u.host, Done: p.done, Expires: p.created.Add(pageLife)}
}

// pageFor returns the page of an account. It makes one if there is none.
func (l *Logins) pageFor(a *account) (*gateway.LoginPage, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.pages.byAccount[a]; p != nil {
		return p.public(), nil
	}
	now := time.Now()
	id, err := l.newPageID(a, now)
	if err != nil {
		return nil, err
	}
	p, err := l.addPageLocked(id, a, now)
	if err != nil {
		return nil, err
	}
	return p.public(), nil
}

// addPageLocked adds a page that was made at a time.
func (l *Logins) addPageLocked(id string, a *account, created time.Time) (*page, error) {
	switch {
	case l.closed:
		return nil, errors.New("the gateway is shutting down")
	case len(l.pages.byID) >= maxPages || l.pages.byUser[a.user] >= maxPagesPerUser:
		return nil, errors.New("too many logins are pending: finish one, or try again in ten minutes")
	}
	p := &page{id: id, account: a, created: created, done: make(chan struct{})}
	p.timer = time.AfterFunc(time.Until(created.Add(pageLife)), func() { l.remove(p) })
	l.pages.byID[p.id] = p
	if l.pages.byAccount[a] == nil {
		l.pages.byAccount[a] = p
	}
	l.pages.byUser[a.user]++
	if l.opts.Ring != nil {
		p.watch = time.AfterFunc(watchInterval, func() { l.running.Start(p.look) })
	}
	return p, nil
}

// look ends the page of an account if the user has logged in at another gateway.
func (l *Logins) look(a *account) {
	l.mu.Lock()
	p := l.pages.byAccount[a]
	l.mu.Unlock()
	if p != nil && p.watch != nil {
		p.look()
	}
}

// look ends the page if the user has logged in at another gateway.
func (p *page) look() {
	l := p.account.up.l
	if !p.account.hasLoggedInElsewhere(l.ctx) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.closed && l.pages.byID[p.id] == p {
			p.watch.Reset(watchInterval)
		}
		return
	}
	if l.end(p) {
		p.account.finishedElsewhere()
		close(p.done)
	}
}

// stop stops the timers.
func (p *page) stop() {
	p.timer.Stop()
	if p.watch != nil {
		p.watch.Stop()
	}
}

// pendingPage returns the page of an account with an id, or nil.
func (l *Logins) pendingPage(a *account, id string) *gateway.LoginPage {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.pages.byAccount[a]; p != nil && p.id == id {
		return p.public()
	}
	return nil
}

// remove removes a page. It reports if it was there.
func (l *Logins) remove(p *page) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pages.byID[p.id] != p {
		return false
	}
	p.stop()
	delete(l.pages.byID, p.id)
	if l.pages.byAccount[p.account] == p {
		delete(l.pages.byAccount, p.account)
	}
	if l.pages.byUser[p.account.user]--; l.pages.byUser[p.account.user] == 0 {
		delete(l.pages.byUser, p.account.user)
	}
	return true
}

// routes makes the routes.
func (l *Logins) routes() {
	l.mux = http.NewServeMux()
	for path, h := range map[string]http.HandlerFunc{
		"login/{id}": l.servePage, "login/{id}/start": l.limited(l.serveStart), "identity": l.limited(l.serveIdentity),
		"callback/{upstream}": l.limited(l.serveCallback), "client/{upstream}": l.serveClient,
	} {
		l.mux.HandleFunc(Path+path, h)
	}
}

// ServeHTTP implements http.Handler.
func (l *Logins) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", "GET")
		writeText(w, http.StatusMethodNotAllowed, "This page cannot be used this way", "Open it with a browser.")
	case l.local && !isLocal(r):
		writeText(w, http.StatusForbidden, "This page is for this computer only", "Open it with a browser on the computer that the gateway runs on.")
	default:
		l.mux.ServeHTTP(w, r)
	}
}

// isLocal reports if a request comes from this machine, by a name of this machine, and by no
// reverse proxy.
func isLocal(r *http.Request) bool {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"} {
		if r.Header.Get(name) != "" {
			return false
		}
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !from.Addr().Unmap().IsLoopback() {
		return false
	}
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	return loopback.IsHost(host)
}

// servePage serves the first page. It changes nothing, because programs that look at links in
// messages open it too.
func (l *Logins) servePage(w http.ResponseWriter, r *http.Request) {
	p := l.find(r.PathValue("id"))
	if p == nil {
		writeExpired(w)
		return
	}
	u := p.account.up
	lines := []string{
		"An application that uses this gateway wants to use " + u.opts.Name + " (" + u.host + ") on your behalf.",
		"Continue only if you have just asked it for something that needs this.",
	}
	if !l.local {
		lines = append(lines, "You may have to log in to the gateway first.")
	}
	write(w, http.StatusOK, "Log in to "+u.opts.Name, lines, l.url+Path+"login/"+p.id+"/start")
}

// find returns the page with an id, or nil if its user has logged in. A page of another gateway
// with the same keys becomes one of this gateway, too.
func (l *Logins) find(id string) *page {
	if l.used.has(id) {
		return nil
	}
	l.mu.Lock()
	p := l.pages.byID[id]
	l.mu.Unlock()
	if p == nil {
		p = l.adopt(id)
	}
	return p
}

// An attempt is an attempt of a browser to log in at a page.
type attempt struct {
	l    *Logins
	page *page
	// cookie is the hash of the cookie of the browser. Logins.mu guards it.
	cookie [32]byte
	// identification is the login to the gateway, until it has succeeded.
	identification *identification
	// state and verifier are those of the request to the authorization server of the upstream.
	state, verifier string
	// proofKey is the key that the tokens will be bound to, or empty. It is known when started has
	// the URL, or the attempt is restored.
	proofKey auth.Secret
	// rejection is what the upstream last answered to a token, or nil.
	rejection *rejection
	// restored means that the request was sent by another gateway.
	restored bool
	// asked means that the OAuth client has got the response. Only run uses it.
	asked bool

	// started receives the URL to send the browser to.
	started chan string
	// callback receives the query of the response.
	callback chan string
	// ended is closed after err was set.
	ended chan struct{}
	err   error
}

// cookieName returns the name of the cookie. The prefix has browsers accept it from this host only.
func (l *Logins) cookieName() string {
	if strings.HasPrefix(l.url, "https:") {
		return "__Host-mcpwire-login"
	}
	return "mcpwire-login"
}

// owns reports if a request comes from the browser of the attempt.
func (a *attempt) owns(r *http.Request) bool {
	c, err := r.Cookie(a.l.cookieName())
	if err != nil {
		return false
	}
	sum := sha256.Sum256([]byte(c.Value))
	return subtle.ConstantTimeCompare(sum[:], a.cookie[:]) == 1
}

// limited returns h, which waits for authorization servers. It limits how many requests do so at
// once, before a request uses its state up, so that the browser can repeat it.
func (l *Logins) limited(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case l.exchanges <- struct{}{}:
			defer func() { <-l.exchanges }()
			h(w, r)
		default:
			w.Header().Set("Retry-After", "5")
			writeText(w, http.StatusServiceUnavailable, "Too many logins at once", "Please try again in a few seconds.")
		}
	}
}

// serveStart begins an attempt and sends the browser to an authorization server.
func (l *Logins) serveStart(w http.ResponseWriter, r *http.Request) {
	p := l.find(r.PathValue("id"))
	if p == nil {
		writeExpired(w)
		return
	}
	l.mu.Lock()
	p.starts++
	over := p.starts > maxStarts
	l.mu.Unlock()
	if over {
		writeText(w, http.StatusTooManyRequests, "Too many attempts", "Ask the application for a new link in ten minutes.")
		return
	}
	a := l.newAttempt(p)
	a.rejection = p.account.rejection()
	if l.identity == nil {
		l.authorize(w, r, a)
		return
	}
	id, address, err := l.identity.begin(r.Context())
	if err != nil {
		l.failed(w, a, "The gateway's authorization server cannot be used", err)
		return
	}
	a.identification = id
	if !a.setCookie(w) || !l.addState(id.state, a) {
		writeExpired(w)
		return
	}
	redirect(w, address)
}

// newAttempt returns an attempt that has no cookie yet.
func (l *Logins) newAttempt(p *page) *attempt {
	return &attempt{
		l: l, page: p, state: rand.Text(), verifier: rand.Text() + rand.Text(),
		started: make(chan string, 1), callback: make(chan string, 1), ended: make(chan struct{}),
	}
}

// setCookie gives the browser the cookie of the attempt. It reports false if that is not possible.
func (a *attempt) setCookie(w http.ResponseWriter) bool {
	value, err := a.ticket()
	if err != nil {
		a.l.opts.Logger.Error("login", "error", err)
		return false
	}
	a.l.mu.Lock()
	a.cookie = sha256.Sum256([]byte(value))
	a.l.mu.Unlock()
	http.SetCookie(w, &http.Cookie{
		Name: a.l.cookieName(), Value: value, Path: "/", MaxAge: int(pageLife / time.Second),
		Secure: strings.HasPrefix(a.l.url, "https:"), HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
	return true
}

// addState has a state accepted once, as long as the page of the attempt can be used. It reports
// false if that is over.
func (l *Logins) addState(state string, a *attempt) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.pages.byID[a.page.id] != a.page || state == "" {
		return false
	}
	// At most maxStarts attempts of each page have a state.
	for s, other := range l.states {
		if other == a || l.pages.byID[other.page.id] != other.page {
			delete(l.states, s)
		}
	}
	l.states[state] = a
	return true
}

// takeState returns the attempt with the state of a request, which must come from its browser, and
// answers the request if there is none. identified says which kind of state is expected.
func (l *Logins) takeState(w http.ResponseWriter, r *http.Request, identified bool) *attempt {
	state := r.URL.Query().Get("state")
	a := l.restore(r, state, identified)
	if a == nil {
		if a = l.takeOwnState(w, r, state, identified); a == nil {
			return nil
		}
	}
	switch first, err := l.used.add(state); {
	case err != nil:
		l.failed(w, a, "The login has failed", fmt.Errorf("the gateway cannot store that the response was used: %w", err))
	case !first:
		writeExpired(w)
	default:
		return a
	}
	return nil
}

// takeOwnState is takeState for a request that this gateway has sent.
func (l *Logins) takeOwnState(w http.ResponseWriter, r *http.Request, state string, identified bool) *attempt {
	l.mu.Lock()
	a := l.states[state]
	ok := a != nil && (a.identification == nil) == identified && l.pages.byID[a.page.id] == a.page
	own := ok && a.owns(r)
	if own {
		delete(l.states, state)
	}
	l.mu.Unlock()
	switch {
	case !ok:
		writeExpired(w)
	case !own:
		writeText(w, http.StatusForbidden, "This login began in another browser", "Open the link again in the browser that you want to use, and finish it there.")
	default:
		return a
	}
	return nil
}

// serveIdentity serves the redirect URI of the gateway's own authorization server.
func (l *Logins) serveIdentity(w http.ResponseWriter, r *http.Request) {
	if l.identity == nil {
		http.NotFound(w, r)
		return
	}
	a := l.takeState(w, r, false)
	if a == nil {
		return
	}
	user, err := l.identity.finish(r.Context(), a.identification, r.URL.Query())
	switch {
	case errors.Is(err, errRefused):
		writeText(w, http.StatusForbidden, "You are not logged in", "The gateway's authorization server did not let you log in. Open the link again to try once more.")
	case err != nil:
		l.failed(w, a, "You could not be logged in to the gateway", err)
	case user != a.page.account.user:
		l.opts.Logger.Warn("a login page was opened by somebody else", "upstream", a.page.account.up.opts.Name, "user", a.page.account.user, "opened by", user)
		l.record(a.page.account, "login", a.page.created, gateway.OutcomeDenied)
		writeText(w, http.StatusForbidden, "This link is not yours",
			"It was made for another user of the gateway than the one that you are logged in as. Nothing has happened.",
			"If somebody sent it to you, do not trust them: it would have given them access in your name. If you have two users, log out of the gateway's authorization server and open the link again.")
	default:
		a.identification = nil
		l.authorize(w, r, a)
	}
}

// start begins to log the user in, until cancel is called. It reports false after Close.
func (a *attempt) start() (cancel func(), ok bool) {
	ctx, cancel := context.WithDeadline(a.l.ctx, a.page.created.Add(pageLife))
	ok = a.l.running.Start(func() {
		defer cancel()
		defer close(a.ended)
		a.err = a.run(ctx)
	})
	if !ok {
		cancel()
	}
	return cancel, ok
}

// authorize sends the browser to the authorization server of the upstream.
func (l *Logins) authorize(w http.ResponseWriter, r *http.Request, a *attempt) {
	cancel, ok := a.start()
	if !ok {
		writeExpired(w)
		return
	}
	timer := time.NewTimer(startWait)
	defer timer.Stop()
	select {
	case address := <-a.started:
		if !a.setCookie(w) {
			cancel()
			writeExpired(w)
			return
		}
		redirect(w, address)
	case <-a.ended:
		l.answer(w, a)
	case <-timer.C:
		cancel()
		l.failed(w, a, "The login could not begin", errors.New("the authorization server does not answer"))
	case <-r.Context().Done():
		cancel()
	}
}

// run logs the user in.
func (a *attempt) run(ctx context.Context) error {
	of := a.page.account
	o := of.up.clientOptions(of.store, of.store.account)
	o.Grant = oauth.AuthorizationCode{Prompter: a}
	c, err := oauth.NewClient(o)
	if err != nil {
		return err
	}
	rt, err := c.Transport(of.up.opts.Server, &challenger{of, a.rejection})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, of.up.opts.Server, nil)
	if err != nil {
		return err
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		outcome := gateway.OutcomeError
		if errors.Is(err, oauth.ErrDenied) {
			outcome = gateway.OutcomeDenied
		}
		a.l.record(of, "login", a.page.created, outcome)
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New("the authorization server has given no token")
	}
	if a.restored && !a.asked {
		return errors.New("the response was used before")
	}
	if a.l.end(a.page) {
		of.finished()
		close(a.page.done)
		a.l.record(of, "login", a.page.created, gateway.OutcomeOK)
	}
	return nil
}

var _ resumable.Prompt = (*attempt)(nil)

// Secrets makes the attempt one that another gateway can finish, see [resumable.Prompt].
func (a *attempt) Secrets() (state, verifier string) { return a.state, a.verifier }

// ProofKey has the gateway that finishes the attempt use the key of the one that began it, see
// [resumable.Prompt].
func (a *attempt) ProofKey(key auth.Secret) auth.Secret {
	if !a.restored {
		a.proofKey = key
	}
	return a.proofKey
}

// Prepare implements oauth.Prompter.
func (a *attempt) Prepare(context.Context, []string) (oauth.Prompt, error) { return a, nil }

// URI implements oauth.Prompt.
func (a *attempt) URI() string { return a.page.account.up.redirectURI }

// Authorize implements oauth.Prompt.
func (a *attempt) Authorize(ctx context.Context, address string) (string, error) {
	a.asked = true
	if !a.restored {
		if !a.l.addState(a.state, a) {
			return "", errors.New("the login has expired")
		}
		a.started <- address // has room: Authorize is called once
	}
	select {
	case query := <-a.callback:
		return a.URI() + "?" + query, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// Close implements oauth.Prompt.
func (a *attempt) Close() error { return nil }

// serveCallback serves the redirect URI of the authorization server of an upstream.
func (l *Logins) serveCallback(w http.ResponseWriter, r *http.Request) {
	if len(r.URL.RawQuery) > 4*maxCode {
		writeExpired(w)
		return
	}
	a := l.takeState(w, r, true)
	if a == nil {
		return
	}
	if a.page.account.up.opts.Name != r.PathValue("upstream") {
		l.failed(w, a, "The login has failed", errors.New("the response came from the authorization server of another upstream"))
		return
	}
	if a.restored {
		cancel, ok := a.start()
		if !ok {
			writeExpired(w)
			return
		}
		defer cancel()
	}
	a.callback <- r.URL.RawQuery // has room: the state is taken once
	timer := time.NewTimer(finishWait)
	defer timer.Stop()
	select {
	case <-a.ended:
		l.answer(w, a)
	case <-timer.C:
		l.failed(w, a, "The login has failed", errors.New("the authorization server does not answer"))
	case <-r.Context().Done():
	}
}

// answer writes the last page of an attempt that has ended.
func (l *Logins) answer(w http.ResponseWriter, a *attempt) {
	name := a.page.account.up.opts.Name
	switch {
	case a.err == nil:
		writeText(w, http.StatusOK, "You are logged in to "+name, "You can close this window and go back to the application.")
	case errors.Is(a.err, oauth.ErrDenied):
		writeText(w, http.StatusForbidden, "You are not logged in to "+name, "Access was not allowed, so nothing has changed. Open the link again if you want to try once more.")
	default:
		l.failed(w, a, "You could not be logged in to "+name, a.err)
	}
}

// failed logs an error and writes its page.
func (l *Logins) failed(w http.ResponseWriter, a *attempt, title string, err error) {
	text := describe(err)
	l.opts.Logger.Warn("login failed", "upstream", a.page.account.up.opts.Name, "user", a.page.account.user, "error", text)
	writeText(w, http.StatusBadGateway, title, strings.ToUpper(text[:1])+text[1:]+".", "Open the link again to try once more. If that does not help, tell the operator of the gateway.")
}

// describe returns the text of an error without the URL of the upstream, which may have secrets in
// it.
func describe(err error) string {
	e, ok := errors.AsType[*oauth.AuthorizationError](err)
	if !ok {
		return err.Error()
	}
	text := e.Op + ": " + e.Err.Error()
	if e.Code != "" {
		text += " (" + e.Code + ")"
	}
	if e.Description != "" {
		text += ": " + strconv.Quote(e.Description)
	}
	return text
}

// serveClient serves the metadata of the gateway as a client of an upstream's authorization server.
func (l *Logins) serveClient(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	u := l.upstreams[r.PathValue("upstream")]
	l.mu.Unlock()
	if u == nil {
		http.NotFound(w, r)
		return
	}
	var doc []byte
	c, err := oauth.NewClient(u.clientOptions(oauth.NewMemoryStore(), ""))
	if err == nil {
		doc, err = c.MetadataDocument()
	}
	if err != nil { // the gateway has another client id there
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "max-age=300")
	_, _ = w.Write(doc) // a client that is gone needs none
}

// A challenger is the transport of the request that makes a login begin. It repeats what the
// upstream last answered to a token, or asks the upstream, and accepts any other token.
type challenger struct {
	account *account
	// last is that answer, or nil.
	last *rejection
}

// RoundTrip implements http.RoundTripper.
func (c *challenger) RoundTrip(req *http.Request) (*http.Response, error) {
	last, token := c.last, req.Header.Get("Authorization")
	switch {
	case token == "" && (last == nil || last.status != http.StatusUnauthorized):
		return c.probe(req)
	case token == "" || last != nil && last.token == hashOf(token):
		return respond(req, last.status, http.Header{"Www-Authenticate": last.header}, ""), nil
	}
	return respond(req, http.StatusOK, http.Header{}, ""), nil
}

// probe returns the challenge of the upstream. If the upstream has none, well-known metadata says
// what to do.
func (c *challenger) probe(req *http.Request) (*http.Response, error) {
	base := c.account.up.base.Load()
	if base == nil {
		return respond(req, http.StatusUnauthorized, http.Header{}, ""), nil
	}
	ctx, cancel := context.WithTimeout(req.Context(), startWait/2)
	defer cancel()
	ask, err := http.NewRequestWithContext(ctx, http.MethodPost, c.account.up.opts.Server, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	if err != nil {
		return nil, err
	}
	ask.Header.Set("Content-Type", "application/json")
	ask.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := (&observer{c.account, *base}).RoundTrip(ask)
	if err != nil {
		return nil, err
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10) // so that the connection can be used again
	resp.Body.Close()
	h := http.Header{}
	if resp.StatusCode == http.StatusUnauthorized {
		h["Www-Authenticate"] = resp.Header.Values("WWW-Authenticate")
	}
	return respond(req, http.StatusUnauthorized, h, ""), nil
}

// redirect sends the browser to an authorization server.
func redirect(w http.ResponseWriter, address string) {
	setHeaders(w.Header())
	w.Header().Set("Location", address)
	w.WriteHeader(http.StatusSeeOther)
}

// pageStyle is the style of the pages, in light and dark.
const pageStyle = `:root{color-scheme:light dark}` +
	`body{font:1rem/1.55 system-ui,sans-serif;max-width:34rem;margin:14vh auto 4rem;padding:0 1.5rem;color:#1b1b1f;background:#fff;overflow-wrap:anywhere}` +
	`h1{font-size:1.5rem;line-height:1.25;margin:0 0 1rem}p{margin:0 0 1rem}` +
	`a{display:inline-block;margin-top:.5rem;padding:.6rem 1.4rem;border-radius:.4rem;background:#0b57d0;color:#fff;text-decoration:none}` +
	`a:focus-visible{outline:3px solid;outline-offset:3px}` +
	`@media(prefers-color-scheme:dark){body{color:#e3e3e8;background:#141418}a{background:#a8c7fa;color:#062e6f}}`

var pagePolicy = func() string {
	sum := sha256.Sum256([]byte(pageStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()

func setHeaders(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
}

// write writes a page. next is the target of its link, or "".
func write(w http.ResponseWriter, status int, title string, lines []string, next string) {
	setHeaders(w.Header())
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	title = html.EscapeString(title)
	text := `<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">` +
		`<title>` + title + `</title><style>` + pageStyle + `</style></head><body><main><h1>` + title + `</h1>`
	for _, line := range lines {
		text += `<p>` + html.EscapeString(line) + `</p>`
	}
	if next != "" {
		text += `<a href="` + html.EscapeString(next) + `" rel="noreferrer">Continue</a>`
	}
	_, _ = io.WriteString(w, text+"</main></body></html>\n") // a client that is gone needs none
}

// writeText writes a page without a link.
func writeText(w http.ResponseWriter, status int, title string, lines ...string) {
	write(w, status, title, lines, "")
}

func writeExpired(w http.ResponseWriter) {
	writeText(w, http.StatusNotFound, "This link is no longer valid", "It was used already, or is older than ten minutes. Go back to the application and try again: it gets a new link.")
}
