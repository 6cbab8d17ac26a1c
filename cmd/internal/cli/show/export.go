package show

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"mcpwire/capture"
	"mcpwire/cmd/internal/build"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/sources"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/filter"
	"mcpwire/cmd/internal/view/detail"
	"mcpwire/cmd/internal/view/export"
	"mcpwire/cmd/internal/view/watch"
	"mcpwire/cmd/internal/view/web"
	"mcpwire/internal/text/printable"
	"mcpwire/mcp"
)

const exportLong = `Convert captures to the formats of other tools. --to selects the format:

  har      HTTP Archive 1.2, for browsers' developer tools and HTTP debuggers;
           HTTP only: stdio traffic is not disguised as HTTP
  pcapng   Wireshark and tshark, without a plugin: a packet for each message,
           with the event numbers of the capture in comments
  otlp     OpenTelemetry: a span for each request, in the protocol's JSON, one
           batch per line, as collectors read it from files
  html     the page of mcpwire watch --web as one file that needs no server
  curl     a shell script with a curl command for each HTTP request
  call     a shell script with a mcpwire command for each request, also of stdio
  text     a line for each event, for people, mail and issues
  sequence a picture of the messages between host, bridge and servers, in SVG
           with colors for light and dark pages
  mermaid  the same as a diagram for Markdown
  overview a picture in SVG: requests over time, latencies, sizes of
           definitions, lives of servers

FILE is a capture, NAME is a server that has one (mcpwire captures lists them),
and - is standard input. The default is the newest capture, with all others of
the same time. Values that look like secrets are redacted, even if the capture
contains them; --redact off keeps them. What the format cannot represent is
omitted, and counted on standard error.`

const exportExample = `  mcpwire export files --to pcapng -o files.pcapng && wireshark files.pcapng
  mcpwire export a.mcpcap.ndjson --to har --filter 'tool:search' -o search.har
  mcpwire export --to text | less
  mcpwire export files --to sequence -o session.svg
  mcpwire export files --to pcapng | tshark -r - -T fields -e frame.comment`

// exportFlags holds the flags of the export command.
type exportFlags struct {
	to, output, filter, redact string
	side                       sources.SideFlag
}

// exporters returns the export functions by format, except for html.
func exporters() map[string]func(io.Writer, export.Events, *export.Options) (export.Omitted, error) {
	return map[string]func(io.Writer, export.Events, *export.Options) (export.Omitted, error){
		"har": export.HAR, "pcapng": export.PCAPNG, "otlp": export.OTLP, "curl": export.Curl, "text": export.Text,
		"sequence": export.Sequence, "mermaid": export.Mermaid, "overview": export.Overview,
	}
}

func formatNames() []string {
	names := append(slices.Collect(maps.Keys(exporters())), "html", "call")
	slices.Sort(names)
	return names
}

// NewExportCommand returns the command export.
func NewExportCommand(e *kit.Env) *cobra.Command {
	var f exportFlags
	c := &cobra.Command{
		Use:               "export [FILE | NAME]... --to FORMAT [-o FILE] [FLAGS]",
		Short:             "convert captures to HAR, pcapng, OTLP, HTML, commands or text",
		Long:              exportLong,
		Example:           exportExample,
		ValidArgsFunction: sources.CompleteCaptures,
		RunE:              func(cmd *cobra.Command, args []string) error { return runExport(cmd.Context(), e, &f, args) },
	}
	c.Flags().StringVar(&f.to, "to", "", "output `FORMAT`: "+strings.Join(formatNames(), ", "))
	c.Flags().StringVarP(&f.output, "output", "o", "", "write to `FILE`, which must not exist (default standard output)")
	f.side.Register(c, "")
	c.Flags().StringVarP(&f.filter, "filter", "f", "", "export only exchanges that match `FILTER`, see mcpwire show --help")
	_ = c.RegisterFlagCompletionFunc("filter", sources.CompleteFilter) // the flag exists
	c.Flags().StringVar(&f.redact, "redact", "default", "what to redact: `WHAT` is default, or off for nothing")
	_ = c.RegisterFlagCompletionFunc("to", cobra.FixedCompletions(formatNames(), cobra.ShellCompDirectiveNoFileComp))
	return c
}

