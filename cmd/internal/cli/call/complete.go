package call

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/exit"
	"mcpwire/internal/text/clip"
	"mcpwire/mcp"
)

const completeLong = `Ask the server to complete the value of an argument of a prompt or a resource
template, and print the values, one per line. ARG=TEXT sets the values of other
arguments. --json prints the result object exactly as received.`

const completeExample = `  mcpwire complete resource 'demo:///squares/{n}' n 1 -- mcpwire serve
  mcpwire complete http://127.0.0.1:8080/mcp prompt explain audience be topic=x`

// NewCompleteCommand returns the command complete.
func NewCompleteCommand(e *kit.Env) *cobra.Command {
	return newVerbCommand(e, &cobra.Command{
		Use:     "complete TARGET (prompt | resource) NAME ARG VALUE [ARG=TEXT]...",
		Short:   "complete the value of a prompt or resource template argument",
		Long:    completeLong,
		Example: completeExample,
	}, &completeVerb{})
}

// A completeVerb requests completions.
type completeVerb struct {
	json     bool
	ref      mcp.Reference
	argument mcp.CompleteArgument
	known    map[string]string
}

func (v *completeVerb) register(fs *pflag.FlagSet) {
	fs.BoolVar(&v.json, "json", false, "print the result object exactly as received")
}

func (v *completeVerb) parse(args []string) (err error) {
	if len(args) < 4 {
		return exit.Usagef("complete: want prompt NAME or resource TEMPLATE, an argument, and the beginning of its value, which may be '' (such as: complete prompt explain audience be)")
	}
	switch args[0] {
	case "prompt":
		v.ref = mcp.PromptReference{Name: args[1]}
	case "resource", "template":
		v.ref = mcp.ResourceTemplateReference{URI: args[1]}
	default:
		return exit.Usagef("complete: unexpected argument %q (want prompt or resource)", clip.Characters(args[0], 60))
	}
	v.argument = mcp.CompleteArgument{Name: args[2], Value: args[3]}
	v.known, err = textArguments("complete", args[4:])
	return err
}

func (v *completeVerb) run(ctx context.Context, s *session) error {
	s.trace.Forget()
	c, err := s.Complete(ctx, v.ref, v.argument, v.known)
	if err != nil {
		return err
	}
	if v.json {
		return s.writeJSON(mcp.MethodComplete)
	}
	for _, value := range c.Values {
		if err := s.writeText(value); err != nil {
			return err
		}
	}
	switch {
	case c.Total != nil && *c.Total > int64(len(c.Values)):
		s.notes.Linef("%d of %s", len(c.Values), strconv.FormatInt(*c.Total, 10))
	case c.HasMore:
		s.notes.Linef("%d, and more exist", len(c.Values))
	}
	return nil
}
