// Package gatewayd runs a gateway from a configuration: it listens, admits callers, connects to
// upstreams with their credentials, loads the configuration again when it changes, and serves
// operators. Package gateway passes the messages on.
package gatewayd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"mcpwire/auth"
	"mcpwire/capture"
	"mcpwire/cmd/internal/build"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/proxy/endpoint"
	"mcpwire/cmd/internal/proxy/gateway"
	gatewayconfig "mcpwire/cmd/internal/proxy/gateway/config"
	gatewaylogin "mcpwire/cmd/internal/proxy/gateway/login"
	"mcpwire/cmd/internal/proxy/gateway/policy"
	"mcpwire/cmd/internal/proxy/gateway/traces"
	"mcpwire/cmd/internal/proxy/recording"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/text/shellword"
	"mcpwire/cmd/internal/trace/captures"
	"mcpwire/internal/net/httpserve"
	"mcpwire/internal/net/loopback"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/internal/rpc/relay"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/stdio"
	"mcpwire/streamable"
)

// Options are the options of a gateway.
type Options struct {
	// Stdin and Stdout are those of the client, if the gateway serves standard input and output.
	// Messages about captures go to Stderr.
	Stdin          *os.File
	Stdout, Stderr io.Writer
	// Listen is the address for clients. Empty means that of the configuration.
	Listen string
	// Name is that of the gateway in captures and mcpwire watch. Empty means that of the
	// configuration's file.
	Name string
	// Capture is the file to record to. With Record, it is a new one in the captures folder.
	Capture string
	Record  bool
	// NoWatch lets nobody watch a gateway without a capture.
	NoWatch bool
	// Redact is what to redact in the capture. Nil means the default.
	Redact *capture.Redaction
	// Logger receives the log.
	Logger *slog.Logger
	// Node connects the gateway to those of other processes. Nil means that there are none.
	Node *Node
}

// Serve serves the gateway of the configuration in the file path until ctx ends or a signal
// comes. It closes the gateway before it returns.
func Serve(ctx context.Context, path string, o *Options) error {
	return (&process{opts: o, path: path, log: o.Logger, node: o.Node}).serve(ctx)
}

// A process is a running gateway.
type process struct {
	opts *Options
	path string
	log  *slog.Logger

	gateway *gateway.Gateway
	// address is where clients connect: HOST:PORT, a socket, or stdio.
	address string
	// remote reports whether clients may belong to other users.
	remote bool
	// tokens has the tokens of callers. It is nil if callers have none.
	tokens *policy.CallerTokens
	// logins is nil if callers log in to no upstream.
	logins    *logins
	recording *recording.Recording
	// traces is nil if spans are not exported.
	traces *traces.Tracer
	// node is nil outside a cluster.
	node *Node

	// mu guards the fields below.
	mu      sync.Mutex
	current *configuration
	reloads ReloadStatus
}

// A configuration is a loaded configuration with what was made of it.
type configuration struct {
	*gatewayconfig.Config
	options gateway.Options
	policy  *callerPolicy
}

// serve loads the configuration and serves the gateway until ctx ends or a signal comes.
func (p *process) serve(ctx context.Context) (err error) {
	path := p.path
	watcher := gatewayconfig.NewWatcher(path) // before the file is read
	c, err := p.load(nil)
	if err != nil {
		return configurationError(path, err)
	}
	defer func() { err = errors.Join(err, p.now().policy.release(nil)) }()
	defer p.logins.close()
	p.current, p.reloads.Loaded = c, time.Now()
	if err := errors.Join(p.checkAddress(), p.checkNode()); err != nil {
		return err
	}
	p.warnMissing(c)
	guard, err := p.guard(c.Auth)
	if err != nil {
		return configurationError(path, err)
	}
	if p.recording, err = p.record(c); err != nil {
		return err
	}
	defer p.recording.Finish(p.opts.Stderr)
	c.options.Record, c.options.Watched = p.recording.Writer, p.recording.IsWatched
	if p.openTraces(); p.traces != nil {
		defer p.closeTraces()
		c.options.Observe = p.observe()
	}
	if p.gateway, err = gateway.New(&c.options); err != nil {
		return configurationError(path, err)
	}
	defer p.gateway.Close()
	return p.run(ctx, watcher, guard)
}

