package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpWidth is the width of the help, in columns.
const helpWidth = 80

// writeHelp writes the help of a command. It uses no template: linking text/template keeps every
// exported method in the program.
func writeHelp(w io.Writer, c *cobra.Command) error {
	var b strings.Builder
	if text := c.Long; text != "" {
		b.WriteString(reflow(strings.TrimSpace(text)) + "\n\n")
	} else {
		b.WriteString(upperFirst(c.Short) + ".\n\n")
	}
	use := c.UseLine()
	if c.HasAvailableSubCommands() {
		use = c.CommandPath() + " COMMAND"
	}
	b.WriteString(reflow("Usage: "+use) + "\n")
	if c.HasExample() {
		b.WriteString("\nExamples:\n" + strings.TrimRight(c.Example, "\n ") + "\n")
	}
	for _, g := range c.Groups() {
		writeCommands(&b, c, g.ID, g.Title)
	}
	if c.HasAvailableSubCommands() {
		title := "More:"
		if len(c.Groups()) == 0 {
			title = "Commands:"
		}
		writeCommands(&b, c, "", title)
	}
	own, target := flagGroups(c)
	writeFlags(&b, "Flags:", own)
	writeNames(&b, "Target flags, which mcpwire help targets describes:", target)
	if !c.HasParent() {
		b.WriteString("\nRun mcpwire COMMAND --help for help on a command.\n" + statusHelp + "\n" + errorsHelp + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// reflow wraps paragraphs that contain a line that is too long. It leaves paragraphs with indented
// lines alone.
func reflow(text string) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		lines := strings.Split(p, "\n")
		long := func(line string) bool { return utf8.RuneCountInString(line) > helpWidth }
		if slices.ContainsFunc(lines, long) && !strings.Contains(p, "\n ") && !strings.HasPrefix(p, " ") {
			f := newFolder(false, helpWidth, 0, 0)
			f.words(strings.Join(lines, " "), "")
			paragraphs[i] = f.String()
		}
	}
	return strings.Join(paragraphs, "\n\n")
}

// ofTarget is the annotation of the flags, shared by many commands, that say how to reach a server.
const ofTarget = "target"

// flagGroups returns the command's own flags and those that say how to reach a server.
func flagGroups(c *cobra.Command) (own, target *pflag.FlagSet) {
	own, target = pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if _, ok := f.Annotations[ofTarget]; ok {
			target.AddFlag(f)
		} else {
			own.AddFlag(f)
		}
	})
	return own, target
}

func writeFlags(b *strings.Builder, title string, flags *pflag.FlagSet) {
	if flags.HasAvailableFlags() {
		b.WriteString("\n" + title + "\n" + strings.TrimRight(flags.FlagUsagesWrapped(helpWidth), "\n ") + "\n")
	}
}

// writeNames writes only the names of flags.
func writeNames(b *strings.Builder, title string, flags *pflag.FlagSet) {
	var names []string
	flags.VisitAll(func(f *pflag.Flag) {
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		names = append(names, name)
	})
	if names == nil {
		return
	}
	f := newFolder(false, helpWidth, 2, 2)
	f.words(strings.Join(names, "  "), "")
	b.WriteString("\n" + title + "\n  " + f.String() + "\n")
}

// writeTargetHelp writes the help that the commands with a target have in common.
func writeTargetHelp(w io.Writer) error {
	var b strings.Builder
	b.WriteString(targetHelp + "\n")
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(targetFlags).register(flags)
	writeFlags(&b, "Flags:", flags)
	_, err := io.WriteString(w, b.String())
	return err
}

func writeCommands(b *strings.Builder, c *cobra.Command, group, title string) {
	var lines string
	for _, sub := range c.Commands() {
		if sub.GroupID == group && (sub.IsAvailableCommand() || sub.Name() == "help") {
			lines += fmt.Sprintf("  %-*s %s\n", c.NamePadding(), sub.Name(), sub.Short)
		}
	}
	if lines != "" {
		b.WriteString("\n" + title + "\n" + lines)
	}
}

func upperFirst(s string) string { return strings.ToUpper(s[:min(1, len(s))]) + s[min(1, len(s)):] }
