package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"mcpwire/capture"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/trace"
)

func newGrepCommand(e *env) *cobra.Command {
	var files, count, asJSON bool
	var window windowFlags
	var side sideFlag
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
				return completeFilter(cmd, nil, word)
			}
			return completeCaptures(cmd, args, word)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || args[0] == "" {
				return exit.Usagef("grep: missing the filter (such as: mcpwire grep timeout FILE)")
			}
			if files && count || asJSON && (files || count) {
				return exit.Usagef("grep: -l, -c and --json exclude each other")
			}
			if window.given() && (files || count) {
				return exit.Usagef("grep: --since and --last cannot be combined with -l and -c")
			}
			return captureError(runGrep(cmd, e, args, side.side, &window, files, count, asJSON))
		},
	}
	side.register(c, "")
	window.register(c.Flags())
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

func runGrep(cmd *cobra.Command, e *env, args []string, side capture.Side, flags *windowFlags, files, count, asJSON bool) error {
	window, err := flags.parse("grep", time.Now())
	if err != nil {
		return err
	}
	f, err := parseFilter("grep", args[0])
	if err != nil {
		return err
	}
	paths, err := captureArgs(e, "grep "+args[0], args[1:])
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
		s := captureSource{e, []string{path}, side}
		if !files && !count {
			if err := l.run(cmd.Context(), s.events(cmd.Context()), func() bool { return true }); err != nil {
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
			_, err = fmt.Fprintln(e.stdout, safe)
		case count:
			_, err = fmt.Fprintf(e.stdout, "%s%d\n", l.prefix, n)
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

func countMatches(cmd *cobra.Command, s captureSource, l *lister, first bool) (n int, err error) {
	err = walk(cmd.Context(), s, newWalkModel(cmd.Context(), l.filter), func(r *trace.Row) error {
		if l.filter.MatchScanned(r, r.Hits) {
			if n++; first {
				return errEnough
			}
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return n, err
}