// run serves clients until a signal.
func (p *process) run(ctx context.Context, watcher *gatewayconfig.Watcher, guard *auth.Guard) error {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	serving, stop := signal.NotifyContext(ctx, signals...)
	defer stop()
	defer context.AfterFunc(serving, stop)() // a second signal ends the process at once
	var background sync.WaitGroup
	others, end := context.WithCancel(context.WithoutCancel(ctx))
	defer background.Wait()
	defer end()
	background.Go(func() { p.watch(others, watcher) })
	p.serveLogins(others, &background)
	started, err := p.serveAdmin(serving, others, &background)
	if err != nil {
		return err
	}
	c := p.now()
	drain := c.Drain.Or(gatewayconfig.DefaultDrain)
	if p.address == "stdio" {
		started()
		// Standard input ends the gateway; the signals end the process.
		return endpoint.ServeStdio(ctx, p.opts.Stdin, p.opts.Stdout, p.gateway, stdio.Config{Framing: jsonrpc.FramingAuto, MaxFrame: int(c.Listen.MaxMessage), StopTimeout: max(drain, drain+endpoint.StopMargin), Logger: p.log})
	}
	if kind, where, ok := gatewayconfig.SocketAddress(p.address); ok {
		l, err := endpoint.ListenSocket(serving, kind, where)
		if err != nil {
			return err
		}
		p.log.Info("listening", "address", kind+":"+l.Addr().String())
		started()
		return serveSocket(serving, l, p.gateway.ServeSocket, c.Listen.MaxSessions(), int(c.Listen.MaxMessage), p.log)
	}
	return p.serveHTTP(serving, guard, started)
}

// tracesTimeout limits the export of the last spans.
const tracesTimeout = 3 * time.Second

// openTraces begins to export spans, if the variables OTEL_… say so. Invalid ones are not an error:
// hosts that set them for themselves start the gateway with them.
func (p *process) openTraces() {
	transport := "tcp"
	if kind, _, ok := gatewayconfig.SocketAddress(p.address); ok {
		transport = kind
	} else if p.address == "stdio" {
		transport = "pipe"
	}
	o := &traces.Options{Getenv: os.Getenv, Service: "mcpwire-gateway", Version: build.Version(), Transport: transport, Logger: p.log}
	if p.node != nil {
		o.Service, o.Instance = "mcpwire-node", p.node.Name
	}
	t, err := traces.New(o)
	switch {
	case err != nil:
		p.log.Warn("spans are not exported", "error", err)
	case t != nil:
		p.traces = t
		p.log.Info("exporting spans", "endpoint", t.Endpoint())
	}
}

// closeTraces exports the last spans.
func (p *process) closeTraces() {
	ctx, cancel := context.WithTimeout(context.Background(), tracesTimeout)
	defer cancel()
	p.traces.Close(ctx)
}

// observe returns what observes the requests: the function of the node, and within it the spans. It
// may be nil.
func (p *process) observe() gateway.ObserveFunc {
	var outer gateway.ObserveFunc
	if p.node != nil {
		outer = p.node.Observe
	}
	switch {
	case p.traces == nil:
		return outer
	case outer == nil:
		return p.traces.Observe
	}
	return func(ctx context.Context, op *gateway.Operation, next func(context.Context, json.RawMessage) (json.RawMessage, error)) {
		outer(ctx, op, func(ctx context.Context, params json.RawMessage) (result json.RawMessage, err error) {
			inner := *op
			inner.Params = params
			p.traces.Observe(ctx, &inner, func(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
				result, err = next(ctx, params)
				return result, err
			})
			return result, err
		})
	}
}

