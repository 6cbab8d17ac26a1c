package cli

import (
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
	"mcpwire/internal/proxy/bridge"
	"mcpwire/internal/trace/captures"
	livesock "mcpwire/internal/trace/live"
	"mcpwire/jsonrpc"
	"mcpwire/stdio"
)

const bridgeLong = `Brings clients to a server that they do not fit: one of the two is a command and
the other on the web, or they are of different eras, of which legacy begins with
a handshake and modern does not.

TARGET is the server: a URL (Streamable HTTP, or the older HTTP+SSE), the
name of a server in any host's configuration, unix:PATH, tcp:HOST:PORT, or a
command behind --.

Without --listen there is one client, on standard input and output: that is for
a host's configuration. With --listen any number come to an address: HOST:PORT
is Streamable HTTP, at /mcp; unix:PATH and tcp:HOST:PORT are sockets.

Messages pass as they are if both sides are of the same era, and are translated
if not. The bridge finds out what each side speaks, unless --era, --client-era or
--server-era say what it may.

Each client has a process or a session of the server to itself, which ends with
it, or a few minutes after a client on HTTP has left without a word
(--session-timeout). One user, or one address, may have 32 processes, and there
may be 100 in all; what exceeds that is refused, over HTTP with status 429 or 503.

If a process or session of the server ends first, requests that wait are answered
at once, and it is started again. What is asked for meanwhile waits for that, no
longer than --restart-wait. What a process wrote to standard error last is in the
answers to a client on standard input and output or a unix socket, without
secrets; others hear how it ended, and the log has the rest.

With --sessions shared, one process or session serves the clients of a user
together. A modern server serves all of them so. A legacy server is told once,
in the handshake, what its client is and can be asked: those share that say the
same of themselves, so a command may run once for each kind of client. Where
nobody has to log in, everybody is the same user.

If a server on the web wants a login, the address is on standard error, and the
browser is opened: with --listen on a terminal after Enter. Tokens are kept for
the next time, for all commands. All who come to the bridge then act as the user
who has logged in.

--capture records both sides, and what became what: mcpwire watch shows it while
it goes on, with before and after side by side (tab 9), and mcpwire show, check,
replay, mock and export read it, or with --side one side of it. What lets
somebody in is hidden.

Over HTTP, /healthz says that the bridge runs, /readyz that the server answers,
and /metrics counts. If nothing came from a command for a minute, it is started
for /readyz, and ended; nobody has to log in for /readyz, but a server that wants
a login is not ready before. Other machines get in only with --token-env or
--allow-remote, names besides localhost with --host, web pages with --origin.`

const bridgeExample = `  # in a host's configuration, a server on the web
  {"command": "mcpwire", "args": ["bridge", "https://example.com/mcp"]}

  # a command, for clients that are given http://127.0.0.1:8080/mcp
  mcpwire bridge --listen 127.0.0.1:8080 -- node server.js

  # the same, on a unix socket
  mcpwire bridge --listen unix:/run/user/1000/mcp.sock -- node server.js

  # a key from the environment, in no list of processes
  mcpwire bridge -H 'X-Api-Key: ${KEY}' https://example.com/mcp`

