// Package connect has the commands that stand between clients and servers, or in place of one side.
package connect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/auth"
	"mcpwire/capture"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/proxy/endpoint"
	gatewayconfig "mcpwire/cmd/internal/proxy/gateway/config"
	"mcpwire/cmd/internal/proxy/recording"
	"mcpwire/cmd/internal/proxy/tap"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace/captures"
	"mcpwire/internal/net/httpserve"
	"mcpwire/internal/proc/environ"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/jsonrpc"
	"mcpwire/stdio"
	"mcpwire/streamable"
)

const bridgeLong = `Connect clients to a server that they cannot use directly: one of the two is a
command and the other is on HTTP, or they are of different eras. The legacy era
has a handshake, the modern era has none.

TARGET is the server: a URL (Streamable HTTP, or the older HTTP+SSE), the name
of a server in any host's configuration, unix:PATH, tcp:HOST:PORT, or a command
after --.

Without --listen, there is one client, on standard input and output. Use this in
a host's configuration. With --listen, any number of clients connect to an
address: HOST:PORT serves Streamable HTTP at /mcp; unix:PATH and tcp:HOST:PORT
are sockets.

If both sides are of the same era, messages pass through unchanged. Otherwise
the bridge translates them. It detects the era of each side, unless --era,
--client-era or --server-era restricts it.

Each client has a dedicated process or session of the server. It ends with the
client, or a few minutes after a client on HTTP disappears (--session-timeout).
By default, one user or address may have 32 processes, and all together may have
100. The bridge rejects requests above these limits, over HTTP with status 429
or 503.

If a process or session of the server ends first, pending requests get an error
at once, and the bridge restarts it. New requests wait for the restart, up to
--restart-wait. Clients on standard input and output or a unix socket get the
last standard error output of the process in those errors, without secrets.
Other clients only learn how the process ended; the log has the rest.

With --sessions shared, the clients of a user share one process or session. All
of them can share a modern server. A legacy server learns its client's identity
and capabilities once, in the handshake, so only clients that declare the same
ones share it, and a command may run once for each kind of client. Without a
login, all clients are the same user.

A command gets the environment of the bridge, because hosts give the bridge the
variables of the server, but not the token of --token-env. It runs as the same
user, and on Linux could read that in /proc.

If a server on HTTP requires a login, the bridge prints the URL on standard
error and opens the browser: with --listen on a terminal, after Enter. Tokens
are stored for later use by all commands. All clients of the bridge then act as
the user who logged in.

--capture records both sides, and which message was translated into which.
mcpwire watch shows the capture live, with both sides of a translation next to
each other (tab 9). mcpwire show, check, replay, mock and export read it, or
with --side one side of it. Credentials are redacted.

Over HTTP, /healthz reports that the bridge runs, /readyz that the server
responds, and /metrics returns metrics. If a command has sent nothing for a
minute, /readyz starts it and ends it again. /readyz does not start a login, but
a server that requires one is not ready before it. Other machines need
--token-env or --allow-remote, host names other than localhost need --host, and
web pages need --origin.`

const bridgeExample = `  # in a host's configuration, a server on the web
  {"command": "mcpwire", "args": ["bridge", "https://example.com/mcp"]}

  # a command, for clients that are given http://127.0.0.1:8080/mcp
  mcpwire bridge --listen 127.0.0.1:8080 -- node server.js

  # the same, on a unix socket
  mcpwire bridge --listen unix:/run/user/1000/mcp.sock -- node server.js

  # a key from the environment, in no list of processes
  mcpwire bridge -H 'X-Api-Key: ${KEY}' https://example.com/mcp`