// checkAddress returns an error if --listen is invalid, or leads around the authentication of the
// configuration.
func (p *process) checkAddress() error {
	if p.opts.Listen == "" || p.address == "stdio" {
		return nil
	}
	kind, where, socket := gatewayconfig.SocketAddress(p.address)
	if socket && kind == "unix" {
		return nil
	}
	if !socket {
		where = p.address
	}
	host, _, err := net.SplitHostPort(where)
	c := p.now()
	switch {
	case err != nil:
		return exit.Usagef("gateway: invalid value %q for flag --listen: want an address and a port such as 127.0.0.1:8080, unix:PATH, tcp:HOST:PORT or stdio", p.opts.Listen)
	case host != "" && !loopback.IsHost(host) && c.HasLogins() && c.Login.Identity == nil:
		return exit.Usagef("gateway: --listen %s: other machines can reach it, and anybody could use the logins of credentials.login: add auth.issuers and login.identity", safe.Line(p.opts.Listen))
	case socket && c.Auth != nil:
		return exit.Usagef("gateway: --listen %s: a socket has no authentication, and the configuration has auth", safe.Line(p.opts.Listen))
	case socket && host != "" && !loopback.IsHost(host) && !c.Listen.AllowRemote:
		return exit.Usagef("gateway: --listen %s: other machines can reach it, and a socket has no authentication: listen at 127.0.0.1, or set listen.allowRemote", safe.Line(p.opts.Listen))
	}
	return nil
}

// configurationError returns the error for a configuration that cannot be used.
func configurationError(path string, err error) error {
	var all gatewayconfig.Errors
	var one *gatewayconfig.Error
	switch {
	case errors.As(err, &all) && len(all) > 1:
		err = fmt.Errorf("%w (and %d more)", all[0], len(all)-1)
	case errors.As(err, &all):
		err = all[0]
	case !errors.As(err, &one):
		if file, ok := errors.AsType[*fs.PathError](err); ok && file.Path == path {
			err = file.Err
		}
		err = fmt.Errorf("%s: %w", safe.Line(path), err)
	}
	return exit.Fail(exit.Usage, "bad_configuration", "mcpwire gateway check "+shellword.Word(path)+" shows all errors", err)
}

// load reads the configuration and makes what the gateway needs. It keeps the state of old, which
// may be nil. The caller must release the policy that it does not use.
func (p *process) load(old *configuration) (_ *configuration, err error) {
	conf, err := gatewayconfig.Load(p.path)
	if err != nil {
		return nil, err
	}
	if old == nil {
		p.address = cmp.Or(p.opts.Listen, conf.Listen.Address)
		kind, _, socket := gatewayconfig.SocketAddress(p.address)
		p.remote = p.address != "stdio" && !(socket && kind == "unix")
		if conf.Auth != nil && len(conf.Auth.Issuers) > 0 {
			p.tokens = &policy.CallerTokens{}
		}
		if conf.HasLogins() {
			if err := p.openLogins(conf); err != nil {
				return nil, err
			}
			defer func() {
				if err != nil {
					p.logins.close()
				}
			}()
		}
	}
	c := &configuration{Config: conf}
	builder := &upstreamBuilder{conf: conf, log: p.log, remote: p.remote, tokens: p.tokens, logins: p.logins, node: p.node}
	c.options = gateway.Options{
		Info: mcp.Implementation{Name: "mcpwire-gateway", Version: build.Version()}, Instructions: conf.Instructions, LabelElicitations: conf.LabelsElicitations(), ListWait: conf.ListWait.Or(0),
		DrainTimeout: conf.Drain.Or(gatewayconfig.DefaultDrain), MaxSessions: conf.Listen.MaxSessions(), Logger: p.log,
	}
	c.options.Observe = p.observe()
	if p.node != nil {
		c.options.TaskOwners = p.node.TaskOwners
	}
	if c.options.Secrets, err = conf.Secrets(); err != nil {
		return nil, err
	}
	if c.options.Secrets == nil && old == nil && p.node != nil {
		c.options.Secrets = p.node.Secrets
	}
	if c.options.Upstreams, err = builder.build(); err != nil {
		return nil, err
	}
	var oldPolicy *callerPolicy
	if old != nil {
		oldPolicy = old.policy
	}
	if c.policy, err = newCallerPolicy(conf, p.path, oldPolicy, p.opts.Stderr, p.log); err != nil {
		return nil, err
	}
	c.policy.apply(&c.options)
	modes := pinModesOf(conf)
	c.policy.pinModes.CompareAndSwap(nil, &modes)
	return c, nil
}

