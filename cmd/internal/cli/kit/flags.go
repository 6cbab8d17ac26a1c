package kit

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/cmd/internal/exit"
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