// NewBridgeCommand returns the command bridge.
func NewBridgeCommand(e *kit.Env) *cobra.Command {
	f := &bridgeFlags{}
	c := &cobra.Command{
		Use:               "bridge [FLAGS] TARGET | bridge [FLAGS] -- COMMAND [ARGUMENTS]",
		Short:             "connect clients to a server over another transport or era",
		Long:              bridgeLong,
		Example:           bridgeExample,
		Annotations:       map[string]string{kit.OwnSignals: "true"},
		ValidArgsFunction: targets.CompleteServers(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runBridge(cmd, e, f, args)
		},
	}
	f.register(c.Flags())
	eras := []string{bridge.EraAuto.String(), bridge.EraLegacy.String(), bridge.EraModern.String()}
	for name, values := range map[string][]string{
		"era": eras, "client-era": eras, "server-era": eras, "client-framing": {"auto", "line", "header"}, "sessions": {"per-client", "shared"}, "redact": {"default", "off"},
	} {
		// It fails only for an unknown flag.
		_ = c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return c
}

func runBridge(cmd *cobra.Command, e *kit.Env, f *bridgeFlags, args []string) error {
	if err := f.check(cmd.Flags().Changed); err != nil {
		return err
	}
	handler := stdio.NewLogHandler(e.Stderr, &stdio.LogOptions{Level: f.level(), JSON: f.json})
	defer handler.Close()
	log := slog.New(handler)
	upstream, err := f.upstream(cmd, e, args, log)
	if err != nil {
		return err
	}
	rec, err := f.record(e, upstream, log)
	if err != nil {
		return err
	}
	opts := f.options(upstream, log)
	if rec != nil {
		opts.Record = rec.Writer
		defer rec.Finish(e.Stderr)
	}
	b, err := bridge.New(opts)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // a second signal ends the process at once
	defer b.Close()                      // closes the server also after the first signal
	if f.listen == "" {
		return f.serveStdio(cmd.Context(), e, b, log)
	}
	context.AfterFunc(ctx, b.Drain)
	if kind, where, ok := gatewayconfig.SocketAddress(f.listen); ok {
		return f.serveSocket(ctx, b, kind, where, log)
	}
	return f.serveHTTP(ctx, b, f.sessionTime(upstream), log)
}

// serveStdio serves the client on standard input and output.
func (f *bridgeFlags) serveStdio(ctx context.Context, e *kit.Env, b *bridge.Bridge, log *slog.Logger) error {
	return endpoint.ServeStdio(ctx, e.Stdin, e.Stdout, b, stdio.Config{Framing: f.clientFraming, MaxFrame: f.maxFrame, StopTimeout: max(f.drain, f.drain+endpoint.StopMargin), Logger: log})
}

// record starts the capture that the flags request, and lets viewers watch it. It returns nil if
// the flags request no capture.
func (f *bridgeFlags) record(e *kit.Env, upstream *upstreamTarget, log *slog.Logger) (*recording.Recording, error) {
	if f.capture == "" && !f.recordIt {
		return nil, nil
	}
	name := cmp.Or(f.name, upstream.name)
	dir, err := "", error(nil)
	if f.capture == "" {
		dir, err = captures.Dir()
	}
	if err != nil {
		return nil, recording.CreateError(err)
	}
	return recording.Proxy(e.Stderr, &capture.Options{Transport: "bridge", Name: name, URL: upstream.url, Redact: recording.Redaction(f.redact)}, f.capture, dir, log)
}

// An upstreamTarget describes how to reach the server.
type upstreamTarget struct {
	name string
	// url is empty for a command and a socket.
	url  string
	http bool
	// process reports whether the server is a command.
	process bool
	connect endpoint.Connect

	// login returns when a user last had to log in. It is nil if nobody ever logs in.
	login func() time.Time
	// readyFor is how long the readiness check trusts the last message of the server. Zero means
	// the bridge's default.
	readyFor time.Duration
}

// upstream returns how to connect to the server that the command line names. It starts nothing.
func (f *bridgeFlags) upstream(cmd *cobra.Command, e *kit.Env, args []string, log *slog.Logger) (*upstreamTarget, error) {
	if cmd.ArgsLenAtDash() < 0 && len(args) == 1 {
		if kind, where, ok := gatewayconfig.SocketAddress(args[0]); ok {
			return f.socketSide(kind, where)
		}
	}
	t, rest, err := targets.Split(cmd, e, args)
	if err != nil {
		return nil, err
	}
	if len(rest) > 0 {
		return nil, exit.Usagef("bridge: unexpected argument %q (flags go before the server)", rest[0])
	}
	if err := f.target.Merge(&t); err != nil {
		return nil, err
	}
	if t.IsStdio() {
		if filepath.IsAbs(t.Command[0]) || !strings.ContainsRune(t.Command[0], filepath.Separator) || t.Dir == "" {
			if err := inPath(t.Command[0]); err != nil {
				return nil, err
			}
		}
		return f.processSide(e, &t), nil
	}
	return f.urlSide(e, &t, log)
}

// nameOfURL returns the name that a URL's server has in a capture.
func nameOfURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return "server"
	}
	return u.Host
}