// warnMissing logs what this machine lacks. It costs only some tools.
func (p *process) warnMissing(c *configuration) {
	for _, e := range c.Check() {
		p.log.Warn(safe.Line(e.Error()))
	}
}

// now returns the present configuration.
func (p *process) now() *configuration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
}

// guard returns the guard that admits callers, or nil without auth. The error is a
// [*gatewayconfig.Error].
func (p *process) guard(a *gatewayconfig.Auth) (*auth.Guard, error) {
	if a == nil || p.address == "stdio" {
		return nil, nil
	}
	c := p.now()
	opts := &auth.GuardOptions{Resource: a.Resource, ScopesSupported: a.Scopes, RequiredScopes: a.Scopes, Name: "mcpwire gateway", ClientAddr: p.clientAddr(), Logger: p.log}
	if !a.Token.IsZero() {
		token, err := a.Token.Resolve()
		if err != nil {
			return nil, c.Errorf("auth.token", "auth.token: %v", err)
		}
		if opts.Verifier, err = auth.NewStatic(auth.StaticToken{Token: token.Reveal(), Subject: a.Token.String()}); err != nil {
			return nil, c.Errorf("auth.token", "auth.token: %v", err)
		}
	} else {
		var verifiers []auth.Verifier
		for i, issuer := range a.Issuers {
			v, err := verifierOf(a, issuer)
			if err != nil {
				at := fmt.Sprintf("auth.issuers[%d]", i)
				return nil, c.Errorf(at, "%s: %v", at, err)
			}
			verifiers = append(verifiers, v)
			opts.AuthorizationServers = append(opts.AuthorizationServers, issuer.URL)
		}
		opts.Verifier = p.tokens.Verifier(auth.AnyOf(verifiers...))
	}
	guard, err := auth.NewGuard(opts)
	if err != nil {
		return nil, c.Errorf("auth", "auth: %v", err)
	}
	return guard, nil
}

// verifierOf returns the verifier of the tokens of an issuer.
func verifierOf(a *gatewayconfig.Auth, issuer gatewayconfig.Issuer) (auth.Verifier, error) {
	audiences := []string(issuer.Audience)
	if audiences == nil {
		audiences = []string{a.Resource}
	}
	if in := issuer.Introspection; in != nil {
		secret, err := in.ClientSecret.Resolve()
		if err != nil {
			return nil, fmt.Errorf("introspection.clientSecret: %w", err)
		}
		return auth.NewIntrospection(&auth.IntrospectionOptions{Endpoint: in.Endpoint, Issuer: issuer.URL, Audiences: audiences, ClientID: in.ClientID, ClientSecret: secret})
	}
	return auth.NewJWT(&auth.JWTOptions{Issuer: issuer.URL, Audiences: audiences, JWKSURL: issuer.JWKS})
}

// clientAddr returns the function that determines a client's address, or nil for that of the
// connection.
func (p *process) clientAddr() func(*http.Request) netip.Addr {
	// The configuration is valid.
	proxies, _ := p.now().Listen.Proxies()
	if len(proxies) == 0 {
		return nil
	}
	return streamable.ForwardedFor(proxies...)
}

// record starts the capture that flags or configuration ask for, and lets viewers watch the
// gateway also without one.
func (p *process) record(c *configuration) (*recording.Recording, error) {
	name := cmp.Or(p.opts.Name, strings.TrimSuffix(filepath.Base(p.path), filepath.Ext(p.path)), "gateway")
	if p.node != nil && p.node.Name != "" {
		name += "-" + p.node.Name
	}
	opts := &capture.Options{Transport: "bridge", Name: name, Redact: p.opts.Redact}
	dir := c.Capture
	if p.opts.Record {
		var err error
		if dir, err = captures.Dir(); err != nil {
			return nil, recording.CreateError(err)
		}
	}
	if p.opts.NoWatch && dir == "" {
		return &recording.Recording{}, nil
	}
	return recording.Proxy(p.opts.Stderr, opts, p.opts.Capture, dir, p.log)
}

