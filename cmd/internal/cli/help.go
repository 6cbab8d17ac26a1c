package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
)

// helpScreen is the number of lines that the help of --help may have.
const helpScreen = 40

// writeHelp writes the help of a command for --help. If all of it does not fit on a screen, it
// writes the first paragraph, the examples and a line for each flag, and names the command for the
// rest.
func writeHelp(w io.Writer, c *cobra.Command) error {
	text := helpText(c, true)
	if c.HasParent() && strings.Count(text, "\n") > helpScreen {
		text = helpText(c, false)
	}
	_, err := io.WriteString(w, text)
	return err
}

// writeFullHelp writes all of the help of a command.
func writeFullHelp(w io.Writer, c *cobra.Command) error {
	_, err := io.WriteString(w, helpText(c, true))
	return err
}

// helpText returns the help of a command, or only its most important part. It uses no template:
// linking text/template keeps every exported method in the program.
func helpText(c *cobra.Command, all bool) string {
	var b strings.Builder
	long := strings.TrimSpace(c.Long)
	if long == "" {
		long = upperFirst(c.Short) + "."
	}
	if !all {
		long = firstParagraph(long)
	}
	b.WriteString(reflow(long) + "\n\n")
	b.WriteString(reflow("Usage: "+synopsis(c)) + "\n")
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
	if all {
		writeFlags(&b, "Flags:", own)
	} else {
		writeFlagLines(&b, own)
	}
	full := strings.Replace(c.CommandPath(), " ", " help ", 1)
	switch {
	case all:
		writeNames(&b, "Target flags, which mcpwire help targets describes:", target)
	case target.HasAvailableFlags():
		b.WriteString("\n" + full + " tells more, and mcpwire help targets describes\nthe flags that reach a server.\n")
	default:
		b.WriteString("\n" + full + " tells more.\n")
	}
	if !c.HasParent() {
		b.WriteString("\nRun mcpwire COMMAND --help for help on a command.\n" + exit.StatusHelp + "\n" + exit.FormatHelp + "\n")
	}
	return b.String()
}

// reflow wraps paragraphs that contain a line that is too long. It leaves paragraphs with indented
// lines alone.
func reflow(text string) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		lines := strings.Split(p, "\n")
		long := func(line string) bool { return utf8.RuneCountInString(line) > kit.HelpWidth }
		if slices.ContainsFunc(lines, long) && !strings.Contains(p, "\n ") && !strings.HasPrefix(p, " ") {
			f := kit.NewFolder(false, kit.HelpWidth, 0, 0)
			f.Words(strings.Join(lines, " "), "")
			paragraphs[i] = f.String()
		}
	}
	return strings.Join(paragraphs, "\n\n")
}

// synopsis returns how to call a command.
func synopsis(c *cobra.Command) string {
	if c.HasAvailableSubCommands() && (!c.HasParent() || !c.Runnable()) {
		return c.CommandPath() + " COMMAND"
	}
	return strings.Replace(c.UseLine(), " [flags]", " [FLAGS]", 1)
}

// flagGroups returns the command's own flags and those that say how to reach a server.
func flagGroups(c *cobra.Command) (own, target *pflag.FlagSet) {
	own, target = pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if _, ok := f.Annotations[kit.OfTarget]; ok {
			target.AddFlag(f)
		} else {
			own.AddFlag(f)
		}
	})
	return own, target
}

func writeFlags(b *strings.Builder, title string, flags *pflag.FlagSet) {
	if flags.HasAvailableFlags() {
		b.WriteString("\n" + title + "\n" + strings.TrimRight(flags.FlagUsagesWrapped(kit.HelpWidth), "\n ") + "\n")
	}
}

// writeFlagLines writes one line for each flag: the beginning of its description.
func writeFlagLines(b *strings.Builder, flags *pflag.FlagSet) {
	var names, texts []string
	widest := 0
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, text := pflag.UnquoteUsage(f)
		name := "      --" + f.Name
		if f.Shorthand != "" {
			name = "  -" + f.Shorthand + ", --" + f.Name
		}
		if value != "" {
			name += " " + value
		}
		names, texts = append(names, name), append(texts, text)
		widest = max(widest, len(name))
	})
	b.WriteString("\nFlags:\n")
	for i, name := range names {
		fmt.Fprintf(b, "%-*s  %s\n", widest, name, firstClauses(texts[i], kit.HelpWidth-widest-2))
	}
}

// firstParagraph returns the first paragraph of a text without the sentence that introduces the
// list after it.
func firstParagraph(text string) string {
	p, _, _ := strings.Cut(text, "\n\n")
	if !strings.HasSuffix(p, ":") {
		return p
	}
	if i := strings.LastIndex(strings.ReplaceAll(p, "\n", " "), ". "); i >= 0 {
		return p[:i+1]
	}
	return p
}

// firstClauses returns the beginning of a flag's description that fits into a width: clauses if
// possible, otherwise words and an ellipsis. It does not end in a list of values, whose first value
// would look like the only one.
func firstClauses(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	for _, end := range []string{"; ", " (", ", such as ", ", as ", ", in "} {
		clause, _, ok := strings.Cut(text, end)
		if ok && utf8.RuneCountInString(clause) <= width && !strings.HasPrefix(clause, "with ") && !strings.Contains(clause, ": ") {
			return clause
		}
	}
	cut := string([]rune(text)[:width-2])
	if i := strings.LastIndexByte(cut, ' '); i > 0 {
		cut = strings.TrimRight(cut[:i], ",;:")
	}
	return cut + " …"
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
	f := kit.NewFolder(false, kit.HelpWidth, 2, 2)
	f.Words(strings.Join(names, "  "), "")
	b.WriteString("\n" + title + "\n  " + f.String() + "\n")
}

// writeTargetHelp writes the help that the commands with a target have in common.
func writeTargetHelp(w io.Writer) error {
	var b strings.Builder
	b.WriteString(targets.Help + "\n")
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(targets.Flags).Register(flags)
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
