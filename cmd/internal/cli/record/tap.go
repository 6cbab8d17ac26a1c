// Package record has the commands that record traffic, or make captures of other recordings.
package record

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/sources"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/proxy/endpoint"
	"mcpwire/cmd/internal/proxy/intercept"
	"mcpwire/cmd/internal/proxy/recording"
	"mcpwire/cmd/internal/proxy/tap"
	"mcpwire/cmd/internal/proxy/taphttp"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace/captures"
	livesock "mcpwire/cmd/internal/trace/live"
	"mcpwire/internal/net/httpserve"
	"mcpwire/internal/proc/batchfile"
)

const tapLong = `Run a server and record the traffic between it and its host, without changing
anything. Put "mcpwire tap --" before the server's command in the host's
configuration, or let mcpwire wrap do it. -- may be omitted; flags of tap go
before the command. Bytes, standard error, the end of input, signals and the
exit status pass through. When either side dies, no process is left behind.

Captures go to your own folder, which mcpwire captures lists. Values that look
like secrets are redacted before they are written.

With --listen, tap is a proxy for a server on HTTP instead. Give clients its
address in place of the server's.

With --restart-on, tap keeps the connection to the host while it restarts the
server: "crash" when the server ends on its own, "SIGHUP" when tap receives that
signal, and any other value when a file changes that matches this pattern ("**"
matches any number of folders). tap sends the handshake, the log level and
subscriptions to the new server again, and tells the host that tools, prompts
and resources may have changed. Requests in flight get an error; later ones
wait. The state in the old server's memory is lost: tasks, cursors and pending
input requests to the user. If the new server negotiates another revision or
other capabilities, the host does not learn of it.

With --intercept, messages that match a filter wait until someone passes, edits,
drops, delays or answers them in mcpwire watch, in the terminal (key i) or the
page. Later messages of the same direction wait behind a held one, also
cancellations; the other direction goes on. On HTTP, only later events of the
same stream wait. A response stops only if the filter did not match its request,
such as status:error, or if watch asks for it. After 45 seconds a message is
passed on. The capture has the messages of both sides, before and after, and
notes say what was decided. Held messages are shown with their secrets. Clients
may give up on a request that is held for long; on HTTP, it is not forwarded
then. A request or response that is dropped on HTTP fails with status 502.
Messages over the older HTTP+SSE transport are not held.`

const tapExample = `  mcpwire tap -- node build/index.js
  mcpwire tap --check -- npx -y @modelcontextprotocol/server-filesystem ~

  # while working on a server
  mcpwire tap --restart-on 'src/**/*.py' --restart-on crash -- python server.py

  # stop each call of a tool, and decide in mcpwire watch
  mcpwire tap --intercept 'tool:delete_*' -- node build/index.js
  mcpwire tap --intercept 'tool:delete_*' --listen :9000 https://example.com/mcp

  # a server on HTTP, for clients that are given http://127.0.0.1:9000/mcp
  mcpwire tap --listen 127.0.0.1:9000 https://example.com/mcp`

// tapFlags are the flags of tap, for stdio and HTTP.
type tapFlags struct {
	name     string
	output   string
	noRecord bool
	check    bool
	redact   string
	verbose  bool

	restartOn []string

	intercept   string
	intercepts  bool
	holdTimeout time.Duration

	listen          string
	tlsCert, tlsKey string
	caFile          string
	insecure        bool
	hosts           kit.List
	origin          string
}