// serveHTTP serves clients over HTTP until ctx ends. It calls started when it listens.
func (p *process) serveHTTP(ctx context.Context, guard *auth.Guard, started func()) error {
	l := &p.now().Listen
	hosts := slices.Clone(l.Hosts)
	if a := p.now().Auth; a != nil && a.Resource != "" {
		if u, err := url.Parse(a.Resource); err == nil {
			hosts = append(hosts, u.Host)
		}
	}
	opts := &streamable.Options{
		Hosts: hosts, Origins: l.Origins, Guard: guard, ClientAddr: p.clientAddr(),
		Limits: streamable.Limits{
			MaxBody: int(l.MaxMessage), MaxSessions: l.MaxSessions(), MaxStreams: l.Streams, MaxPerCaller: l.PerCaller, MaxInFlightPerCaller: maxCallerRequests,
		},
		Timeouts: streamable.Timeouts{Session: l.SessionTimeout.Or(gatewayconfig.DefaultSessionTimeout)},
		Logger:   p.log,
	}
	if p.node != nil {
		p.node.Options(opts)
	}
	h, err := streamable.NewHandler(&relay.Server{Handler: p.gateway}, opts)
	if err != nil {
		return configurationError(p.path, p.now().Errorf("listen", "listen: %v", err))
	}
	others := map[string]http.Handler{}
	if l.SSE {
		old := p.gateway.Recorded(h.SSE("/messages"))
		others["/sse"], others["/messages"] = old, old
	}
	if guard != nil {
		for _, path := range guard.MetadataPaths() {
			others[path] = guard.Metadata()
		}
	}
	if p.logins != nil && p.logins.listener == nil {
		others[gatewaylogin.Path] = p.logins
	}
	r, err := endpoint.NewRouter(l.Path, p.gateway.Recorded(h), others)
	if err != nil {
		return configurationError(p.path, p.now().Errorf("listen.path", "listen.path: %v", err))
	}
	o := &httpserve.Options{
		AllowRemote: guard != nil || l.AllowRemote, OnShutdown: h.Shutdown,
		ShutdownTimeout: p.now().Drain.Or(gatewayconfig.DefaultDrain), Logger: p.log,
	}
	if p.node != nil {
		o.ShutdownDelay = p.node.Delay
	}
	scheme := "http"
	if l.TLS != nil {
		o.CertFile, o.KeyFile, scheme = string(l.TLS.Cert), string(l.TLS.Key), "https"
	}
	o.OnListen = func(a net.Addr) {
		p.log.Info("listening", "url", scheme+"://"+a.String()+l.Path)
		if p.node != nil {
			p.node.Started(p.gateway, h, p.now().Keys == nil, a, l.Path)
		}
		started()
	}
	err = httpserve.ListenAndServe(ctx, p.address, r, o)
	if errors.Is(err, httpserve.ErrRemoteAddress) {
		return exit.Fail(exit.Unexpected, "remote_address", "add auth to the configuration, or listen.allowRemote, or listen at 127.0.0.1",
			fmt.Errorf("gateway: not listening at %s, which other machines can reach", safe.Line(p.address)))
	}
	return err
}

// maxCallerRequests limits the pending requests of one caller. Many agents may use one address.
const maxCallerRequests = 2048

// serveSocket serves at most maxClients clients that connect to l with serve, until ctx ends. It
// waits for them.
func serveSocket(ctx context.Context, l net.Listener, serve func(context.Context, jsonrpc.Framer) error, maxClients, maxFrame int, log *slog.Logger) error {
	return bridge.ServeConns(ctx, l, maxClients, log, func(conn net.Conn) error {
		f := jsonrpc.NewFramer(conn, &jsonrpc.FramerOptions{Framing: jsonrpc.FramingAuto, MaxFrame: maxFrame})
		return serve((*relay.Server)(nil).WithIdentity(ctx, "", bridge.CallerOfConn(conn)), f)
	})
}
