package servers

import (
	"github.com/spf13/cobra"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/inspect/hosts"
)

// NewUnwrapCommand returns the command unwrap.
func NewUnwrapCommand(e *kit.Env) *cobra.Command {
	var sel selection
	var dryRun bool
	c := &cobra.Command{
		Use:   "unwrap NAME|--all [FLAGS]",
		Short: "run a server of a host without the tap again",
		Long: `Restore the entry of a server to its state before mcpwire wrap. If nothing else
in the file has changed, the file is restored byte for byte. Otherwise only the
entry changes, and other edits are kept. Restart the host afterwards.`,
		Example: `  mcpwire unwrap filesystem
  mcpwire unwrap --all
  mcpwire unwrap --all --host claude-desktop --dry-run`,
		Args:              func(_ *cobra.Command, args []string) error { return sel.arguments("unwrap", args) },
		ValidArgsFunction: targets.CompleteServers(func(s hosts.Server) bool { return s.Wrapped }),
		RunE: func(*cobra.Command, []string) error {
			r := &rewriting{env: e, selection: sel, dryRun: dryRun, verb: "unwrap", done: "unwrapped"}
			r.change = func(d *hosts.Document, s hosts.Server) error {
				return d.Unwrap(s.Pointer)
			}
			return r.run(func(s hosts.Server) bool { return s.Wrapped })
		},
	}
	sel.flags(c)
	c.Flags().BoolVarP(&dryRun, "dry-run", "n", false, "only print what would change")
	return c
}