func (f *tapFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.name, "name", "", "`NAME` of the server in the capture (default that of the package, module, image or program that the command starts)")
	fs.StringVarP(&f.output, "output", "o", "", "record to `FILE`, or with a number if it exists; compressed if it ends in .gz or .zst")
	fs.BoolVar(&f.noRecord, "no-record", false, "record nothing")
	fs.BoolVar(&f.check, "check", false, "check the traffic against the rules, and print findings on stderr")
	fs.StringVar(&f.redact, "redact", "default", "what to redact in the capture: `WHAT` is default, or off for nothing")
	fs.BoolVarP(&f.verbose, "verbose", "v", false, "print on stderr what tap does")
	fs.StringArrayVar(&f.restartOn, "restart-on", nil, "restart the server on this `CAUSE`: crash, SIGHUP, or a pattern of files, when one of them changes; may be repeated")
	fs.StringVar(&f.intercept, "intercept", "", "hold messages that match `FILTER` until someone decides about them in mcpwire watch; an empty one holds nothing until watch sets another")
	fs.DurationVar(&f.holdTimeout, "intercept-timeout", intercept.DefaultTimeout, "with --intercept, pass a held message on after this `TIME`")
	fs.StringVar(&f.listen, "listen", "", "tap a server on HTTP; clients connect to `ADDRESS`, such as 127.0.0.1:9000")
	fs.StringVar(&f.tlsCert, "tls-cert", "", "with --listen, serve TLS with the certificate in `FILE`, in PEM")
	fs.StringVar(&f.tlsKey, "tls-key", "", "with --listen, `FILE` with the certificate's private key, in PEM")
	fs.StringVar(&f.caFile, "cacert", "", "with --listen, `FILE` of CA certificates, in PEM, to trust in addition to the system's")
	fs.BoolVar(&f.insecure, "insecure", false, "with --listen, do not check the server's TLS certificate")
	fs.Var(&f.hosts, "host", "with --listen, host `NAME` that clients use in addition to localhost; may be repeated")
	fs.StringVar(&f.origin, "origin", "", "with --listen, `ORIGIN` to send to the server instead of that of a page on this machine or a --host; drop sends none")
}

// NewTapCommand returns the command tap.
func NewTapCommand(e *kit.Env) *cobra.Command {
	var f tapFlags
	c := &cobra.Command{
		Use:         "tap [FLAGS] [--] COMMAND [ARGUMENTS] | tap [FLAGS] --listen ADDRESS URL",
		Short:       "record the traffic between a host and a server",
		Long:        tapLong,
		Example:     tapExample,
		Annotations: map[string]string{kit.OwnSignals: "true"},
		RunE: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			// Without --, no command with its own flags can follow.
			if f.listen != "" && dash < 0 {
				cmd.Flags().SetInterspersed(true)
				if err := cmd.Flags().Parse(args); err != nil {
					return kit.FlagError(cmd, err)
				}
				args, dash = cmd.Flags().Args(), cmd.ArgsLenAtDash()
			}
			f.intercepts = cmd.Flags().Changed("intercept")
			if err := f.validate(); err != nil {
				return err
			}
			switch {
			case f.listen != "" && dash >= 0:
				return exit.Usagef("tap: --listen is for a server on HTTP, and takes a URL instead of a command after --")
			case f.listen != "" && len(args) != 1:
				return exit.Usagef("tap: --listen takes one URL, such as: mcpwire tap --listen 127.0.0.1:9000 https://example.com/mcp")
			case f.listen != "":
				if len(f.restartOn) > 0 {
					return exit.Usagef("tap: --restart-on is for servers that tap runs, not for those on HTTP")
				}
				return runTapHTTP(cmd, e, &f, args[0])
			case dash < 0 && len(args) > 0 && strings.Contains(args[0], "://"):
				return exit.Usagef("tap: a server on HTTP needs an address for its clients: %s",
					kit.ShellText(append(kit.PlainArgs("mcpwire", "tap", "--listen", "127.0.0.1:9000"), kit.NewSecretNames().URL(args[0]))))
			case len(args) == 0 || args[0] == "":
				return exit.Usagef("tap: missing the server: give its command after the flags (such as: mcpwire tap -- node build/index.js)")
			}
			return runTapStdio(cmd, e, &f, args)
		},
	}
	f.register(c.Flags())
	// Flags after the command's name belong to the command, even if a launcher dropped the --.
	c.Flags().SetInterspersed(false)
	return c
}

// breakpoints returns what --intercept asks for, or nil.
func (f *tapFlags) breakpoints() (*intercept.Breakpoints, error) {
	if !f.intercepts {
		return nil, nil
	}
	parsed, err := sources.ParseFilter("tap", f.intercept)
	if err != nil {
		return nil, err
	}
	return intercept.New(parsed, f.holdTimeout), nil
}

// validate returns an error if flags don't go together.
func (f *tapFlags) validate() error {
	switch {
	case f.redact != "default" && f.redact != "off":
		return exit.Usagef("tap: invalid value %q for flag --redact: want default or off", f.redact)
	case f.noRecord && f.output != "":
		return exit.Usagef("tap: --no-record and --output exclude each other")
	case f.intercepts && len(f.restartOn) > 0:
		return exit.Usagef("tap: --intercept and --restart-on exclude each other")
	case f.holdTimeout <= 0:
		return exit.Usagef("tap: invalid value %s for flag --intercept-timeout: want a time above 0", f.holdTimeout)
	case f.output == "-":
		return exit.Usagef("tap: standard output goes to the host: --output needs a file")
	}
	return nil
}

