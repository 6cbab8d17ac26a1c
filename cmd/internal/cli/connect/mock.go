package connect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/capture"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/sources"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/playback/mock"
	"mcpwire/cmd/internal/proxy/endpoint"
	"mcpwire/internal/net/httpserve"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/jsonrpc"
	"mcpwire/stdio"
	"mcpwire/streamable"
)

const mockLong = `Act as the recorded server: send clients the responses in the capture, on
standard input and output until the input ends, or over HTTP.

A request gets the response of the recorded request with the same method and
params, ignoring _meta. Repeated requests get the recorded responses in order,
then the last one again. Messages before a response are also sent: progress, log
messages, and requests to the client, which must answer them. Messages are the
recorded text, except for ids and progress tokens. Redacted values stay
redacted: in params they match anything, and in responses the placeholder is
sent.

A request that is not in the capture gets an error, is reported on standard
error with the nearest recorded one, and makes the final exit status 6.

Faults test clients: --fault 'FILTER ACTION [every=N] [first=N] [p=SHARE]'.
FILTER selects requests as in mcpwire show (tool: method: target: id: n: or
words in the request …). Without it, all requests match. ACTION is one of

  delay=TIME           send the response this much later
  drop                 send no response
  duplicate            send the response twice
  truncate[=BYTES]     cut off the response in the middle, or after BYTES
  garbage              send text that is not JSON before the response
  stray=TEXT           write a line that is not a message to standard output
  exit[=CODE]          exit instead of responding
  status=CODE          respond with this HTTP status: 401, 404, 500 …
  id=swap              respond with another id
  error=CODE:MESSAGE   respond with an error`

const mockExample = `  # as the command of a server, in a host's configuration or in a test
  mcpwire mock fs.mcpcap.ndjson

  # over HTTP, as slow as it was
  mcpwire mock fs --http 127.0.0.1:8080 --latency keep

  # what does my client do if every third search takes 30 s, and some break off?
  mcpwire mock fs --fault 'tool:search delay=30s every=3' \
    --fault 'tool:read truncate p=0.1'`

type mockFlags struct {
	http                httpFlags
	latency             mock.Latency
	faults              kit.List
	side                sources.SideFlag
	seed                uint64
	once, loose, strict bool
	maxBytes            int
	framing             jsonrpc.Framing
	askTimeout          time.Duration
	json                bool
	level               slog.Level
	era                 bridge.Era
}

func (f *mockFlags) register(fs *pflag.FlagSet) {
	f.http.registerEndpoint(fs)
	fs.Func("latency", "response time: keep (as recorded), fast (none), or a `TIME` such as 200ms (default fast)", f.setLatency)
	f.side.RegisterOne(fs, capture.Upstream)
	fs.Var(&f.faults, "fault", "inject this `FAULT`, see above; may be repeated")
	fs.Uint64Var(&f.seed, "seed", 0, "`NUMBER` that seeds the random choice of faults with p=")
	fs.Func("era", "serve clients of this `ERA`, legacy or modern, and translate if the capture is of the other era (default auto, the capture's era)", eraFlag(&f.era))
	fs.BoolVar(&f.once, "once", false, "send each recorded response only once")
	fs.BoolVar(&f.loose, "loose", false, "if no params match, use a recorded request for the same tool, prompt, resource or task")
	fs.BoolVar(&f.strict, "strict", false, "exit at a request that is not in the capture")
	fs.DurationVar(&f.askTimeout, "ask-timeout", 5*time.Minute, "`TIME` for a client to answer a request from the server")
	fs.Func("max-memory", "largest capture to accept, in bytes of the server's messages: a `SIZE` such as 64M or 1G (default 256M)", sizeFlag(&f.maxBytes))
	fs.Func("framing", "message framing: `KIND` is line, header, or auto, which follows the client (default auto)", kit.FramingFlag(&f.framing, true))
	fs.Func("log-level", "lowest `LEVEL` to log: debug, info, warn or error (default info)", f.setLevel)
	fs.BoolVar(&f.json, "log-json", false, "log in JSON, one object per line")
}

func (f *mockFlags) setLatency(s string) (err error) {
	f.latency, err = mock.ParseLatency(s)
	return err
}

