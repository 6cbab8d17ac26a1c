package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"mcpwire/capture"
	"mcpwire/internal/bridge"
	"mcpwire/internal/captures"
	"mcpwire/jsonrpc"
	"mcpwire/stdio"
)

const bridgeLong = `Connects clients to a server that they cannot reach themselves, because it is on
another carrier, or of the other era: legacy, with a handshake and sessions, or
modern, without.

TARGET is the server: a URL (Streamable HTTP, or the older HTTP+SSE), the
name of a server in any host's configuration, unix:PATH, tcp:HOST:PORT, or
everything behind --, a command.

The client is on standard input and output, which is what a host's configuration
takes. With --listen, clients come to an address: HOST:PORT is Streamable HTTP at
/mcp, for clients of all revisions; unix:PATH and tcp:HOST:PORT are sockets, with
lines or Content-Length headers, whichever the client uses.

Messages pass as the bytes that they are if both sides are of the same era, and
are translated if not: --near-era and --far-era say what may be spoken. Each
client has a process of a command, or a session, to itself, which ends with the
client; with --sessions shared all use one, which takes clients of the server's
era only, and cannot ask them anything. When the process ends by itself, or the
server has forgotten its session, whoever waits is told at once, with what it
wrote to standard error last, and it is started again and reminded of the
session.

A URL may want a login: the browser is opened, and tokens are kept for the next
time, as mcpwire call does.

Over HTTP, /healthz says that the bridge runs, /readyz that the server answers,
and /metrics counts. Only this machine and no web page can reach it, unless
--allow-remote and --host, or a token, say otherwise.`

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
		Short:       "connect clients to a server on another carrier or of the other era",
		Long:        bridgeLong,
		Example:     bridgeExample,
		Annotations: map[string]string{ownSignals: "true"},
		RunE: func(cmd *cobra.Command, args []string) error {
			return runBridge(cmd, e, f, args)
		},
	}
	f.register(c.Flags())
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
	rec, err := f.record(e, far.name, log)
	if err != nil {
		return err
	}
	opts := f.options(far, log)
	if rec != nil {
		opts.Record = rec.Writer
		defer finishRecord(e, rec)
	}
	b, err := bridge.New(opts)
	if err != nil {
		return err
	}
	defer b.Close()
	if f.listen == "" {
		return f.serveStdio(cmd.Context(), e, b, log)
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // a second signal ends it as it would end any program
	context.AfterFunc(ctx, b.Drain)
	if kind, where, ok := socketAddress(f.listen); ok {
		return f.serveSocket(ctx, b, kind, where, log)
	}
	return f.serveHTTP(ctx, b, log)
}

// serveStdio has the client be on standard input and output.
func (f *bridgeFlags) serveStdio(ctx context.Context, e *env, b *bridge.Bridge, log *slog.Logger) error {
	cfg := stdio.Config{Framing: f.nearFraming, MaxFrame: f.maxFrame, Logger: log}
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

// record begins the capture that the flags ask for; nil if they ask for none.
func (f *bridgeFlags) record(e *env, name string, log *slog.Logger) (*capture.File, error) {
	if f.capture == "" && !f.recordIt {
		return nil, nil
	}
	opts := &capture.Options{Tool: "mcpwire " + Version, Transport: "bridge", Name: name, Unredacted: f.redact == "off"}
	var rec *capture.File
	var err error
	if f.capture != "" {
		rec, err = capture.Create(f.capture, opts)
	} else {
		var dir string
		if dir, err = captures.Dir(); err == nil {
			rec, err = captures.Create(dir, name, opts)
		}
	}
	if err != nil {
		return nil, fail(exitUnexpected, "output", "name a file that does not exist, in a folder that does", err)
	}
	log.Debug("recording", "file", rec.Name())
	return rec, nil
}

func finishRecord(e *env, rec *capture.File) {
	if err := rec.Close(); err != nil {
		fmt.Fprintln(e.stderr, "mcpwire: the capture is not complete: "+safeLine(err.Error()))
	}
}

// socketAddress reads unix:PATH and tcp:HOST:PORT.
func socketAddress(s string) (kind, where string, ok bool) {
	kind, where, ok = strings.Cut(s, ":")
	return kind, where, ok && where != "" && (kind == "unix" || kind == "tcp" && strings.Contains(where, ":"))
}

// A farSide is how the server is reached.
type farSide struct {
	name    string
	http    bool
	connect bridgeConnect
}

// upstream reads what server the command line means, and says how to connect to it. Nothing is started.
func (f *bridgeFlags) upstream(cmd *cobra.Command, e *env, args []string, log *slog.Logger) (*farSide, error) {
	if cmd.ArgsLenAtDash() < 0 && len(args) == 1 {
		if kind, where, ok := socketAddress(args[0]); ok {
			return f.socketSide(kind, where)
		}
	}
	t, rest, err := splitTarget(cmd, args)
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

// nameOfURL is the name of a URL's server in a capture.
func nameOfURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return "server"
	}
	return u.Host
}

// options are those of the bridge.
func (f *bridgeFlags) options(far *farSide, log *slog.Logger) *bridge.Options {
	timeout := f.timeout
	if timeout == 0 {
		timeout = -1
	}
	return &bridge.Options{
		Connect: far.connect, HTTP: far.http, Name: far.name, Near: f.nearEra, Far: f.farEra, Shared: f.sessions == "shared",
		ConnectTimeout: f.target.connectTimeout, CallTimeout: timeout, IdleTimeout: f.idle, MaxSessions: f.maxSessions, Logger: log,
	}
}

// framingOr returns a framing, or another one in its place if it is not said.
func framingOr(f, other jsonrpc.Framing) jsonrpc.Framing {
	if f == jsonrpc.FramingAuto {
		return other
	}
	return f
}