// runTapStdio taps a command.
func runTapStdio(cmd *cobra.Command, e *kit.Env, f *tapFlags, command []string) error {
	restart, err := tap.ParseRestart(f.restartOn)
	if err != nil {
		return exit.Usagef("tap: invalid value for flag --restart-on: %w", err)
	}
	name := f.name
	if name == "" {
		name = targets.ServerName(command)
	}
	breakpoints, err := f.breakpoints()
	if err != nil {
		return err
	}
	logf := f.notes(e)
	rec, err := f.record(e, &recordingOf{transport: capture.TransportStdio, name: name, restart: liveRestart(restart), breakpoints: breakpoints}, logf)
	if err != nil {
		return err
	}
	if err := checkViewers(rec, e, breakpoints); err != nil {
		return err
	}
	// Catch signals before the server starts, so that none is lost.
	forward, catch := tap.Signals()
	if restart != nil && restart.OnHangup {
		forward = append(forward, syscall.SIGHUP) // also under nohup
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forward...)
	defer signal.Stop(signals)
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, catch...)
	defer signal.Stop(caught)

	opts := tap.Options{Command: command, Stdin: e.Stdin, Signals: signals, Restart: restart, Breakpoints: breakpoints, Name: name, Logger: f.logger(e), Record: rec.Writer, Hooks: &rec.Hooks}
	opts.Stdout, _ = e.Stdout.(*os.File) // nil is the process's stdout
	opts.Stderr, _ = e.Stderr.(*os.File)
	var live *liveCheck
	if f.check {
		live = newLiveCheck(e.Stderr, capture.TransportStdio)
		opts.Observe = live.observe
	}
	ended, err := tap.Run(cmd.Context(), opts)
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		if live != nil {
			live.close()
		}
		rec.Finish(e.Stderr)
	}()
	waitOrSignal(finished, signals)
	if err != nil {
		hint := "check the command's path, and the PATH set by the host"
		switch {
		case errors.Is(err, exec.ErrNotFound):
			hint = "the program is not in the PATH set by the host: use its full path"
		case errors.Is(err, batchfile.ErrArguments):
			hint = targets.BatchHint
		}
		return exit.Fail(exit.Unreachable, "spawn", hint, err)
	}
	if ended != 0 {
		return &exit.Status{Code: ended}
	}
	return nil
}

// waitOrSignal waits for finished, or until SIGINT or SIGTERM arrives.
func waitOrSignal(finished <-chan struct{}, signals <-chan os.Signal) {
	for {
		select {
		case <-finished:
			return
		case s := <-signals:
			if s == os.Interrupt || s == syscall.SIGTERM {
				return
			}
		}
	}
}

// logger returns the logger of the tap. Without -v it logs nothing.
func (f *tapFlags) logger(e *kit.Env) *slog.Logger {
	if !f.verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(safe.Writer{W: e.Stderr}, nil))
}

// notes returns the function that prints notes about the recording. Without -v it prints nothing.
func (f *tapFlags) notes(e *kit.Env) func(string) {
	if !f.verbose {
		return func(string) {}
	}
	return func(text string) {
		fmt.Fprintln(e.Stderr, "mcpwire: "+safe.Line(text))
	}
}

// checkWait limits how long the end of a tap waits for a blocked checker, for example if nobody
// reads standard error.
const checkWait = 3 * time.Second

// A liveCheck checks events while the tap forwards messages.
type liveCheck struct {
	out io.Writer
	k   *check.Checker

	mu    sync.Mutex
	queue []*capture.Event
	bytes int
	// lost is the gap event for dropped events, or nil.
	lost   *capture.Event
	closed bool
	// wake has one element of buffer.
	wake chan struct{}
	done chan struct{}

	checked atomic.Uint64
}

func newLiveCheck(out io.Writer, transport capture.Transport) *liveCheck {
	c := &liveCheck{out: out, k: check.New(&check.Options{Transport: transport}), wake: make(chan struct{}, 1), done: make(chan struct{})}
	go c.run()
	return c
}

