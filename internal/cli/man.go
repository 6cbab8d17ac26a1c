package cli

import (
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func newManCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man FOLDER",
		Short: "write the manual pages to a folder",
		Long:  "Write a manual page for each command to a folder. The folder is created if it\ndoes not exist.",
		Example: `  mcpwire man ~/.local/share/man/man1
  man mcpwire-tap`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("man: want one folder (such as: mcpwire man ~/.local/share/man/man1)")
			}
			if err := os.MkdirAll(args[0], 0o777); err != nil {
				return err
			}
			date := time.Unix(0, 0).UTC() // so that pages are reproducible
			plain(cmd.Root())
			return doc.GenManTree(cmd.Root(), &doc.GenManHeader{Section: "1", Source: "mcpwire " + Version, Manual: "mcpwire", Date: &date}, args[0])
		},
	}
}

// plain omits the generation date from a command's page and its subcommands' pages.
func plain(c *cobra.Command) {
	c.DisableAutoGenTag = true
	for _, sub := range c.Commands() {
		plain(sub)
	}
}
