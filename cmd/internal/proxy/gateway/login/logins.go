package login

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"mcpwire/auth"
	"mcpwire/cmd/internal/proxy/gateway"
	"mcpwire/cmd/internal/proxy/gateway/config"
	"mcpwire/internal/base/seal"
	"mcpwire/internal/base/wait"
	"mcpwire/internal/net/loopback"
)

// Path is the path below which the pages are.
const Path = "/oauth/"

const (
	// maxAccounts limits the accounts in memory.
	maxAccounts = 10_000
	// maxExchanges limits the browser requests that wait for authorization servers.
	maxExchanges = 64
)

// Options are the options of [New].
type Options struct {
	// URL is the public URL of the gateway without a path: https, or http on this machine.
	URL string
	// Identity is how browsers log in to the gateway. Nil means that all callers are one user, on
	// this machine.
	Identity *config.LoginIdentity
	// IdentitySecret is that of Identity. It may be empty.
	IdentitySecret auth.Secret
	// Folder is where tokens are stored. Empty means in memory.
	Folder string
	// Ring seals the tokens in Folder, and links and cookies, which gateways with the same keys and
	// the same Folder accept from each other, once in all. Nil means that the files are only
	// private (mode 0600), and that a login must be finished at the gateway that has made the link.
	Ring *seal.Ring
	// Transport sends requests to authorization servers that the configuration names. Nil means a
	// new [http.Transport] with the proxy of the environment.
	Transport http.RoundTripper
	// Logger receives the log. Nil discards it.
	Logger *slog.Logger
}

// Logins are the logins of all callers to all upstreams.
type Logins struct {
	opts  Options
	url   string
	local bool
	// identity is nil without Options.Identity.
	identity *identity
	folder   *folder
	// used has the ids of pages and the states that must not be accepted again.
	used *usedSet
	mux  *http.ServeMux

	ctx    context.Context
	cancel context.CancelFunc
	// running are the goroutines that Close waits for.
	running wait.Group
	// exchanges has an element for each browser request that waits for an authorization server.
	exchanges chan struct{}

	// onRecord and onChange are set by Notify.
	onRecord func(*gateway.CallRecord)
	onChange func(upstream string, at time.Time, of func(context.Context) bool)

	mu        sync.Mutex
	closed    bool
	upstreams map[string]*Upstream
	accounts  map[accountKey]*list.Element
	// recent holds each *account, the most recent first.
	recent list.List
	pages  pageSet
	states map[string]*attempt
}

type accountKey struct {
	upstream *Upstream
	user     string
}

// New returns the logins of a gateway. Close them after use.
func New(o *Options) (*Logins, error) {
	l := &Logins{
		opts: *o, exchanges: make(chan struct{}, maxExchanges), upstreams: map[string]*Upstream{},
		accounts: map[accountKey]*list.Element{}, states: map[string]*attempt{},
		pages: pageSet{map[string]*page{}, map[*account]*page{}, map[string]int{}},
	}
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.Path != "" || u.RawQuery != "" || u.User != nil || u.Scheme != "https" && !(u.Scheme == "http" && loopback.IsHost(u.Hostname())) {
		return nil, errors.New("login: the public URL must be https, or http on this machine, without a path, such as https://mcp.example.com")
	}
	l.url = o.URL
	if o.Identity == nil && !loopback.IsHost(u.Hostname()) {
		return nil, errors.New("login: a gateway that other machines can reach needs an identity, so that who opens a page is the caller")
	}
	l.local = o.Identity == nil
	l.opts.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if l.opts.Transport == nil {
		l.opts.Transport = &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: time.Minute}
	}
	if l.folder, err = openFolder(o.Folder, o.Ring); err != nil {
		return nil, err
	}
	used := ""
	if o.Folder != "" && o.Ring != nil {
		used = filepath.Join(o.Folder, "used")
	}
	if l.used, err = openUsedSet(used); err != nil {
		return nil, fmt.Errorf("open the folder of used links: %w", err)
	}
	if o.Identity != nil {
		l.identity = newIdentity(o.Identity, o.IdentitySecret, l.opts.Transport, l.url+Path+"identity")
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.routes()
	return l, nil
}

