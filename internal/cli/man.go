package cli

import (
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
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
			root := cmd.Root()
			root.DisableAutoGenTag = true
			escapeTexts(root)
			header := &doc.GenManHeader{Source: "mcpwire " + Version, Manual: "mcpwire"}
			if _, day := builtFrom(); day != "" {
				if d, err := time.Parse(time.DateOnly, day); err == nil {
					header.Date = &d // otherwise today
				}
			}
			return doc.GenManTree(root, header, args[0])
		},
	}
}

// markup escapes the characters that are markup in Markdown.
var markup = strings.NewReplacer(`\`, `\\`, "*", `\*`, "_", `\_`, "`", "\\`", "<", `\<`, ">", `\>`, "[", `\[`, "]", `\]`, "|", `\|`, "#", `\#`, "&", `\&`, "~", `\~`)

// escapeTexts changes the texts of a command and of its subcommands for cobra, which makes manual
// pages from Markdown.
func escapeTexts(c *cobra.Command) {
	long := c.Long
	if long == "" {
		long = upperFirst(c.Short) + "."
	}
	if !c.HasParent() {
		long += "\n\n" + statusHelp
	}
	paragraphs := strings.Split(strings.TrimSpace(long), "\n\n")
	for i, p := range paragraphs {
		// Paragraphs with indented lines are lists and examples, whose lines stay.
		if strings.HasPrefix(p, " ") || strings.Contains(p, "\n ") {
			paragraphs[i] = "```\n" + p + "\n```"
		} else {
			paragraphs[i] = markup.Replace(p)
		}
	}
	c.Short, c.Use, c.Long = markup.Replace(c.Short), markup.Replace(c.Use), strings.Join(paragraphs, "\n\n")
	c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) })
	for _, sub := range c.Commands() {
		escapeTexts(sub)
	}
}