// observe queues an event. It never waits for the checker.
func (c *liveCheck) observe(e *capture.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	size := sources.EventBytes + len(e.Data)
	if len(c.queue) > 0 && c.bytes+size > sources.MaxUnchecked {
		if c.lost == nil {
			c.lost = &capture.Event{Kind: capture.KindGap, N: e.N, T: e.T, Gap: &capture.Gap{Why: capture.GapQueue}}
		}
		c.lost.Gap.Lost++
		c.lost.Gap.Until = e.T
		return
	}
	if c.lost != nil {
		c.queue = append(c.queue, c.lost)
		c.lost = nil
	}
	c.queue = append(c.queue, e.Clone())
	c.bytes += size
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *liveCheck) run() {
	defer close(c.done)
	for range c.wake {
		c.mu.Lock()
		events, closed := c.queue, c.closed
		if closed && c.lost != nil {
			events = append(events, c.lost)
		}
		c.queue, c.bytes = nil, 0
		c.mu.Unlock()
		for _, e := range events {
			c.print(c.k.Add(nil, e))
			c.checked.Add(1)
		}
		if closed {
			c.print(c.k.Close())
			return
		}
	}
}

// close waits until the queue is checked, or the checker makes no progress for checkWait. Later
// calls of observe do nothing.
func (c *liveCheck) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
	for before := uint64(0); ; {
		select {
		case <-c.done:
			return
		case <-time.After(checkWait):
			now := c.checked.Load()
			if now == before {
				return
			}
			before = now
		}
	}
}

// print writes a line for each finding, in one write, because hosts read stderr line by line.
func (c *liveCheck) print(findings []check.Finding) {
	for _, f := range findings {
		at := fmt.Sprintf("event %d", f.Event)
		if f.Dir != "" {
			at += " " + string(f.Dir)
		}
		if f.Method != "" {
			at += " " + f.Method
		}
		line := fmt.Sprintf("mcpwire: %v %s: %s: %s", f.Rule.Severity, f.Rule.ID, at, f.Message)
		fmt.Fprintln(c.out, safe.Line(line))
	}
}

// liveRestart lets viewers restart the server, if the tap restarts it. It returns the function that
// requests a restart, or nil.
func liveRestart(r *tap.Restart) func() {
	if r == nil {
		return nil
	}
	requests := make(chan string, 1)
	r.Trigger = requests
	return func() {
		select {
		case requests <- "a viewer requested it":
		default: // a request is pending
		}
	}
}

// recordingOf is what a tap records.
type recordingOf struct {
	transport capture.Transport
	// name is the name of the server.
	name string
	// url is the URL of a server on HTTP.
	url string
	// restart restarts the server. Nil means that the tap cannot.
	restart func()
	// breakpoints hold messages. Nil means that none are held.
	breakpoints *intercept.Breakpoints
}

// record starts the capture that the flags ask for and shows it to viewers. If the default folder
// can't be used, it only prints a note, because a server that worked before must work with tap. If
// viewers can't connect, it prints a note with -v only.
func (f *tapFlags) record(e *kit.Env, of *recordingOf, logf func(string)) (*recording.Recording, error) {
	live := &livesock.Options{Restart: of.restart}
	if of.breakpoints != nil {
		live.Decide = of.breakpoints.Decide
	}
	server := livesock.NewServer(live)
	if of.breakpoints != nil {
		of.breakpoints.Publish(server.PublishIntercepted)
	}
	opts := &capture.Options{Transport: of.transport, Name: of.name, URL: of.url, Redact: recording.Redaction(f.redact), Notice: recording.Notice(e.Stderr)}
	create := func(opts *capture.Options) (*capture.File, error) { return f.create(e, opts, logf) }
	return recording.Start(server, opts, create, func(err error) { logf("watching is not possible: " + err.Error()) })
}

// checkViewers finishes the capture and returns an error if messages are held and nobody could see
// them.
func checkViewers(r *recording.Recording, e *kit.Env, b *intercept.Breakpoints) error {
	if b == nil || r.CanShow() {
		return nil
	}
	r.Finish(e.Stderr)
	return exit.Fail(exit.Unexpected, "intercept", "allow this user to create sockets in the folder of mcpwire, or leave --intercept out", errors.New("held messages could not be shown: viewers cannot connect"))
}

// create creates the file that the flags ask for. It returns nil if they ask for none, or if the
// default file can't be created.
func (f *tapFlags) create(e *kit.Env, opts *capture.Options, logf func(string)) (*capture.File, error) {
	if f.noRecord {
		return nil, nil
	}
	if f.output != "" {
		return recording.CreateFile(e.Stderr, f.output, opts)
	}
	dir, err := captures.Dir()
	var rec *capture.File
	if err == nil {
		rec, err = captures.Create(dir, opts.Name, opts)
	}
	if err != nil {
		fmt.Fprintln(e.Stderr, "mcpwire: nothing is recorded: "+safe.Line(err.Error()))
		return nil, nil
	}
	logf("recording to " + rec.Name())
	return rec, nil
}