// negative converts a time limit of a flag, where zero means none, to an option of the bridge,
// where a negative time means none.
func negative(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// options returns the options of the bridge.
func (f *bridgeFlags) options(upstream *upstreamTarget, log *slog.Logger) *bridge.Options {
	o := &bridge.Options{
		Connect: upstream.connect, HTTP: upstream.http, Name: upstream.name, ClientEra: f.clientEra, ServerEra: f.serverEra, Shared: f.sessions == "shared",
		ConnectTimeout: negative(f.target.ConnectTimeout), LastLogin: upstream.login, CallTimeout: negative(f.timeout), ReadyFor: upstream.readyFor, IdleTimeout: f.idle, MaxSessions: f.maxSessions,
		MaxBacklog: f.maxBacklog, MinBackoff: f.minBackoff, MaxBackoff: f.maxBackoff, RestartWait: negative(f.restartWait), DrainTimeout: f.drain,
		Remote: f.remote(), Unredacted: f.redact == "off", Logger: log,
		Hints: bridge.Hints{
			Login:       "run mcpwire call with its URL on a terminal to log in, or give the bridge a key with --header",
			Certificate: "--cacert adds one",
			MaxMessage:  "--max-frame sets the limit",
		},
	}
	if upstream.process {
		o.MaxServers, o.MaxServersPerCaller = f.maxProcesses, f.maxPerCaller
	}
	return o
}

// sessionTime returns how long an unused HTTP session lasts. A client that left without ending its
// session keeps a process until then.
func (f *bridgeFlags) sessionTime(upstream *upstreamTarget) time.Duration {
	switch {
	case f.sessionTimeout > 0:
		return f.sessionTimeout
	case upstream.process:
		return 5 * time.Minute
	}
	return 30 * time.Minute
}

// remote reports whether clients may belong to other users. A unix socket is accessible to its
// owner only.
func (f *bridgeFlags) remote() bool {
	kind, _, socket := gatewayconfig.SocketAddress(f.listen)
	return f.listen != "" && !(socket && kind == "unix")
}

// bridgeFlags holds the flags of the bridge command.
type bridgeFlags struct {
	// target says how to reach the server.
	target targets.Flags

	listen        string
	http          httpFlags
	allowRemote   bool
	clientFraming jsonrpc.Framing
	// era is the era of both sides, unless clientEra or serverEra is set.
	era                  bridge.Era
	clientEra, serverEra bridge.Era
	sessions             string
	timeout, idle        time.Duration
	sessionTimeout       time.Duration
	maxSessions          int
	maxProcesses         int
	// maxPerCaller limits the processes of one user or address.
	maxPerCaller    int
	maxBacklog      int
	minBackoff      time.Duration
	maxBackoff      time.Duration
	restartWait     time.Duration
	drain           time.Duration
	maxFrame        int
	capture, redact string
	recordIt        bool
	name            string
	json            bool
}

// ofServer lists the flags of commands for servers that have the same meaning for a bridge.
var ofServer = []string{
	"transport", "header", "header-file", "env", "cwd", "connect-timeout", "insecure", "cacert", "config", "server", "trust-project", "verbose", "framing",
	"oauth", "no-oauth", "client-id", "client-secret-env", "issuer", "scope",
}

// inBridge holds the help texts of those flags that a bridge describes differently.
var inBridge = map[string]string{
	"verbose":           "log how connections open and close",
	"client-secret-env": "environment variable `NAME` with the secret of --client-id; without a terminal, the bridge then acts for itself, not for a user",
}

func (f *bridgeFlags) register(all *pflag.FlagSet) {
	known := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.target.Define(known)
	for _, name := range ofServer {
		flag := known.Lookup(name)
		flag.Annotations = map[string][]string{kit.OfTarget: nil}
		if usage, ok := inBridge[name]; ok {
			flag.Usage = usage
		}
		all.AddFlag(flag)
	}
	f.target.Set = all
	all.StringVar(&f.listen, "listen", "", "`ADDRESS` for clients, such as 127.0.0.1:8080, unix:PATH or tcp:127.0.0.1:9000")
	f.registerHTTP(all)
	all.Func("client-framing", "framing of clients on standard input or a socket: `KIND` is line, header, or auto, which follows the client (default auto)", kit.FramingFlag(&f.clientFraming, true))
	all.Func("era", "`ERA` that both sides may speak: legacy, modern, or auto for either (default auto)", eraFlag(&f.era))
	all.Func("client-era", "`ERA` that clients may speak (default that of --era)", eraFlag(&f.clientEra))
	all.Func("server-era", "`ERA` that the server speaks, without asking it (default that of --era)", eraFlag(&f.serverEra))
	all.DurationVar(&f.target.LoginTimeout, "login-timeout", 3*time.Minute, "time for the user to log in; other timeouts pause meanwhile")
	all.StringVar(&f.sessions, "sessions", "per-client", "`HOW` clients use the server: per-client, or shared, which is one process or session for clients of the same kind")
	all.DurationVar(&f.timeout, "timeout", 5*time.Minute, "time for the server to respond or report progress; 0 means no limit")
	all.DurationVar(&f.sessionTimeout, "session-timeout", 0, "time until an HTTP session expires whose client has no open stream and sends no requests; 0 means 5m if the server is a command, otherwise 30m")
	all.DurationVar(&f.idle, "idle-timeout", 30*time.Minute, "time until an unused process or session of the server expires, for clients without a session and for shared ones")
	all.IntVar(&f.maxSessions, "max-sessions", 1000, "maximum number of clients at a time")
	all.IntVar(&f.maxProcesses, "max-processes", 100, "with a command, maximum number of processes for clients at a time")
	all.IntVar(&f.maxPerCaller, "max-processes-per-caller", 32, "maximum number of processes for one user, or for one network address without a login")
	all.IntVar(&f.maxBacklog, "max-backlog", 4096, "maximum number of requests of a client that wait for the first start of the server; more are rejected, over HTTP with status 503")
	all.DurationVar(&f.minBackoff, "min-backoff", 200*time.Millisecond, "backoff before the server is restarted; it doubles with each consecutive failure, until a request is answered")
	all.DurationVar(&f.maxBackoff, "max-backoff", 30*time.Second, "maximum backoff before the server is restarted")
	all.DurationVar(&f.restartWait, "restart-wait", 10*time.Second, "time that a request waits for a restart of the server; if the backoff ends later, it fails at once")
	all.DurationVar(&f.drain, "drain-timeout", 10*time.Second, "grace period for requests in flight when the bridge is stopped or its input ends; requests that take longer get an error, and the exit status is 1")
	all.Func("max-frame", "`SIZE` of the largest message to read, such as 65536, 64K or 16M (default 64M, from clients over HTTP 4M)", sizeFlag(&f.maxFrame))
	all.StringVar(&f.capture, "capture", "", "record both sides to `FILE`, or with a number if it exists, for mcpwire watch, show and others; compressed if it ends in .gz or .zst")
	all.StringVar(&f.name, "name", "", "with --record or --capture, `NAME` of the server in the capture (default that of the package, module, image, program or host)")
	all.BoolVar(&f.recordIt, "record", false, "record both sides to the captures folder (mcpwire captures)")
	all.StringVar(&f.redact, "redact", "default", "what to redact in the capture: `WHAT` is default, or off for nothing")
	all.BoolVar(&f.json, "log-json", false, "log in JSON, one object per line")
}

func (f *bridgeFlags) registerHTTP(fs *pflag.FlagSet) {
	h := &f.http
	fs.StringVar(&h.path, "path", "/mcp", "with HTTP, `PATH` of the endpoint")
	fs.BoolVar(&h.sse, "sse", false, "with HTTP, also serve the older HTTP+SSE transport, at /sse and /messages")
	fs.Var(&h.hosts, "host", "with HTTP, host `NAME` that clients use in addition to localhost; may be repeated")
	fs.Var(&h.origins, "origin", "with HTTP, `ORIGIN` of allowed web pages, such as https://app.example.com; may be repeated")
	fs.StringVar(&h.tokenEnv, "token-env", "", "with HTTP, require the bearer token in the environment variable `NAME`, which the server does not get")
	fs.Var(&h.proxies, "behind", "with HTTP, `NETWORK` or address of a reverse proxy, whose X-Forwarded-For identifies clients; may be repeated")
	fs.StringVar(&h.certFile, "tls-cert", "", "with HTTP, serve TLS with the certificate in `FILE`, in PEM")
	fs.StringVar(&h.keyFile, "tls-key", "", "with HTTP, `FILE` with the certificate's private key, in PEM")
	fs.BoolVar(&f.allowRemote, "allow-remote", false, "with --listen, allow an address that other machines can reach without a token")
}

// eraFlag returns the setter of a flag for an era.
func eraFlag(era *bridge.Era) func(string) error {
	return func(s string) (err error) {
		*era, err = bridge.ParseEra(s)
		return err
	}
}

// level returns the lowest level to log.
func (f *bridgeFlags) level() slog.Level {
	if f.target.Verbose {
		return slog.LevelDebug
	}
	if f.listen != "" {
		return slog.LevelInfo
	}
	// Hosts treat everything on standard error as trouble.
	return slog.LevelWarn
}

// check returns an error for invalid flags and combinations. set reports whether a flag was given.
func (f *bridgeFlags) check(set func(name string) bool) error {
	if !set("client-era") {
		f.clientEra = f.era
	}
	if !set("server-era") {
		f.serverEra = f.era
	}
	_, _, socket := gatewayconfig.SocketAddress(f.listen)
	for _, name := range []string{"path", "sse", "host", "origin", "token-env", "behind", "tls-cert", "tls-key"} {
		if set(name) && (f.listen == "" || socket) {
			return exit.Usagef("bridge: --%s needs --listen HOST:PORT", name)
		}
	}
	switch {
	case set("client-framing") && f.listen != "" && !socket:
		return exit.Usagef("bridge: --client-framing is for standard input and output and sockets, not for HTTP")
	case set("allow-remote") && f.listen == "":
		return exit.Usagef("bridge: --allow-remote needs --listen")
	case !strings.HasPrefix(f.http.path, "/"):
		return exit.Usagef("bridge: --path %q must begin with /", f.http.path)
	case (f.http.certFile == "") != (f.http.keyFile == ""):
		return exit.Usagef("bridge: --tls-cert and --tls-key go together")
	case f.sessions != "per-client" && f.sessions != "shared":
		return exit.Usagef("bridge: --sessions %s: want per-client or shared", safe.Line(f.sessions))
	case f.name != "" && f.capture == "" && !f.recordIt:
		return exit.Usagef("bridge: --name needs --record or --capture")
	case f.capture != "" && f.recordIt:
		return exit.Usagef("bridge: --capture and --record exclude each other")
	case f.capture == "-":
		return exit.Usagef("bridge: standard output goes to the client: --capture needs a file")
	case f.target.LoginTimeout <= 0:
		return exit.Usagef("bridge: --login-timeout must be more than 0")
	case f.maxBacklog <= 0 || f.minBackoff <= 0 || f.maxBackoff < f.minBackoff || f.restartWait < 0:
		return exit.Usagef("bridge: --max-backlog and --min-backoff must be more than 0, --max-backoff no less than --min-backoff, --restart-wait cannot be negative")
	case f.drain <= 0:
		return exit.Usagef("bridge: --drain-timeout must be more than 0")
	case f.sessionTimeout < 0 || f.maxProcesses <= 0 || f.maxPerCaller <= 0:
		return exit.Usagef("bridge: --session-timeout cannot be negative, --max-processes and --max-processes-per-caller must be more than 0")
	case f.timeout < 0 || f.idle <= 0 || f.maxSessions <= 0:
		return exit.Usagef("bridge: --timeout cannot be negative, --idle-timeout and --max-sessions must be more than 0")
	}
	return nil
}

// serveHTTP serves clients over HTTP until ctx ends.
func (f *bridgeFlags) serveHTTP(ctx context.Context, b *bridge.Bridge, sessionTimeout time.Duration, log *slog.Logger) (err error) {
	if _, _, err := net.SplitHostPort(f.listen); err != nil {
		return exit.Usagef("bridge: invalid value %q for flag --listen: want an address and a port such as 127.0.0.1:8080, unix:PATH or tcp:HOST:PORT", f.listen)
	}
	guard, err := f.http.guard(log)
	if err != nil {
		return exit.Usagef("bridge: %w", err)
	}
	h, err := b.Handler(&streamable.Options{
		Hosts: f.http.hosts, Origins: f.http.origins, Guard: guard, ClientAddr: f.http.clientAddr(),
		Limits:   streamable.Limits{MaxBody: f.maxFrame, MaxSessions: f.maxSessions},
		Timeouts: streamable.Timeouts{Session: sessionTimeout},
		Logger:   log,
	})
	if err != nil {
		return exit.Usagef("bridge: --host or --origin: %w", err)
	}
	r, err := f.router(b, h, guard)
	if err != nil {
		return exit.Usagef("bridge: --path: %w", err)
	}
	scheme := "http"
	if f.http.certFile != "" {
		scheme = "https"
	}
	err = httpserve.ListenAndServe(ctx, f.listen, r, &httpserve.Options{
		AllowRemote: guard != nil || f.allowRemote,
		CertFile:    f.http.certFile, KeyFile: f.http.keyFile,
		OnListen:        func(a net.Addr) { log.Info("listening", "url", scheme+"://"+a.String()+f.http.path) },
		OnShutdown:      h.Shutdown,
		ShutdownTimeout: f.drain,
		Logger:          log,
	})
	if errors.Is(err, httpserve.ErrRemoteAddress) {
		return exit.Fail(exit.Unexpected, "remote_address", "give --token-env, or --allow-remote, or listen at 127.0.0.1",
			fmt.Errorf("bridge: not listening at %s, which other machines can reach", f.listen))
	}
	return err
}

// router returns the HTTP handler of the bridge.
func (f *bridgeFlags) router(b *bridge.Bridge, h *streamable.Handler, guard *auth.Guard) (*endpoint.Router, error) {
	handlers := map[string]http.Handler{"/metrics": h.Protect(b.Metrics())}
	// Health checks from other machines have no token.
	if remote := guard != nil || f.allowRemote; remote {
		handlers["/healthz"], handlers["/readyz"] = b.Healthz(), b.Readyz(false)
	} else {
		handlers["/healthz"], handlers["/readyz"] = h.Protect(b.Healthz()), h.Protect(b.Readyz(true))
	}
	sse := func(messages string) http.Handler { return b.Recorded(h.SSE(messages)) }
	return f.http.router(b.Recorded(h), sse, guard, handlers)
}

// serveSocket serves clients on a unix socket or a TCP port until ctx ends.
func (f *bridgeFlags) serveSocket(ctx context.Context, b *bridge.Bridge, kind, where string, log *slog.Logger) error {
	l, err := f.listenSocket(ctx, kind, where)
	if err != nil {
		return err
	}
	log.Info("listening", "address", kind+":"+l.Addr().String())
	return b.ServeListener(ctx, l, f.clientFraming, f.maxFrame)
}

func (f *bridgeFlags) listenSocket(ctx context.Context, kind, where string) (net.Listener, error) {
	if kind == "tcp" && !f.allowRemote {
		host, port, err := net.SplitHostPort(where)
		if err != nil {
			return nil, exit.Usagef("bridge: invalid value %q for flag --listen: want tcp:HOST:PORT", f.listen)
		}
		switch addr, err := netip.ParseAddr(host); {
		case host == "":
			where = net.JoinHostPort("127.0.0.1", port)
		case host != "localhost" && (err != nil || !addr.IsLoopback()):
			return nil, exit.Fail(exit.Unexpected, "remote_address", "a socket has no authentication: give --allow-remote, or listen at 127.0.0.1",
				fmt.Errorf("bridge: not listening at %s, which other machines can reach", f.listen))
		}
	}
	return endpoint.ListenSocket(ctx, kind, where)
}

// inPath returns an error if the program is not found in PATH.
func inPath(program string) error {
	if _, err := exec.LookPath(program); err != nil && !errors.Is(err, exec.ErrDot) {
		start := &tap.StartError{Command: program, Err: err}
		hint := "check the command's path"
		if errors.Is(err, exec.ErrNotFound) {
			hint = "the program is not in the PATH set by the host: use its full path"
		}
		return exit.Fail(exit.Unreachable, "spawn", hint, start)
	}
	return nil
}

// processSide starts a process for each connection and copies its standard error to that of the
// bridge.
func (f *bridgeFlags) processSide(e *kit.Env, t *targets.Spec) *upstreamTarget {
	show := kit.NewTailWriter(e.Stderr)
	base := stdio.Command(t.Command[0], t.Command[1:]...)
	base.Dir, base.Env, base.Framing, base.MaxFrame = t.Dir, t.Env, f.target.Framing, f.maxFrame
	// Hosts give the bridge the variables of the server; only the secret of the bridge is not one.
	base.EnvAllow = environ.Names(nil, []string{f.http.tokenEnv})
	return &upstreamTarget{name: t.CaptureName(), process: true, readyFor: time.Minute, connect: func(ctx context.Context, stderr io.Writer) (jsonrpc.Framer, error) {
		cmd := *base
		cmd.Stderr = io.MultiWriter(show, stderr)
		return endpoint.StartProcess(ctx, &cmd)
	}}
}

// urlSide connects over HTTP. All connections share one transport and its knowledge of the server's
// tools.
func (f *bridgeFlags) urlSide(e *kit.Env, t *targets.Spec, log *slog.Logger) (*upstreamTarget, error) {
	side, err := f.httpSide(e, t)
	if err != nil {
		return nil, err
	}
	transport := streamable.NewTransport(t.URL, &streamable.TransportOptions{
		HTTPClient: &http.Client{Transport: bridge.OuterTransport(side)}, Header: t.Header, NoSSE: t.Transport == targets.TransportHTTP, MaxFrame: f.maxFrame, UnavailableTimeout: endpoint.UnavailableTimeout, Logger: log,
	})
	return &upstreamTarget{name: nameOfURL(t.URL), url: t.URL, http: true, login: side.LastLogin, connect: func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) {
		return transport.Connect(ctx)
	}}, nil
}