func runExport(ctx context.Context, e *kit.Env, f *exportFlags, args []string) error {
	write := exporters()[f.to]
	parsed, err := sources.ParseFilter("export", f.filter)
	switch {
	case f.to == "":
		return exit.Usagef("export: --to is required: %s", strings.Join(formatNames(), ", "))
	case write == nil && f.to != "html" && f.to != "call":
		return exit.Usagef("export: unknown format %q: want one of %s", f.to, strings.Join(formatNames(), ", "))
	case err != nil:
		return err
	case f.to == "pcapng" && f.output == "" && kit.WriterIsTerminal(e.Stdout):
		return exit.Usagef("export: pcapng is binary: name a file with -o, or pipe the output")
	}
	paths, err := sources.Args(e, "export", args)
	if err != nil {
		return err
	}
	s := sources.Source{Env: e, Paths: paths, Side: f.side.Side}
	switch {
	case f.to == "html" && f.redact == "off":
		return exit.Usagef("export: --redact off cannot be combined with --to html, because pages are for sharing")
	case f.to == "html" && s.Side != "":
		return exit.Usagef("export: --to html exports both sides of a bridge's capture; -f side:%s selects one", s.Side)
	case f.to == "html" && s.Stdin():
		return exit.Usagef("export: --to html needs files")
	case f.to == "html":
		return exportTo(e, f, func(w io.Writer) error { return exportHTML(ctx, w, paths, parsed) })
	case f.to == "call":
		// Rows need all events, such as the start of the process, and are filtered later.
		events, err := exported(ctx, s, nil, f.redact == "default")
		if err != nil {
			return err
		}
		return exportTo(e, f, func(w io.Writer) error { return exportCall(ctx, w, events, parsed, s.Side) })
	case parsed != nil && s.Stdin():
		return exit.Usagef("export: a filter reads the input twice, and standard input can only be read once: give a file")
	}
	events, err := exported(ctx, s, parsed, f.redact == "default")
	if err != nil {
		return err
	}
	return exportTo(e, f, func(w io.Writer) error {
		left, err := write(w, events, &export.Options{Tool: "mcpwire", Version: build.Version()})
		if errors.Is(err, export.ErrNoHTTP) {
			return exit.Fail(exit.Unexpected, "no_http", "--to call writes the requests as mcpwire commands; --to pcapng, otlp and text can represent stdio traffic", err)
		}
		if err == nil && left.Events > 0 {
			fmt.Fprintf(e.Stderr, "%d events cannot be represented in %s, and are omitted\n", left.Events, f.to)
		}
		if err == nil && left.Cut > 0 {
			fmt.Fprintf(e.Stderr, "only the beginning of %d payloads was recorded\n", left.Cut)
		}
		return err
	})
}

// exportTo calls write with the output. It removes a file that could not be completed.
func exportTo(e *kit.Env, f *exportFlags, write func(w io.Writer) error) error {
	if f.output == "" || f.output == "-" {
		return write(e.Stdout)
	}
	return kit.CreateFile(f.output, write)
}

// exported returns the events to export.
func exported(ctx context.Context, s sources.Source, f *filter.Filter, redact bool) (export.Events, error) {
	p, err := pickEvents(ctx, s, &showFlags{parsed: f})
	if err != nil {
		return nil, err
	}
	if !p.all && p.count == 0 {
		return nil, exit.Fail(exit.Unexpected, "nothing_chosen", "mcpwire show --filter shows what a filter matches", errors.New("the filter matches nothing in the capture"))
	}
	seqs := make([]iter.Seq2[*capture.Event, error], 0, len(s.Paths))
	// Read each capture by itself: events of merged captures do not name their source.
	for _, path := range s.Paths {
		events := picked(s.One(ctx, path, false), p)
		if redact {
			events = redacted(events)
		}
		seqs = append(seqs, events)
	}
	if len(seqs) == 1 {
		return seqs[0], nil
	}
	return capture.Merge(seqs...), nil
}

