package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/cmd/internal/build"
	"mcpwire/cmd/internal/exit"
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
				return exit.Usagef("man: want one folder (such as: mcpwire man ~/.local/share/man/man1)")
			}
			if err := os.MkdirAll(args[0], 0o777); err != nil {
				return err
			}
			return writeManPages(args[0], cmd.Root())
		},
	}
}

// writeManPages writes the pages of a command and of its subcommands. cobra's own pages are made
// from Markdown, which takes "**" and "_" in a help text for markup, and needs two more modules.
func writeManPages(dir string, c *cobra.Command) error {
	if err := os.WriteFile(filepath.Join(dir, manName(c)+".1"), []byte(manPage(c)), 0o666); err != nil {
		return err
	}
	for _, sub := range manCommands(c) {
		if err := writeManPages(dir, sub); err != nil {
			return err
		}
	}
	return nil
}

// manCommands are the subcommands that have a page.
func manCommands(c *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(c.Commands()), func(sub *cobra.Command) bool {
		return !sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand()
	})
}

func manName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manPage returns the page of a command, for the macros of man(7). It has no date, so that it is
// the same each time.
func manPage(c *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %q \"1\" \"\" %q \"mcpwire\"\n", strings.ToUpper(manName(c)), "mcpwire "+build.Version())
	// Without hyphenation and adjustment, commands can be copied.
	b.WriteString(".nh\n.ad l\n.SH NAME\n" + roff(manName(c)) + ` \- ` + roff(c.Short) + "\n.SH SYNOPSIS\n.B " + roff(synopsis(c)) + "\n.SH DESCRIPTION\n")
	long := c.Long
	if long == "" {
		long = upperFirst(c.Short) + "."
	}
	for i, paragraph := range strings.Split(strings.TrimSpace(long), "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		// Paragraphs with indented lines are lists and examples, whose lines stay.
		if strings.HasPrefix(paragraph, " ") || strings.Contains(paragraph, "\n ") {
			b.WriteString(".nf\n" + roff(paragraph) + "\n.fi\n")
		} else {
			b.WriteString(roff(paragraph) + "\n")
		}
	}
	if c.HasAvailableSubCommands() {
		b.WriteString(".SH COMMANDS\n")
		for _, sub := range manCommands(c) {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(sub.Name()), roff(sub.Short))
		}
	}
	manOptions(&b, "OPTIONS", c.NonInheritedFlags())
	manOptions(&b, "OPTIONS OF ALL COMMANDS", c.InheritedFlags())
	if c.HasExample() {
		b.WriteString(".SH EXAMPLES\n.nf\n" + roff(strings.Trim(c.Example, "\n")) + "\n.fi\n")
	}
	if !c.HasParent() {
		b.WriteString(".SH EXIT STATUS\n" + roff(strings.TrimPrefix(exit.StatusHelp, "Exit status: ")) + "\n")
	}
	var others []string
	if c.HasParent() {
		others = append(others, manName(c.Parent()))
	}
	for _, sub := range manCommands(c) {
		others = append(others, manName(sub))
	}
	b.WriteString(".SH SEE ALSO\n")
	for i, name := range others {
		comma := ","
		if i == len(others)-1 {
			comma = ""
		}
		fmt.Fprintf(&b, ".BR %s (1)%s\n", roff(name), comma)
	}
	return b.String()
}

func manOptions(b *strings.Builder, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	b.WriteString(".SH " + title + "\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Deprecated != "" {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		names := `\fB` + roff("--"+f.Name) + `\fR`
		if f.Shorthand != "" {
			names = `\fB` + roff("-"+f.Shorthand) + `\fR, ` + names
		}
		if value != "" {
			names += ` \fI` + roff(value) + `\fR`
		}
		switch f.DefValue {
		case "", "false", "0", "0s", "[]":
		default:
			usage += fmt.Sprintf(" (default %s)", f.DefValue)
		}
		b.WriteString(".TP\n" + names + "\n" + roff(usage) + "\n")
	})
}

// roff escapes text. Hyphens are those of command lines.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	var b strings.Builder
	for _, r := range strings.Join(lines, "\n") {
		if r < 0x80 {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\[u%04X]`, r) // roff reads Latin-1
		}
	}
	return b.String()
}
