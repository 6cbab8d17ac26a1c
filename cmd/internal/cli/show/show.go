// Package show has the commands that show captures and running taps, and convert captures for other
// tools.
package show

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/sources"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/trace/captures"
	"mcpwire/cmd/internal/trace/filter"
)

type showFlags struct {
	side                      sources.SideFlag
	filter, number            string
	raw, json, follow, frames bool
	children                  bool
	window                    sources.WindowFlags
	parsed                    *filter.Filter
	// capture has the letters of the capture that number refers to. Empty means all captures.
	capture  string
	from, to uint64
}

// NewCommand returns the command show.
func NewCommand(e *kit.Env) *cobra.Command {
	var f showFlags
	c := &cobra.Command{
		Use:   "show [FILE | NAME]... [-n N[-M]] [FLAGS]",
		Short: "show recorded exchanges",
		Long: `Show a capture: one line for each request with its result, and indented below it
what the request caused: progress, log messages, requests from the server, input
rounds, polls of a task. Output of the process, its start and its exit are in
the same timeline. Several captures form one timeline.

FILE is a capture, NAME is a server that has one (mcpwire captures lists them),
and - is standard input. The default is the newest capture, with all others of
the same time; --follow waits for one that is being written. The first column is
the number of the event in the capture. Of several captures, it begins with
letters that tell them apart, as in mcpwire watch. -n shows everything about the
exchange of an event: request, response, headers, times. Without letters, it
shows the exchanges with that number of all captures.

Three and more progress notifications in a row are one line; --children prints
all of them.

Filters:  tool:search (contains)  tool:=search (is)  method:/^tools/
          status:error  -method:ping  dur>500ms  size>1MB  kind:stderr
          finding:RULE  n:12-20  has:_meta.traceparent  jq:(.result.isError)
          words "in payloads"  a | b  (a b)
Statuses: ok, error, toolfailed, needsinput, task, cancelled, pending,
          noresponse, http, or a code such as -32602 or 401. JSON has iserror,
          input_required and unanswered, which are accepted too.`,
		Example: `  mcpwire show
  mcpwire show fs --filter 'tool:search dur>500ms -status:ok'
  mcpwire show session.mcpcap.ndjson.gz -n 12
  mcpwire show fs -n 12 --json | jq .result
  mcpwire show a.mcpcap.ndjson b.mcpcap.ndjson -n b12
  mcpwire show fs --follow
  mcpwire show --since 10m --last 20`,
		ValidArgsFunction: sources.CompleteCaptures,
		RunE:              func(cmd *cobra.Command, args []string) error { return runShow(cmd, e, &f, args) },
	}
	f.side.Register(c, "")
	c.Flags().StringVarP(&f.filter, "filter", "f", "", "show only exchanges that match `FILTER`")
	c.Flags().StringVarP(&f.number, "number", "n", "", "show the exchanges of events `N`, N-M or N- in full")
	c.Flags().BoolVar(&f.raw, "raw", false, "print the exact bytes of the payloads, each followed by a line break")
	c.Flags().BoolVar(&f.json, "json", false, "print an object for each exchange; with -n, the messages themselves")
	c.Flags().BoolVar(&f.frames, "frames", false, "print a line for each event instead")
	c.Flags().BoolVar(&f.children, "children", false, "print each progress notification; three and more in a row are otherwise one line")
	f.window.Register(c.Flags())
	c.Flags().BoolVar(&f.follow, "follow", false, "keep reading while the capture is being written")
	_ = c.RegisterFlagCompletionFunc("filter", sources.CompleteFilter) // the flag exists
	return c
}

func (f *showFlags) check(s sources.Source) error {
	modes := 0
	for _, set := range []bool{f.raw, f.json, f.frames} {
		if set {
			modes++
		}
	}
	twice := f.number != "" || f.raw || f.frames && f.parsed != nil
	switch {
	case modes > 1:
		return exit.Usagef("show: --raw, --json and --frames exclude each other")
	case f.window.Given() && (f.number != "" || f.raw || f.frames):
		return exit.Usagef("show: --since and --last cannot be combined with -n, --raw and --frames")
	case f.follow && f.window.Last > 0:
		return exit.Usagef("show: --last cannot be combined with --follow")
	case f.follow && (f.number != "" || f.raw || f.frames):
		return exit.Usagef("show: --follow can only be combined with --filter and --json")
	case f.follow && len(s.Paths) > 1 && s.Stdin():
		return exit.Usagef("show: --follow follows either files or standard input")
	case twice && s.Stdin():
		return exit.Usagef("show: -n, --raw and --frames with a filter read the input twice, and standard input can only be read once: give a file")
	}
	return nil
}

func runShow(cmd *cobra.Command, e *kit.Env, f *showFlags, args []string) error {
	var err error
	if f.parsed, err = sources.ParseFilter("show", f.filter); err != nil {
		return err
	}
	if f.number != "" {
		var ok bool
		digits := strings.TrimLeft(f.number, "abcdefghijklmnopqrstuvwxyz")
		f.capture = strings.TrimSuffix(f.number, digits)
		if f.from, f.to, ok = filter.ParseRange(digits); !ok {
			return exit.Usagef("show: -n needs a number, or a range such as 12-20 or 12-, not %q", f.number)
		}
	}
	window, err := f.window.Parse("show", time.Now())
	if err != nil {
		return err
	}
	find := sources.Args
	if f.follow {
		find = func(e *kit.Env, command string, args []string) ([]string, error) {
			return sources.Await(cmd.Context(), e, command, args)
		}
	}
	paths, err := find(e, "show", args)
	if err != nil {
		return err
	}
	s := sources.Source{Env: e, Paths: paths, Side: f.side.Side}
	if err := f.check(s); err != nil {
		return err
	}
	ctx := cmd.Context()
	switch {
	case f.number != "" || f.raw || f.frames:
		return showEvents(ctx, s, f)
	case f.follow:
		l := newLister(e, f.parsed)
		l.json, l.live, l.server = f.json, true, len(paths) > 1
		l.window = window
		var discover func() []string
		if len(args) == 0 {
			discover = func() []string {
				found := newCaptures(paths)
				paths = append(paths, found...)
				l.server = len(paths) > 1
				return found
			}
		}
		if err := l.run(ctx, s.Follow(ctx, discover), func() bool { return ctx.Err() == nil }); err != nil {
			return err
		}
		return ctx.Err()
	}
	l := newLister(e, f.parsed)
	l.json, l.server, l.letters, l.children, l.window = f.json, len(paths) > 1, len(paths) > 1, f.children, window
	if err := l.run(ctx, s.Events(ctx), func() bool { return true }); err != nil {
		return err
	}
	l.noMatch(e)
	e.NoteGaps(l.gaps)
	if l.seen == 0 && l.filter == nil && !f.json {
		fmt.Fprintln(e.Stderr, "nothing to show: the capture has no events")
	}
	return nil
}

// newCaptures returns the captures that are being written, except the known ones.
func newCaptures(known []string) []string {
	newest, err := sources.Newest()
	if err != nil {
		return nil // the folder may be readable again later
	}
	var paths []string
	for _, c := range newest {
		if c.State == captures.Writing && !slices.Contains(known, c.Path) {
			paths = append(paths, c.Path)
		}
	}
	return paths
}
