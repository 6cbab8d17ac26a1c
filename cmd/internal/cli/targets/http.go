package targets

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/auth"
	"mcpwire/cmd/internal/build"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/proxy/endpoint"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace/captures"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/internal/era"
	"mcpwire/internal/net/loopback"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/oauth"
)

// An HTTPSide makes the HTTP requests to one server. It is safe for concurrent use.
type HTTPSide struct {
	Next http.RoundTripper
	// SSE is the URL of an HTTP+SSE stream, if the user says so. Nothing is posted to it.
	SSE string
	// Refused is the last status 401 or 403 of the server, or zero.
	Refused atomic.Int32
	// location is where the last redirect leads to. It is nil before one.
	location atomic.Pointer[string]
	// Interactive reports whether the user may be asked to log in.
	Interactive bool
	clock       loginClock
	// status is cleared before the user is asked to log in. It may be nil.
	status *kit.StatusLine
}

// RoundTrip implements http.RoundTripper.
func (h *HTTPSide) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := endpoint.NoPost{Next: h.Next, URL: h.SSE}.RoundTrip(r)
	if err == nil && resp.StatusCode >= 300 && resp.StatusCode < 400 {
		to := resp.Header.Get("Location")
		h.location.Store(&to)
	}
	return resp, err
}

// A Watcher notes that a server refused a request with 401 or 403. The error that the user sees
// only says why a token is missing.
type Watcher struct {
	Base    http.RoundTripper
	Refused *atomic.Int32
}

// RoundTrip implements http.RoundTripper.
func (w Watcher) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := w.Base.RoundTrip(r)
	if err == nil && (resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden) {
		w.Refused.Store(int32(resp.StatusCode))
	}
	return resp, err
}

// newHTTPSide returns the round tripper for requests to a target, which must be merged already. It
// calls ask before a browser opens, and clears status before it prints.
func newHTTPSide(e *kit.Env, t *Spec, f *Flags, status *kit.StatusLine, ask AskFunc) (*HTTPSide, error) {
	conf, err := f.TLS()
	if err != nil {
		return nil, err
	}
	dial := &net.Dialer{Timeout: f.ConnectTimeout, KeepAlive: 30 * time.Second}
	base := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dial.DialContext, TLSClientConfig: conf, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: f.ConnectTimeout, ExpectContinueTimeout: time.Second, IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 16,
	}
	h := &HTTPSide{Next: base, status: status}
	if t.Transport == TransportSSE {
		h.SSE = t.URL
	}
	how, err := f.Login(e, t)
	if err != nil || how == NoLogin {
		return h, err
	}
	h.Interactive = how == ByBrowser
	browse := AskFirst(e.Stderr, ask, OpenBrowser)
	h.Next, err = f.Authorized(e, t, h, Watcher{Base: base, Refused: &h.Refused}, conf, how, func(ctx context.Context, address string) error {
		err := browse(ctx, address)
		status.Step("waiting for the login in the browser")
		return err
	})
	return h, err
}

// TLS returns the configuration for --insecure and --cacert. It returns nil if neither is given.
func (f *Flags) TLS() (*tls.Config, error) {
	conf, err := endpoint.TLS(f.caFile, f.insecure)
	if err != nil {
		return nil, exit.Usagef("--cacert: %w", err)
	}
	return conf, nil
}

// Ways to get a token.
const (
	NoLogin   = iota // none
	ByStore          // only a stored token, which may be refreshed
	ByBrowser        // the user may log in
	bySecret         // with the client's own secret
)

// Login returns the way to get a token if the server requires one.
func (f *Flags) Login(e *kit.Env, t *Spec) (int, error) {
	u, err := url.Parse(t.URL)
	if err != nil {
		return NoLogin, exit.Usagef("bad URL: %s", t.Name)
	}
	plain := u.Scheme != "https" && !loopback.IsHost(u.Hostname())
	switch {
	case f.oauth && t.Header.Get("Authorization") != "":
		return NoLogin, exit.Usagef("--oauth and --header Authorization exclude each other")
	case f.oauth && plain:
		return NoLogin, exit.Usagef("--oauth needs https: over http anyone on the network path could read the token")
	case f.NoOAuth, plain, t.Header.Get("Authorization") != "":
		return NoLogin, nil
	case kit.IsTerminal(e.Stdin) && kit.WriterIsTerminal(e.Stderr) && os.Getenv("CI") == "":
		return ByBrowser, nil
	case f.secretEnv != "":
		return bySecret, nil
	}
	return ByStore, nil
}

