package cli

import (
	"github.com/spf13/cobra"

	"mcpwire/internal/inspect/hosts"
)

func newUnwrapCommand(e *env) *cobra.Command {
	var sel selection
	var dryRun bool
	c := &cobra.Command{
		Use:   "unwrap NAME|--all [FLAGS]",
		Short: "have a host run a server without the tap again",
		Long: `Makes the entry of a server what it was before mcpwire wrap. If nothing else has
changed in the file since, the file is byte by byte what it was; otherwise only the
entry changes, and what was edited meanwhile stays. Restart the host afterwards.`,
		Example: `  mcpwire unwrap filesystem
  mcpwire unwrap --all
  mcpwire unwrap --all --host claude-desktop --dry-run`,
		Args: func(_ *cobra.Command, args []string) error { return sel.arguments("unwrap", args) },
		RunE: func(*cobra.Command, []string) error {
			r := &rewriting{env: e, selection: sel, dryRun: dryRun, verb: "unwrap", done: "unwrapped"}
			r.change = func(d *hosts.Document, s hosts.Server) error {
				return d.Unwrap(s.Pointer)
			}
			return r.run(func(s hosts.Server) bool { return s.Wrapped })
		},
	}
	sel.flags(c)
	c.Flags().BoolVarP(&dryRun, "dry-run", "n", false, "print what would change, and change nothing")
	return c
}