func newBridgeCommand(e *env) *cobra.Command {
	f := newBridgeFlags()
	c := &cobra.Command{
		Use:         "bridge [FLAGS] TARGET | bridge [FLAGS] -- COMMAND [ARGUMENTS]",
		Short:       "connect clients to a server over another transport or era",
		Long:        bridgeLong,
		Example:     bridgeExample,
		Annotations: map[string]string{ownSignals: "true"},
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

func runBridge(cmd *cobra.Command, e *env, f *bridgeFlags, args []string) error {
	if err := f.check(cmd.Flags().Changed); err != nil {
		return err
	}
	handler := stdio.NewLogHandler(e.stderr, &stdio.LogOptions{Level: f.level(), JSON: f.json})
	defer handler.Close()
	log := slog.New(handler)
	far, err := f.upstream(cmd, e, args, log)
	if err != nil {
		return err
	}
	rec, err := f.record(e, far, log)
	if err != nil {
		return err
	}
	opts := f.options(far, log)
	if rec != nil {
		opts.Record = rec.writer
		defer rec.finish(e)
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
	if kind, where, ok := socketAddress(f.listen); ok {
		return f.serveSocket(ctx, b, kind, where, log)
	}
	return f.serveHTTP(ctx, b, f.sessionTime(far), log)
}

// serveStdio serves the client on standard input and output.
func (f *bridgeFlags) serveStdio(ctx context.Context, e *env, b *bridge.Bridge, log *slog.Logger) error {
	cfg := stdio.Config{Framing: f.clientFraming, MaxFrame: f.maxFrame, StopTimeout: f.drain + stopMargin, Logger: log}
	out, ok := e.stdout.(*os.File)
	if ok && (e.stdin != os.Stdin || out != os.Stdout) {
		cfg.Stdin, cfg.Stdout = e.stdin, out
	}
	if ok {
		read, stop := whileRead(ctx, out)
		defer stop()
		if err := cfg.Serve(read, b); err != nil && read.Err() == nil {
			return err
		}
		return ctx.Err()
	}
	return cfg.Serve(ctx, b)
}

// stopMargin is the time that closing the bridge may take after the drain timeout.
const stopMargin = 5 * time.Second

// record starts the capture that the flags request, and lets viewers watch it. It returns nil if
// the flags request no capture.
func (f *bridgeFlags) record(e *env, far *upstreamTarget, log *slog.Logger) (*tapRecording, error) {
	if f.capture == "" && !f.recordIt {
		return nil, nil
	}
	server := livesock.NewServer(nil)
	opts := &capture.Options{Tool: "mcpwire " + Version, Transport: "bridge", Name: far.name, URL: far.url, Unredacted: f.redact == "off", Tee: server, Notice: e.notice}
	var file *capture.File
	var err error
	if f.capture != "" {
		file, err = capture.Create(f.capture, opts)
	} else {
		var dir string
		if dir, err = captures.Dir(); err == nil {
			file, err = captures.Create(dir, far.name, opts)
		}
	}
	if err != nil {
		return nil, fail(exitUnexpected, "output", "name a file that does not exist, in a folder that does", err)
	}
	log.Debug("recording", "file", file.Name())
	rec := &tapRecording{file: file, writer: file.Writer}
	if err := rec.show(server, far.name, "bridge"); err != nil {
		log.Debug("it cannot be watched", "error", err)
	}
	return rec, nil
}

// socketAddress parses unix:PATH and tcp:HOST:PORT.
func socketAddress(s string) (kind, where string, ok bool) {
	kind, where, ok = strings.Cut(s, ":")
	return kind, where, ok && where != "" && (kind == "unix" || kind == "tcp" && strings.Contains(where, ":"))
}

// A upstreamTarget describes how to reach the server.
type upstreamTarget struct {
	name string
	// url is empty for a command and a socket.
	url  string
	http bool
	// process reports whether the server is a command.
	process bool
	connect bridgeConnect

	// login returns when a user last had to log in. It is nil if nobody ever logs in.
	login func() time.Time
	// readyFor is how long the readiness check trusts the last message of the server. Zero means
	// the bridge's default.
	readyFor time.Duration
}

// upstream returns how to connect to the server that the command line names. It starts nothing.
func (f *bridgeFlags) upstream(cmd *cobra.Command, e *env, args []string, log *slog.Logger) (*upstreamTarget, error) {
	if cmd.ArgsLenAtDash() < 0 && len(args) == 1 {
		if kind, where, ok := socketAddress(args[0]); ok {
			return f.socketSide(kind, where)
		}
	}
	t, rest, err := splitTarget(cmd, e, args)
	if err != nil {
		return nil, err
	}
	if len(rest) > 0 {
		return nil, usagef("bridge: unexpected argument %q (flags go before the server)", rest[0])
	}
	if err := f.target.merge(&t); err != nil {
		return nil, err
	}
	if t.isStdio() {
		if !filepath.IsAbs(t.command[0]) && !strings.ContainsRune(t.command[0], filepath.Separator) {
			if err := inPath(t.command[0]); err != nil {
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
func (f *bridgeFlags) options(far *upstreamTarget, log *slog.Logger) *bridge.Options {
	o := &bridge.Options{
		Connect: far.connect, HTTP: far.http, Name: far.name, ClientEra: f.clientEra, ServerEra: f.serverEra, Shared: f.sessions == "shared",
		ConnectTimeout: negative(f.target.connectTimeout), LastLogin: far.login, CallTimeout: negative(f.timeout), ReadyFor: far.readyFor, IdleTimeout: f.idle, MaxSessions: f.maxSessions,
		MaxBacklog: f.maxBacklog, MinBackoff: f.minBackoff, MaxBackoff: f.maxBackoff, RestartWait: negative(f.restartWait), DrainTimeout: f.drain,
		Remote: f.remote(), Unredacted: f.redact == "off", Logger: log,
	}
	if far.process {
		o.MaxServers, o.MaxServersPerCaller = f.maxProcesses, f.maxPerCaller
	}
	return o
}

// sessionTime returns how long an unused HTTP session lasts. A client that left without ending its
// session keeps a process until then.
func (f *bridgeFlags) sessionTime(far *upstreamTarget) time.Duration {
	switch {
	case f.sessionTimeout > 0:
		return f.sessionTimeout
	case far.process:
		return 5 * time.Minute
	}
	return 30 * time.Minute
}

// remote reports whether clients may belong to other users. A unix socket is accessible to its
// owner only.
func (f *bridgeFlags) remote() bool {
	kind, _, socket := socketAddress(f.listen)
	return f.listen != "" && !(socket && kind == "unix")
}

// framingOr returns f, or other if f is FramingAuto.
func framingOr(f, other jsonrpc.Framing) jsonrpc.Framing {
	if f == jsonrpc.FramingAuto {
		return other
	}
	return f
}
