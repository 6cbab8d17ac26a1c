package connect

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/gatewayd"
	gatewayconfig "mcpwire/cmd/internal/proxy/gateway/config"
	"mcpwire/cmd/internal/text/safe"
)

func newGatewayCheckCommand(e *kit.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "check the configuration of a gateway",
		Long: `Check a configuration without starting or connecting to anything. All errors are
printed, one per line, as FILE:LINE:COLUMN: MESSAGE.

If the file itself is valid, check also looks for the environment variables,
files, folders and programs that it names. Run it on the machine and with the
environment of the gateway. If it finds no error, it prints for each upstream
which clients share its process or session.

Exit status: 0 valid, 6 errors, 1 the file cannot be read.`,
		Example:           "  mcpwire gateway check gateway.yaml",
		Args:              oneFile,
		ValidArgsFunction: completeConfiguration,
		RunE: func(_ *cobra.Command, args []string) error {
			c, found, err := gatewayd.Check(args[0])
			if err != nil {
				return err
			}
			var lines []string
			for _, one := range found {
				lines = append(lines, one.Error())
			}
			if len(found) == 0 {
				for _, u := range c.Upstreams {
					lines = append(lines, u.Name+": "+gatewayd.Sharing(c, u))
				}
			}
			for _, line := range lines {
				if _, err := fmt.Fprintln(e.Stdout, safe.Line(line)); err != nil {
					return err
				}
			}
			if len(found) > 0 {
				return &exit.Status{Code: exit.Findings}
			}
			return nil
		},
	}
}

// oneFile checks the arguments of a command that takes the configuration of a gateway.
func oneFile(cmd *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return exit.UsageHintf("mcpwire gateway import writes one, and doc/gateway.md explains it", "%s: missing the configuration: give its file", strings.TrimPrefix(cmd.CommandPath(), "mcpwire "))
	case 1:
		return nil
	}
	return exit.Usagef("%s: unexpected argument %q: it takes one file", strings.TrimPrefix(cmd.CommandPath(), "mcpwire "), args[1])
}

// completeConfiguration completes the names of files in YAML and JSON.
func completeConfiguration(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return []string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
}

func newGatewaySchemaCommand(e *kit.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "print the JSON Schema of the configuration",
		Long: `Print the JSON Schema of the configuration (draft 2020-12), for editors. Those
that know the YAML Language Server use it if the first line of a configuration
is, for example:

  # yaml-language-server: $schema=./gateway.schema.json`,
		Example: "  mcpwire gateway schema > gateway.schema.json",
		Args:    kit.FlagsOnly,
		RunE: func(*cobra.Command, []string) error {
			_, err := e.Stdout.Write(gatewayconfig.Schema)
			return err
		},
	}
}