func (f *mockFlags) setLevel(s string) error {
	if f.level.UnmarshalText([]byte(s)) != nil {
		return fmt.Errorf("want debug, info, warn or error")
	}
	return nil
}

// NewMockCommand returns the command mock.
func NewMockCommand(e *kit.Env) *cobra.Command {
	var f mockFlags
	c := &cobra.Command{
		Use:               "mock FILE | NAME [--http ADDRESS] [FLAGS]",
		Short:             "act as the recorded server",
		Long:              mockLong,
		Example:           mockExample,
		Annotations:       map[string]string{kit.OwnSignals: "true"},
		ValidArgsFunction: sources.CompleteCaptures,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runMock(cmd, e, &f, args)
		},
	}
	f.register(c.Flags())
	return c
}

// check returns an error if flags don't go together. set reports whether a flag was given.
func (f *mockFlags) check(set func(string) bool) error {
	for _, name := range []string{"path", "host", "origin", "sse", "insecure"} {
		if set(name) && f.http.addr == "" {
			return exit.Usagef("mock: --%s needs --http ADDRESS", name)
		}
	}
	switch {
	case f.http.addr == "":
		return nil
	case set("framing"):
		return exit.Usagef("mock: --framing is for standard input and output, not for --http")
	case !strings.HasPrefix(f.http.path, "/"):
		return exit.Usagef("mock: --path %q must begin with /", f.http.path)
	}
	return nil
}

// options returns the options of the server.
func (f *mockFlags) options(log *slog.Logger) (*mock.Options, error) {
	o := &mock.Options{
		Latency: f.latency, Once: f.once, Loose: f.loose, Strict: f.strict, Seed: f.seed, ClientTimeout: f.askTimeout, Logger: log,
	}
	for _, text := range f.faults {
		fault, err := mock.ParseFault(text)
		switch {
		case err != nil:
			return nil, exit.Usagef("mock: --%w", err)
		case fault.HTTPOnly() && f.http.addr == "":
			return nil, exit.Usagef("mock: --fault %q: %s needs --http ADDRESS", text, fault)
		case fault.StreamOnly() && f.http.addr != "":
			return nil, exit.Usagef("mock: --fault %q: %s is for standard output, not for --http", text, fault)
		}
		o.Faults = append(o.Faults, fault)
	}
	return o, nil
}

func runMock(cmd *cobra.Command, e *kit.Env, f *mockFlags, args []string) error {
	switch {
	case len(args) != 1:
		return exit.UsageHintf("mcpwire captures lists them", "mock: give one capture: a file, or the name of a server")
	case args[0] == "-":
		return exit.Usagef("mock: standard input is the client's: give a file")
	}
	if err := f.check(cmd.Flags().Changed); err != nil {
		return err
	}
	handler := stdio.NewLogHandler(e.Stderr, &stdio.LogOptions{Level: f.level, JSON: f.json})
	defer handler.Close()
	log := slog.New(handler)
	opts, err := f.options(log)
	if err != nil {
		return err
	}
	paths, err := sources.Args(e, "mock", args)
	if err != nil {
		return err
	}
	recording, err := f.read(cmd.Context(), e, paths[0], log)
	if err != nil {
		return err
	}
	srv := mock.New(recording, opts)
	defer srv.Close()
	between, err := f.translate(srv, recording, opts)
	if err != nil {
		return err
	}
	if between != nil {
		defer between.Close()
	}
	switch {
	case f.http.addr != "":
		err = f.serveHTTP(cmd.Context(), srv, between, log)
	case between != nil:
		ctx, cancel := context.WithCancel(cmd.Context())
		defer cancel()
		defer context.AfterFunc(srv.Ended(), cancel)()
		err = f.serveStdio(ctx, e, between, log)
	default:
		err = f.serveStdio(cmd.Context(), e, srv, log)
	}
	return mockResult(srv, err)
}