// picked returns the events that p selected.
func picked(events export.Events, p *picker) export.Events {
	return func(yield func(*capture.Event, error) bool) {
		for e, err := range events {
			if err == nil && !p.all && e.Kind != capture.KindHead && !p.events.has(e.Capture, e.N) {
				continue
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// redacted hides apparent secrets in the events of a capture. Values that are already hidden do not
// change.
func redacted(events export.Events) export.Events {
	return func(yield func(*capture.Event, error) bool) {
		next, stop := iter.Pull2(events)
		defer stop()
		r := &redactor{next: next}
		r.enc = capture.NewEncoder(&r.text, nil)
		for e, err := range capture.NewReader(r, nil).Events() {
			if err != nil && r.err != nil {
				err = r.err
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// A redactor reads events as a capture with apparent secrets hidden.
type redactor struct {
	next func() (*capture.Event, error, bool)
	enc  *capture.Encoder
	text bytes.Buffer
	// err is the first error of reading or encoding.
	err error
}

// Read implements [io.Reader].
func (r *redactor) Read(p []byte) (int, error) {
	for r.text.Len() == 0 {
		if r.err != nil {
			return 0, r.err
		}
		e, err, ok := r.next()
		if !ok {
			return 0, io.EOF
		}
		if r.err = err; err == nil {
			r.err = cmp.Or(r.enc.Encode(e), r.enc.Flush())
		}
	}
	return r.text.Read(p)
}

// exportCall writes a shell script that sends the client's requests again by mcpwire call and the
// like, over any transport. It leaves out handshakes, because each command does its own. What a
// bridge has sent to its server is left out unless it is the side to export.
func exportCall(ctx context.Context, w io.Writer, events export.Events, f *filter.Filter, side capture.Side) error {
	x := &callExport{out: bufio.NewWriter(w), filter: f, side: side, events: map[eventID]*capture.Event{}}
	x.out.WriteString("#!/bin/sh\nset -u # fail if a variable below is not set\n")
	m := trace.New(&trace.Options{MaxRows: sources.MaxWindow, Scan: trace.Scanner(ctx, f)})
	for e, err := range events {
		if err != nil {
			return err
		}
		x.keep(e)
		for _, c := range m.Add(nil, e) {
			if c.Op != trace.Evicted {
				continue
			}
			if err := x.row(ctx, c.Row); err != nil {
				return err
			}
		}
	}
	for _, r := range m.Rows() {
		if err := x.row(ctx, r); err != nil {
			return err
		}
	}
	if x.count == 0 {
		return exit.Fail(exit.Unexpected, "nothing_chosen", "mcpwire show lists the requests", errors.New("no request of a client can be sent again"))
	}
	return x.out.Flush()
}

// A callExport writes the commands of rows in their order. It is a [detail.Source] of what clients
// sent.
type callExport struct {
	out    *bufio.Writer
	filter *filter.Filter
	// side is the side to export. Empty means that of clients.
	side capture.Side
	// events holds the newest messages of clients, up to maxExportedRequests bytes in all.
	// order has their ids.
	events map[eventID]*capture.Event
	order  []eventID
	bytes  int
	count  int
}

// maxExportedRequests limits the bytes of requests that are kept until their command is written.
const maxExportedRequests = 64 << 20

// An eventID identifies an event.
type eventID struct {
	capture string
	n       uint64
}

// keep keeps an event that a command may need.
func (x *callExport) keep(e *capture.Event) {
	if e.Dir != capture.ToServer && e.Kind != capture.KindStart {
		return
	}
	id := eventID{e.Capture, e.N}
	x.events[id] = e.Clone()
	x.order = append(x.order, id)
	x.bytes += sources.EventBytes + len(e.Data)
	for x.bytes > maxExportedRequests {
		oldest := x.order[0]
		x.order = x.order[1:]
		x.bytes -= sources.EventBytes + len(x.events[oldest].Data)
		delete(x.events, oldest)
	}
}

// Event implements [detail.Source].
func (x *callExport) Event(_ context.Context, captureID string, n uint64) (*capture.Event, error) {
	return x.events[eventID{captureID, n}], nil
}

// row writes the command of a row, if it is the request of a client and the filter matches.
func (x *callExport) row(ctx context.Context, r *trace.Row) error {
	switch {
	case r.Kind != trace.Request, r.Parent != nil, r.Dir != capture.ToServer, x.side == "" && r.Session.Side == capture.Upstream, r.Method == mcp.MethodInitialize, r.Method == mcp.MethodDiscover:
		return nil
	case !x.filter.MatchScanned(r, r.Hits):
		return nil
	}
	d, err := detail.Build(ctx, x, detail.TakeSnapshot(r), nil)
	if err != nil {
		return err
	}
	fmt.Fprintf(x.out, "\n# event #%s, %s\n", r.Number(), printable.Line(trace.Summary(r)))
	c, err := detail.CallCommand(d)
	if err != nil {
		_, err = fmt.Fprintf(x.out, "# %s\n", printable.Line(err.Error()))
		return err
	}
	for _, note := range c.Notes {
		fmt.Fprintf(x.out, "# %s\n", printable.Line(note))
	}
	x.count++
	_, err = fmt.Fprintf(x.out, "%s\n", c.Text)
	return err
}

// exportHTML writes captures as a self-contained page. It is the page of watch --web, so the
// captures are read as watch reads them.
func exportHTML(ctx context.Context, w io.Writer, paths []string, f *filter.Filter) error {
	hub := watch.New(&watch.Options{Files: paths})
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- hub.Run(ctx) }()
	defer func() {
		cancel()
		<-done
	}()
	server := web.New(hub, &web.Options{Tool: "mcpwire " + build.Version()})
	defer server.Close()
	if err := readWhole(ctx, hub); err != nil {
		return err
	}
	return server.Export(ctx, w, f)
}

// readWhole waits until hub has read everything that the captures contain now.
func readWhole(ctx context.Context, hub *watch.Hub) error {
	feed := hub.Subscribe(0)
	defer feed.Close()
	for {
		whole := hub.Loaded()
		for _, s := range hub.Sources() {
			if s.Err != "" {
				return exit.Fail(exit.Unexpected, "unreadable", "", errors.New(trace.Escape(s.Path+": "+s.Err)))
			}
			whole = whole && (s.State == watch.Complete || s.State == watch.Truncated || s.Size > 0 && s.Read >= s.Size)
		}
		wait, cancel := context.WithTimeout(ctx, endPoll)
		err := feed.Next(wait, func(*watch.Batch) {})
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded) && whole:
			return nil
		case err != nil && !errors.Is(err, context.DeadlineExceeded):
			return fmt.Errorf("reading the captures: %w", err)
		}
	}
}
