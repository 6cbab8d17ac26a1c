package connect

import (
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	gatewayconfig "mcpwire/cmd/internal/proxy/gateway/config"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/jsonrpc"
)

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