// translate returns the bridge in front of the server, if the capture has no session of the era to
// serve. It returns nil if no bridge is needed.
func (f *mockFlags) translate(srv *mock.Server, recording *mock.Recording, o *mock.Options) (*bridge.Bridge, error) {
	legacy, modern := recording.Eras()
	if f.era == bridge.EraAuto || f.era == bridge.EraLegacy && legacy || f.era == bridge.EraModern && modern {
		return nil, nil
	}
	for _, fault := range o.Faults {
		if !fault.OnMessages() {
			return nil, exit.Usagef("mock: --fault %s changes messages on the wire, and cannot be combined with --era %s, which translates the capture: use delay, drop, error or exit", fault, f.era)
		}
	}
	return srv.Translate(f.era)
}

// read reads the capture and prints notes about it.
func (f *mockFlags) read(ctx context.Context, e *kit.Env, path string, log *slog.Logger) (*mock.Recording, error) {
	recording, err := mock.Read(sources.Source{Env: e, Paths: []string{path}, Side: f.side.Side}.Events(ctx), &mock.ReadOptions{MaxBytes: f.maxBytes})
	switch {
	case errors.Is(err, mock.ErrTooLarge):
		return nil, exit.Fail(exit.Unexpected, "too_large", "--max-memory allows more", err)
	case errors.Is(err, mock.ErrNothing):
		return nil, exit.Fail(exit.Unexpected, "nothing_recorded", "record a session with mcpwire tap, or read the capture with mcpwire show", err)
	case err != nil:
		return nil, err
	}
	n := &recording.Notes
	if n.Redacted > 0 {
		log.Warn("redacted values in responses are sent as placeholders", "values", n.Redacted)
	}
	if n.Missing > 0 || n.Truncated > 0 {
		log.Warn("the capture is not complete", "events_missing", n.Missing, "messages_cut", n.Truncated)
	}
	if n.Stray > 0 {
		log.Info("lines of the server that are not messages are not sent: see --fault stray", "lines", n.Stray)
	}
	log.Debug("capture read", "server", recording.Name, "requests", n.Requests, "unanswered", n.Unanswered, "orphans", n.Unclaimed, "revisions", recording.Revisions())
	return recording, nil
}

// serveStdio serves srv, which is the mock or a bridge to it, until the input or ctx ends.
func (f *mockFlags) serveStdio(ctx context.Context, e *kit.Env, srv jsonrpc.Server, log *slog.Logger) error {
	return endpoint.ServeStdio(ctx, e.Stdin, e.Stdout, srv, stdio.Config{Framing: f.framing, Logger: log})
}

// serveHTTP serves until a signal arrives or the server ends by itself. between is the bridge in
// front of the server, or nil.
func (f *mockFlags) serveHTTP(ctx context.Context, srv *mock.Server, between *bridge.Bridge, log *slog.Logger) (err error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(srv.Ended(), stop)()
	opts := &streamable.Options{Hosts: f.http.hosts, Origins: f.http.origins, Logger: log}
	var h interface {
		http.Handler
		SSE(messages string) http.Handler
		Shutdown(ctx context.Context) error
	}
	if between != nil {
		h, err = between.Handler(opts)
	} else {
		h, err = srv.Handler(opts)
	}
	if err != nil {
		return exit.Usagef("mock: --host or --origin: %w", err)
	}
	r, err := f.http.router(h, h.SSE, nil, map[string]http.Handler{})
	if err != nil {
		return exit.Usagef("mock: --path: %w", err)
	}
	err = httpserve.ListenAndServe(ctx, f.http.addr, r, &httpserve.Options{
		AllowRemote: f.http.insecure,
		OnListen:    func(a net.Addr) { log.Info("listening", "url", "http://"+a.String()+f.http.path) },
		OnShutdown:  h.Shutdown,
		Logger:      log,
	})
	if errors.Is(err, httpserve.ErrRemoteAddress) {
		return fmt.Errorf("mock: not listening at %s: %w: give --insecure", f.http.addr, httpserve.ErrRemoteAddress)
	}
	return err
}

// mockResult returns the error that the command ends with.
func mockResult(srv *mock.Server, err error) error {
	ended, byFault := errors.AsType[*mock.ExitError](srv.Err())
	switch {
	case byFault:
		return &exit.Status{Code: ended.Code}
	case srv.Misses() > 0:
		return exit.Fail(exit.Findings, "not_in_capture", "record these too, or try --loose", fmt.Errorf("%d requests were not in the capture", srv.Misses()))
	}
	return err
}
