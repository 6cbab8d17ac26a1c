package connect

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/gatewayd"
	"mcpwire/cmd/internal/proxy/gateway/policy"
	"mcpwire/cmd/internal/text/safe"
)

func newGatewayPinsCommand(e *kit.Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "pins FILE | pins accept FILE UPSTREAM [NAME]",
		Short: "show and accept changed definitions of tools",
		Long: `Show which tools, prompts, resources and templates have another definition than
the accepted one, which servers have other instructions, and what has changed. The
gateway accepts the first definition that it sees of each item of an upstream with
pin: warn or pin: hide in the configuration FILE, for each kind of clients.

Exit status: 0 nothing has changed, 6 something has.`,
		Example:           "  mcpwire gateway pins gateway.yaml\n  mcpwire gateway pins accept gateway.yaml files read_file",
		Args:              oneFile,
		ValidArgsFunction: completeConfiguration,
		RunE: func(_ *cobra.Command, args []string) error {
			_, file, err := gatewayd.PinFile(args[0])
			if err != nil {
				return err
			}
			changes, err := policy.ChangedPins(file)
			if err != nil {
				return err
			}
			if err := printPins(e.Stdout, changes); err != nil {
				return err
			}
			if len(changes) > 0 {
				return &exit.Status{Code: exit.Findings}
			}
			return nil
		},
	}
	c.AddCommand(&cobra.Command{
		Use:   "accept FILE UPSTREAM [NAME]",
		Short: "accept changed definitions of an upstream",
		Long: `Accept the changed definitions of an upstream, or only of the items with a name or
URI, and print what has changed. NAME is the server's own name; that of a server's
instructions is "instructions". A running gateway notices it.`,
		Example: "  mcpwire gateway pins accept gateway.yaml files\n  mcpwire gateway pins accept gateway.yaml files read_file",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 || len(args) > 3 {
				return exit.Usagef("gateway pins accept: want the configuration, the name of an upstream, and perhaps that of a tool")
			}
			return nil
		},
		ValidArgsFunction: completeConfiguration,
		RunE: func(_ *cobra.Command, args []string) error {
			conf, file, err := gatewayd.PinFile(args[0])
			if err != nil {
				return err
			}
			if conf.Upstream(args[1]) == nil {
				var names []string
				for _, u := range conf.Upstreams {
					names = append(names, u.Name)
				}
				return exit.Usagef("gateway pins accept: no upstream %q in %s%s", args[1], safe.Line(args[0]), kit.DidYouMean(args[1], names))
			}
			changes, err := policy.AcceptPins(file, args[1], append(args[2:], "")[0])
			if err != nil {
				return err
			}
			if len(changes) == 0 {
				_, err := fmt.Fprintln(e.Stderr, "mcpwire: nothing to accept")
				return err
			}
			return printPins(e.Stdout, changes)
		},
	})
	return c
}

// printPins prints changed definitions, with a line for each difference.
func printPins(w io.Writer, changes []*policy.PinChange) error {
	for _, c := range changes {
		if _, err := fmt.Fprintf(w, "%s %s %s, changed %s (for clients: %s)\n", safe.Line(c.Upstream), c.Kind, safe.Line(c.Name), c.Since.Local().Format("2006-01-02 15:04:05"), c.Catalog); err != nil {
			return err
		}
		for _, line := range c.Lines() {
			if _, err := fmt.Fprintf(w, "  %s\n", safe.Line(line)); err != nil {
				return err
			}
		}
	}
	return nil
}