// Authorized returns a transport that sends requests with tokens. If how is ByBrowser, browse opens
// the login page; if browse is nil, the user does.
func (f *Flags) Authorized(e *kit.Env, t *Spec, h *HTTPSide, base http.RoundTripper, conf *tls.Config, how int, browse BrowseFunc) (http.RoundTripper, error) {
	u, err := url.Parse(t.URL)
	if err != nil {
		return nil, exit.Usagef("bad URL: %s", t.Name)
	}
	local := loopback.IsHost(u.Hostname())
	opts := &oauth.ClientOptions{
		Scopes:            f.scopes,
		AllowLoopbackHTTP: local,
		MetadataTLS:       conf,
		Registration:      oauth.Registration{ClientName: "mcpwire"},
	}
	dir, err := captures.StateDir()
	if err == nil {
		opts.Store, err = oauth.NewFileStore(filepath.Join(dir, "tokens.json"))
	}
	if err != nil {
		return nil, exit.Fail(exit.Auth, "token_store", "--no-oauth works without tokens; MCPWIRE_HOME sets the folder for them", err)
	}
	if f.clientID != "" {
		opts.ClientID, opts.ClientIssuer = f.clientID, f.issuer
		if f.issuer == "" {
			opts.ClientIssuer = oauth.TrustFirstIssuer
		}
	}
	if f.secretEnv != "" {
		secret, ok := os.LookupEnv(f.secretEnv)
		if !ok || secret == "" {
			return nil, exit.Usagef("--client-secret-env: the environment variable %s is not set", safe.Line(f.secretEnv))
		}
		opts.ClientSecret = auth.NewSecret(secret)
	}
	switch how {
	case bySecret:
		opts.Grant = oauth.ClientCredentials{}
	case ByBrowser:
		opts.Grant = oauth.AuthorizationCode{
			Prompter: oauth.LoopbackPrompter{Show: h.showLogin(e, t.URL), Browse: browse, Timeout: f.LoginTimeout},
			OnWait: func(own bool) func() {
				h.status.Clear()
				if !own {
					fmt.Fprintln(e.Stderr, "The server requires a login. Another mcpwire process has already asked for it: log in there")
				}
				h.clock.pause()
				return func() {
					h.status.Clear()
					h.clock.resume()
				}
			},
		}
	}
	if f.Verbose {
		opts.Logger = verboseLogger(e)
	}
	c, err := oauth.NewClient(opts)
	if err != nil {
		return nil, exit.Usagef("%w", err)
	}
	return c.Transport(t.URL, base)
}

// showLogin tells the user which server requires a login, and where to log in. The server chose the
// authorization server.
func (h *HTTPSide) showLogin(e *kit.Env, server string) func(string) {
	return func(address string) {
		h.status.Clear()
		fmt.Fprintf(e.Stderr, "The server requires a login. Log in with the browser at this address:\n  server                %s\n  authorization server  %s\n  %s\n",
			origin(server), origin(address), safe.Line(address))
	}
}

// origin returns the origin of a URL, https://www.rfc-editor.org/rfc/rfc6454.
func origin(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "unknown"
	}
	return safe.Line(u.Scheme + "://" + u.Host)
}

// A BrowseFunc shows a page to the user, see [oauth.LoopbackPrompter].
type BrowseFunc func(ctx context.Context, address string) error

// AskFirst returns a BrowseFunc that opens a page with open once the user agrees: the server can
// name any URL, and the browser would send the user's cookies to it. It writes to out why a page
// was not opened.
func AskFirst(out io.Writer, ask AskFunc, open BrowseFunc) BrowseFunc {
	return func(ctx context.Context, address string) error {
		answer, err := ask(ctx, "Press Enter to open it in the browser, or open it yourself: ")
		if err == nil && strings.TrimSpace(answer) != "" {
			err = errors.New("expected Enter")
		}
		if err == nil {
			err = open(ctx, address)
		}
		if err != nil && ctx.Err() == nil {
			fmt.Fprintf(out, "The browser could not be opened (%s): log in at the address above, or cancel with Ctrl-C\n", safe.Line(err.Error()))
		}
		return err
	}
}

// OpenBrowser shows a web page to the user. No shell interprets the URL.
func OpenBrowser(_ context.Context, address string) error {
	name, args := "xdg-open", []string{address}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", address}
	}
	cmd := exec.Command(name, args...)
	if err := cmd.Start(); err != nil {
		return err
	}
	// The process may last as long as the browser, so only a goroutine waits for it.
	go func() { _ = cmd.Wait() }()
	return nil
}

// A loginClock stops the timer of a connection while the user logs in.
type loginClock struct {
	mu    sync.Mutex
	timer *time.Timer
	whole time.Duration
	// waiting is the number of pending logins.
	waiting int
	ended   time.Time
}

func (c *loginClock) set(timer *time.Timer, whole time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer, c.whole = timer, whole
}

func (c *loginClock) pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting++
	if c.timer != nil {
		c.timer.Stop()
	}
}

func (c *loginClock) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting--
	c.ended = time.Now()
	if c.timer != nil && c.waiting == 0 {
		c.timer.Reset(c.whole)
	}
}

// LastLogin returns when a user last had to log in: the current time while a login is pending, and
// the zero time if there was none.
func (h *HTTPSide) LastLogin() time.Time {
	c := &h.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting > 0 {
		return time.Now()
	}
	return c.ended
}

// HandshakeRequest returns the first request of a client of the revision: initialize, or
// server/discover (https://modelcontextprotocol.io/specification/2026-07-28/server/discover).
func HandshakeRequest(r mcp.Revision) []byte {
	p := era.ClientProfile{Info: mcp.Implementation{Name: "mcpwire", Version: build.Version()}}
	f, capabilities, id := era.Of(r), []byte("{}"), jsonrpc.StringID("mcpwire-init")
	if !f.Modern {
		return jsonrpc.AppendRequest(nil, id, mcp.MethodInitialize, p.AppendInitialize(nil, f, capabilities))
	}
	return jsonrpc.AppendRequest(nil, id, mcp.MethodDiscover, append(p.AppendMeta([]byte(`{"_meta":`), f, capabilities), "}}"...))
}

// RawHTTP returns a raw client of the server.
func (d *Dialer) RawHTTP(maxMessage int) *wireclient.HTTP {
	return &wireclient.HTTP{
		Transport: d.HTTP, UserAgent: "mcpwire/" + build.Version(), Header: d.Target.Header, MaxMessage: maxMessage, HeaderMirror: new(wireclient.HeaderMirror),
	}
}
