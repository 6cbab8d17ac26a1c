// Package connect has the commands that stand between clients and servers, or in place of one side.
package connect

import (
	"cmp"
	"context"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"mcpwire/capture"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/proxy/endpoint"
	gatewayconfig "mcpwire/cmd/internal/proxy/gateway/config"
	"mcpwire/cmd/internal/proxy/recording"
	"mcpwire/cmd/internal/trace/captures"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/stdio"
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
