package cli

import (
	"github.com/spf13/cobra"

	"mcpwire/internal/trace/filter"
)

type showFlags struct {
	side                      sideFlag
	filter, number            string
	raw, json, follow, frames bool
	parsed                    *filter.Filter
	from, to                  uint64
}

func newShowCommand(e *env) *cobra.Command {
	var f showFlags
	c := &cobra.Command{
		Use:   "show [FILE | NAME]... [-n N[-M]] [FLAGS]",
		Short: "show recorded exchanges",
		Long: `Show a capture: one line for each request with its result, and indented below it
what the request caused: progress, log messages, requests from the server, input
rounds, polls of a task. Output of the process, its start and its exit are in
the same timeline. Several captures form one timeline.

FILE is a capture, NAME is a server that has one (mcpwire captures lists them),
and - is standard input. The default is the newest capture; --follow waits for
one. The first column is the number of the event in the capture. -n shows
everything about the exchange of an event: request, response, headers, times.

Filters:  tool:search  method:/^tools/  status:error  -method:ping  dur>500ms
          size>1MB  kind:stderr  has:_meta.traceparent  finding:RULE  n:12-20
          jq:(.result.isError)  words "in payloads"  a | b  (a b)
Statuses: ok, error, iserror, input_required, task, cancelled, pending,
          unanswered, http, or a code such as -32602 or 401.`,
		Example: `  mcpwire show
  mcpwire show fs --filter 'tool:search dur>500ms -status:ok'
  mcpwire show session.mcpcap.ndjson.gz -n 12
  mcpwire show fs -n 12 --json | jq .result
  mcpwire show fs --follow`,
		ValidArgsFunction: completeCaptures,
		RunE:              func(cmd *cobra.Command, args []string) error { return runShow(cmd, e, &f, args) },
	}
	f.side.register(c, "")
	c.Flags().StringVarP(&f.filter, "filter", "f", "", "show only exchanges that match `FILTER`")
	c.Flags().StringVarP(&f.number, "number", "n", "", "show the exchanges of events `N`, N-M or N- in full")
	c.Flags().BoolVar(&f.raw, "raw", false, "print the exact bytes of the payloads, each followed by a line break")
	c.Flags().BoolVar(&f.json, "json", false, "print an object for each exchange; with -n, the messages themselves")
	c.Flags().BoolVar(&f.frames, "frames", false, "print a line for each event instead")
	c.Flags().BoolVar(&f.follow, "follow", false, "keep reading while the capture is being written")
	return c
}

func (f *showFlags) check(s captureSource) error {
	modes := 0
	for _, set := range []bool{f.raw, f.json, f.frames} {
		if set {
			modes++
		}
	}
	twice := f.number != "" || f.raw || f.frames && f.parsed != nil
	switch {
	case modes > 1:
		return usagef("show: --raw, --json and --frames exclude each other")
	case f.follow && (f.number != "" || f.raw || f.frames):
		return usagef("show: --follow can only be combined with --filter and --json")
	case f.follow && len(s.paths) != 1:
		return usagef("show: --follow reads one capture; mcpwire watch shows several")
	case twice && s.stdin():
		return usagef("show: -n, --raw and --frames with a filter read the input twice, and standard input can only be read once: give a file")
	}
	return nil
}

func runShow(cmd *cobra.Command, e *env, f *showFlags, args []string) error {
	var err error
	if f.parsed, err = parseFilter("show", f.filter); err != nil {
		return err
	}
	if f.number != "" {
		var ok bool
		if f.from, f.to, ok = filter.ParseRange(f.number); !ok {
			return usagef("show: -n needs a number, or a range such as 12-20 or 12-, not %q", f.number)
		}
	}
	find := captureArgs
	if f.follow {
		find = func(e *env, command string, args []string) ([]string, error) {
			return awaitCapture(cmd.Context(), e, command, args)
		}
	}
	paths, err := find(e, "show", args)
	if err != nil {
		return err
	}
	s := captureSource{e, paths, f.side.side}
	if err := f.check(s); err != nil {
		return err
	}
	ctx := cmd.Context()
	switch {
	case f.number != "" || f.raw || f.frames:
		return showEvents(ctx, s, f)
	case f.follow:
		l := newLister(e, f.parsed)
		l.json, l.live = f.json, true
		if err := l.run(ctx, s.follow(ctx), func() bool { return ctx.Err() == nil }); err != nil {
			return err
		}
		return ctx.Err()
	}
	l := newLister(e, f.parsed)
	l.json, l.server = f.json, len(paths) > 1
	return l.run(ctx, s.events(ctx), func() bool { return true })
}

// parseFilter parses a filter. An empty text is nil.
func parseFilter(command, text string) (*filter.Filter, error) {
	if text == "" {
		return nil, nil
	}
	f, err := filter.Parse(text)
	if err != nil {
		return nil, usagef("%s: %w", command, err)
	}
	return f, nil
}
