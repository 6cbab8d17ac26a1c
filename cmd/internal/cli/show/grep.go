package show

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"mcpwire/capture"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/sources"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/trace"
)

// NewGrepCommand returns the command grep.
func NewGrepCommand(e *kit.Env) *cobra.Command {
	var files, count, asJSON bool
	var window sources.WindowFlags
	var side sources.SideFlag
	c := &cobra.Command{
		Use:   "grep FILTER [FILE|NAME...] [-l|-c|--json]",
		Short: "find exchanges in captures",
		Long: `Print the exchanges that match a filter, as mcpwire show does, capture by
capture. A filter consists of words to find in payloads, and of terms such as
tool:search, status:error or dur>1s; see mcpwire show --help. The default is the
newest capture, with all others of the same time.

The exit status is 0 if there is a match, 1 if there is none, and 2 if a capture
does not exist or cannot be read.`,
		Example: `  mcpwire grep timeout
  mcpwire grep 'tool:search status:iserror' *.mcpcap.ndjson
  mcpwire grep -l '"connection refused"' fs github
  mcpwire grep -c dur\>1s fs`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return sources.CompleteFilter(cmd, nil, word)
			}
			return sources.CompleteCaptures(cmd, args, word)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || args[0] == "" {
				return exit.Usagef("grep: missing the filter (such as: mcpwire grep timeout FILE)")
			}
			if files && count || asJSON && (files || count) {
				return exit.Usagef("grep: -l, -c and --json exclude each other")
			}
			if window.Given() && (files || count) {
				return exit.Usagef("grep: --since and --last cannot be combined with -l and -c")
			}
			return captureError(runGrep(cmd, e, args, side.Side, &window, files, count, asJSON))
		},
	}
	side.Register(c, "")
	window.Register(c.Flags())
	c.Flags().BoolVarP(&files, "files", "l", false, "print only the names of the files with a match")
	c.Flags().BoolVarP(&count, "count", "c", false, "print only the number of matching exchanges per file")
	c.Flags().BoolVar(&asJSON, "json", false, "print an object for each exchange")
	return c
}

// captureError changes the exit status of failures to exit.Usage: exit.Unexpected means no match,
// as with other greps.
func captureError(err error) error {
	if f, ok := errors.AsType[*exit.Failure](err); ok && f.Status == exit.Unexpected {
		f.Status = exit.Usage
	}
	return err
}

func runGrep(cmd *cobra.Command, e *kit.Env, args []string, side capture.Side, flags *sources.WindowFlags, files, count, asJSON bool) error {
	window, err := flags.Parse("grep", time.Now())
	if err != nil {
		return err
	}
	f, err := sources.ParseFilter("grep", args[0])
	if err != nil {
		return err
	}
	paths, err := sources.Args(e, "grep "+args[0], args[1:])
	if err != nil {
		return err
	}
	found := false
	for _, path := range paths {
		l := newLister(e, f)
		l.json, l.window = asJSON, window
		safe := trace.Escape(path)
		if len(paths) > 1 && !asJSON {
			l.prefix = safe + ": "
		}
		s := sources.Source{Env: e, Paths: []string{path}, Side: side}
		if !files && !count {
			if err := l.run(cmd.Context(), s.Events(cmd.Context()), func() bool { return true }); err != nil {
				return err
			}
			found = found || l.count > 0
			continue
		}
		n, err := countMatches(cmd, s, l, files)
		if err != nil {
			return err
		}
		found = found || n > 0
		switch {
		case files && n > 0:
			_, err = fmt.Fprintln(e.Stdout, safe)
		case count:
			_, err = fmt.Fprintf(e.Stdout, "%s%d\n", l.prefix, n)
		}
		if err != nil {
			return err
		}
	}
	if !found {
		return &exit.Status{Code: exit.Unexpected}
	}
	return nil
}

func countMatches(cmd *cobra.Command, s sources.Source, l *lister, first bool) (n int, err error) {
	err = sources.Walk(cmd.Context(), s, sources.NewWalkModel(cmd.Context(), l.filter), func(r *trace.Row) error {
		if l.filter.MatchScanned(r, r.Hits) {
			if n++; first {
				return sources.ErrEnough
			}
		}
		return nil
	})
	if errors.Is(err, sources.ErrEnough) {
		err = nil
	}
	return n, err
}