// httpSide returns the round tripper for the requests to the server. Unlike that of other commands,
// it lets a user log in although standard input belongs to a host.
func (f *bridgeFlags) httpSide(e *kit.Env, t *targets.Spec) (*targets.HTTPSide, error) {
	conf, err := f.target.TLS()
	if err != nil {
		return nil, err
	}
	recorded := bridge.Transport(endpoint.Transport(conf, f.target.ConnectTimeout))
	h := &targets.HTTPSide{Next: recorded}
	if t.Transport == targets.TransportSSE {
		h.SSE = t.URL
	}
	how, err := f.target.Login(e, t)
	if err != nil || how == targets.NoLogin {
		return h, err
	}
	if how == targets.ByStore && os.Getenv("CI") == "" {
		how = targets.ByBrowser
	}
	h.Interactive = how == targets.ByBrowser
	// browse is nil on a terminal whose lines belong to a client: there the user opens the page.
	var browse targets.BrowseFunc
	switch {
	case !e.CanAsk():
		browse = targets.OpenBrowser
	case f.listen != "":
		browse = targets.AskFirst(e.Stderr, e.Prompter.Ask, targets.OpenBrowser)
	}
	h.Next, err = f.target.Authorized(e, t, h, targets.Watcher{Base: recorded, Refused: &h.Refused}, conf, how, browse)
	return h, err
}

// socketSide connects to a unix or TCP socket.
func (f *bridgeFlags) socketSide(kind, where string) (*upstreamTarget, error) {
	for _, name := range append(targets.OnlyHTTP, "env", "cwd", "config", "server") {
		if f.target.Given(name) {
			return nil, exit.Usagef("bridge: --%s does not apply to a socket", name)
		}
	}
	if f.target.Transport != targets.TransportAuto {
		return nil, exit.Usagef("bridge: --transport does not apply to a socket")
	}
	framing := endpoint.FramingOr(f.target.Framing, jsonrpc.FramingLine)
	return &upstreamTarget{name: safe.Line(kind + ":" + where), connect: endpoint.Socket(kind, where, framing, f.maxFrame)}, nil
}