// Close ends the pending logins and waits for goroutines.
func (l *Logins) Close() {
	l.cancel()
	l.mu.Lock()
	l.closed = true
	for _, p := range l.pages.byID {
		p.stop()
	}
	l.mu.Unlock()
	l.running.Wait()
	if t, ok := l.opts.Transport.(interface{ CloseIdleConnections() }); ok && l.opts.Transport != http.DefaultTransport {
		t.CloseIdleConnections()
	}
}

// Notify has record called with a record for each login and logout, whose method is "login" or
// "logout", and changed after each of them, for gateway.Gateway.LoginChanged. It must be called
// before the first request.
func (l *Logins) Notify(record func(*gateway.CallRecord), changed func(upstream string, at time.Time, of func(context.Context) bool)) {
	l.onRecord, l.onChange = record, changed
}

// localUser is the user of callers without a principal.
const localUser = "local"

// user returns for whom the caller of ctx logs in: issuer and subject, in the form of
// auth.Principal.ID. Different clients of one user share the logins, because the authorization
// server of the gateway has identified the user to both.
func (l *Logins) user(ctx context.Context) (string, error) {
	p := auth.PrincipalOf(ctx)
	if l.identity != nil {
		if p == nil {
			return "", errors.New("the caller is unknown, so it cannot log in")
		}
		return l.identity.userOf(p)
	}
	if p == nil {
		return localUser, nil
	}
	return userText(p.Issuer, p.Subject), nil
}

// userText returns the text of a user.
func userText(issuer, subject string) string {
	return strings.TrimSuffix((&auth.Principal{Issuer: issuer, Subject: subject}).ID(), " ")
}

// accountOf returns the account of the caller of ctx at an upstream.
func (l *Logins) accountOf(ctx context.Context, u *Upstream) (*account, error) {
	user, err := l.user(ctx)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.accountLocked(u, user, auth.PrincipalOf(ctx))
}

// accountLocked returns the account of a user at an upstream. p is the principal of one caller of
// the user, or nil.
func (l *Logins) accountLocked(u *Upstream, user string, p *auth.Principal) (*account, error) {
	key := accountKey{u, user}
	if e, ok := l.accounts[key]; ok {
		l.recent.MoveToFront(e)
		return e.Value.(*account), nil
	}
	store, err := l.folder.store(u.opts.Name, u.opts.Server, user)
	if err != nil {
		return nil, err
	}
	for l.recent.Len() >= maxAccounts {
		oldest := l.recent.Remove(l.recent.Back()).(*account)
		delete(l.accounts, accountKey{oldest.up, oldest.user})
	}
	// Only the values of the principal are kept.
	a := &account{up: u, user: user, ctx: auth.WithPrincipal(context.Background(), p), store: store}
	l.accounts[key] = l.recent.PushFront(a)
	return a, nil
}

// record logs a login or logout.
func (l *Logins) record(a *account, method string, start time.Time, outcome gateway.Outcome) {
	l.opts.Logger.Info(method, "upstream", a.up.opts.Name, "user", a.user, "outcome", outcome)
	if l.onRecord == nil {
		return
	}
	l.onRecord(&gateway.CallRecord{
		CallInfo: gateway.CallInfo{Method: method, Upstream: a.up.opts.Name}, Context: a.ctx, Start: start, Duration: time.Since(start), Outcome: outcome,
	})
}

// changed says that an account has logged in or out.
func (l *Logins) changed(a *account) {
	if l.onChange == nil {
		return
	}
	at := time.Now()
	l.running.Start(func() { // callers may hold locks
		l.onChange(a.up.opts.Name, at, func(ctx context.Context) bool {
			user, err := l.user(ctx)
			return err == nil && user == a.user
		})
	})
}

// Upstream returns an upstream. With the same options as before, it is the same one.
func (l *Logins) Upstream(o UpstreamOptions) (*Upstream, error) {
	u, err := newUpstream(l, o)
	if err != nil {
		return nil, fmt.Errorf("login: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if was := l.upstreams[o.Name]; was != nil && was.opts.equal(&o) {
		return was, nil
	}
	l.upstreams[o.Name] = u
	return u, nil
}