// runTapHTTP taps an HTTP server until a signal arrives.
func runTapHTTP(cmd *cobra.Command, e *kit.Env, f *tapFlags, rawURL string) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // a second signal kills it
	u, err := f.serverURL(rawURL)
	if err != nil {
		return err
	}
	config, err := endpoint.TLS(f.caFile, f.insecure)
	if err != nil {
		return exit.Usagef("tap: --cacert: %w", err)
	}
	breakpoints, err := f.breakpoints()
	if err != nil {
		return err
	}
	name := f.name
	if name == "" {
		name = u.Host
	}
	opts := &taphttp.Options{TLS: config, Hosts: f.hosts, Origin: f.origin, Breakpoints: breakpoints, Name: name, Logger: f.logger(e)}
	if _, err := taphttp.New(u, nil, opts); err != nil { // before creating files
		return exit.Usagef("tap: %s", strings.TrimPrefix(err.Error(), "taphttp: "))
	}
	l, err := f.listenHTTP(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	logf := f.notes(e)
	rec, err := f.record(e, &recordingOf{transport: capture.TransportHTTP, name: name, url: u.String(), breakpoints: breakpoints}, logf)
	if err != nil {
		return err
	}
	if err := checkViewers(rec, e, breakpoints); err != nil {
		return err
	}
	defer rec.Finish(e.Stderr)
	if f.check {
		live := newLiveCheck(e.Stderr, capture.TransportHTTP)
		opts.Observe = live.observe
		defer live.close()
	}
	return f.serveTap(ctx, e, l, u, rec.Writer, opts)
}

// serveTap runs the tap.
func (f *tapFlags) serveTap(ctx context.Context, e *kit.Env, l net.Listener, u *url.URL, w *capture.Writer, opts *taphttp.Options) error {
	h, err := taphttp.New(u, w, opts)
	if err != nil {
		return err
	}
	scheme := "http"
	if f.tlsCert != "" {
		scheme = "https"
	}
	err = h.Serve(ctx, l, &taphttp.ServeOptions{
		AllowRemote: len(f.hosts) > 0, CertFile: f.tlsCert, KeyFile: f.tlsKey,
		OnListen: func(a net.Addr) {
			at := url.URL{Scheme: scheme, Host: a.String(), Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery}
			fmt.Fprintln(e.Stderr, "mcpwire: tap is listening: give clients url="+safe.Line(at.String())+" in place of "+safe.Line(u.String()))
		},
	})
	if errors.Is(err, httpserve.ErrRemoteAddress) {
		return exit.Fail(exit.Unexpected, "remote_address", "listen at 127.0.0.1, or set the host names that clients may use with --host; * allows any",
			fmt.Errorf("tap: not listening at %s, which other machines can reach", f.listen))
	}
	return err
}

// serverURL parses the URL of the server.
func (f *tapFlags) serverURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		if bad, ok := errors.AsType[*url.Error](err); ok {
			err = bad.Err // drop the URL: secrets
		}
		return nil, exit.Usagef("tap: the URL of the server: %w", err)
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, exit.Usagef("tap: --listen is for a server on HTTP: %q does not begin with http:// or https://", raw)
	case (f.tlsCert == "") != (f.tlsKey == ""):
		return nil, exit.Usagef("tap: --tls-cert and --tls-key go together")
	case u.Scheme == "http" && (f.caFile != "" || f.insecure):
		return nil, exit.Usagef("tap: --cacert and --insecure are for a server with https")
	case f.caFile != "" && f.insecure:
		return nil, exit.Usagef("tap: --cacert and --insecure exclude each other")
	}
	return u, nil
}

// listenHTTP listens at the address for clients. Without a host, it listens on the loopback
// interface.
func (f *tapFlags) listenHTTP(ctx context.Context) (net.Listener, error) {
	host, port, err := net.SplitHostPort(f.listen)
	if err != nil {
		return nil, exit.Usagef("tap: invalid value %q for flag --listen: want an address and a port, such as 127.0.0.1:9000", f.listen)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, exit.Fail(exit.Unexpected, "listen", "another program may be listening there: choose another port, or 0 for any", err)
	}
	return l, nil
}
