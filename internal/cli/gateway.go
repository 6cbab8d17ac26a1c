package cli

import (
	"github.com/spf13/cobra"
)

func newGatewayCommand(e *env) *cobra.Command {
	commands := []string{"check", "import", "schema"}
	c := &cobra.Command{
		Use:   "gateway check FILE | import [HOST...] | schema",
		Short: "check and write configurations of many servers behind one endpoint",
		Long: `Check and write configurations of a gateway: one file that says which servers
are behind one endpoint, and who may use them.`,
		Example: `  mcpwire gateway import > gateway.yaml
  mcpwire gateway check gateway.yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("gateway: unknown command %q (want check, import or schema)%s", args[0], didYouMean(args[0], commands))
			}
			return usagef("gateway: missing the command: check, import or schema")
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	c.AddCommand(newGatewayCheckCommand(e), newGatewayImportCommand(e), newGatewaySchemaCommand(e))
	return c
}
