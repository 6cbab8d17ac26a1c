package kit

import (
	"errors"
	"math"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/text/spelling"
	"mcpwire/jsonrpc"
)

// UnknownCommand returns the error for a command that does not exist. It suggests similar ones.
func UnknownCommand(root *cobra.Command, name string) error {
	var names []string
	for _, c := range root.Root().Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	const help = "mcpwire help lists all commands"
	if similar := Nearest(name, names); name != "" && len(similar) > 0 {
		return exit.UsageHintf(help, "unknown command %q: did you mean %s?", name, strings.Join(similar, " or "))
	}
	return exit.UsageHintf(help, "unknown command %q", name)
}

// FlagError turns an error of package pflag into an [exit.Failure] that names the command and has a
// hint.
func FlagError(cmd *cobra.Command, err error) error {
	if rest := cmd.Flags().Args(); !cmd.HasParent() && len(rest) > 0 {
		return UnknownCommand(cmd, rest[0]) // whose flags are unknown, too
	}
	help := cmd.CommandPath() + " --help lists the flags"
	switch e := err.(type) {
	case *pflag.NotExistError:
		name := "--" + e.GetSpecifiedName()
		if e.GetSpecifiedShortnames() != "" {
			name = "-" + e.GetSpecifiedName()
		}
		return exit.UsageHintf(help, "%s: unknown flag %s%s", cmd.Name(), name, SimilarFlag(cmd, name))
	case *pflag.ValueRequiredError:
		return exit.UsageHintf(help, "%s: flag --%s needs a value", cmd.Name(), e.GetFlag().Name)
	case *pflag.InvalidValueError:
		cause := e.Unwrap().Error()
		if e.GetFlag().Value.Type() == "bool" {
			cause = "want true or false, or the flag alone"
		}
		return exit.Usagef("%s: invalid value %q for flag --%s: %s", cmd.Name(), e.GetValue(), e.GetFlag().Name, cause)
	}
	return exit.UsageHintf(help, "%s: %w", cmd.Name(), err)
}

// FramingFlag returns the setter of a flag for the framing of messages. auto allows auto.
func FramingFlag(to *jsonrpc.Framing, auto bool) func(string) error {
	return func(s string) error {
		for _, framing := range []jsonrpc.Framing{jsonrpc.FramingLine, jsonrpc.FramingHeader, jsonrpc.FramingAuto} {
			if s == framing.String() && (auto || framing != jsonrpc.FramingAuto) {
				*to = framing
				return nil
			}
		}
		if auto {
			return errors.New("want auto, line or header")
		}
		return errors.New("want line or header")
	}
}

// Nearest returns at most three names that the user may have meant by name, the most likely first.
func Nearest(name string, names []string) []string {
	lower := strings.ToLower(name)
	compare := func(n string) (d int, begun, similar bool) {
		d, shorter := spelling.Distance(lower, strings.ToLower(n)), min(len(name), len(n))
		begun = len(name) >= 3 && strings.HasPrefix(strings.ToLower(n), lower)
		return d, begun, begun || d < shorter && d <= min(3, max(1, shorter/2))
	}
	least := math.MaxInt
	for _, n := range names {
		if d, _, similar := compare(n); similar {
			least = min(least, d)
		}
	}
	var list spelling.Ranking
	for _, n := range names {
		// Names that are further away than the nearest are noise.
		if d, begun, similar := compare(n); begun || similar && d == least {
			list.Add(n, d)
		}
	}
	return list.Nearest(3)
}

// DidYouMean returns a question to append to a message about an unknown name, or "" if no name is
// similar.
func DidYouMean(name string, names []string) string {
	similar := Nearest(name, names)
	if len(similar) == 0 {
		return ""
	}
	for i := range similar {
		similar[i] = safe.Line(similar[i])
	}
	return ": did you mean " + strings.Join(similar, " or ") + "?"
}

// SimilarFlag is DidYouMean for a long flag of a command.
func SimilarFlag(cmd *cobra.Command, name string) string {
	long, ok := strings.CutPrefix(name, "--")
	if !ok {
		return ""
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	similar := Nearest(long, names)
	if len(similar) == 0 {
		return ""
	}
	return ": did you mean --" + similar[0] + "?"
}
