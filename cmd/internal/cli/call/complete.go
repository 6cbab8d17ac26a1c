package call

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/sources"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/inspect/inventory"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace"
	"mcpwire/internal/json/jsonwire"
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

// completeTarget completes the arguments of a command that talks to a server: the server, and then
// what the newest capture of this server says that it offers.
func completeTarget(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	if len(args) == 0 {
		return targets.ServerNames(nil), none
	}
	var kind string
	switch cmd.Name() {
	case "call":
		kind = inventory.Tools
	case "prompt":
		kind = inventory.Prompts
	case "read":
		kind = inventory.Resources
	case "list":
		if len(args) == 1 {
			return listKinds(), none
		}
		if kind = args[1]; kind != kindTools && kind != kindPrompts {
			return listKinds(), none
		}
		return definitionNames(sources.Offered(cmd.Context(), args[0]), kind), none
	default:
		return nil, none
	}
	v := sources.Offered(cmd.Context(), args[0])
	if len(args) == 1 {
		return definitionNames(v, kind), none
	}
	if v == nil || kind == inventory.Resources {
		return nil, none
	}
	definition := v.Definitions[kind][args[1]]
	if kind == inventory.Prompts {
		return completePromptArguments(definition), none | cobra.ShellCompDirectiveNoSpace
	}
	return completeArguments(jsonwire.Lookup(definition, "inputSchema"), word)
}

// definitionNames returns the names or URIs of one kind, with their descriptions.
func definitionNames(v *inventory.Inventory, kind string) []string {
	if v == nil {
		return nil
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(v.Definitions[kind])) {
		if trace.Escape(name) == name {
			names = append(names, name+"\t"+safe.Clip(safe.FirstLine(jsonwire.Text(jsonwire.Lookup(v.Definitions[kind][name], "description"))), 80))
		}
	}
	return names
}

// completeArguments completes NAME=TEXT by a tool's schema.
func completeArguments(schema json.RawMessage, word string) ([]string, cobra.ShellCompDirective) {
	list, _ := targets.Properties(schema)
	name, _, hasValue := strings.Cut(word, "=")
	var words []string
	for _, p := range list {
		switch {
		case trace.Escape(p.Name) != p.Name:
		case !hasValue:
			words = append(words, p.Name+"=\t"+safe.Clip(strings.TrimSpace(typeText(p.Schema, 0)+" "+safe.FirstLine(p.Description)), 80))
		case p.Name == name:
			for _, value := range p.Values() {
				if trace.Escape(value) == value {
					words = append(words, name+"="+value)
				}
			}
		}
	}
	if hasValue {
		return words, cobra.ShellCompDirectiveNoFileComp
	}
	return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// completePromptArguments completes NAME=TEXT by the definition of a prompt.
func completePromptArguments(prompt json.RawMessage) []string {
	var p struct {
		Arguments []struct{ Name, Description string }
	}
	if json.Unmarshal(prompt, &p) != nil {
		return nil
	}
	var words []string
	for _, a := range p.Arguments {
		if trace.Escape(a.Name) == a.Name {
			words = append(words, a.Name+"=\t"+safe.Clip(safe.FirstLine(a.Description), 80))
		}
	}
	return words
}
