package call

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"mcpwire/cmd/internal/cli/sources"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/inspect/inventory"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace"
	"mcpwire/internal/json/jsonwire"
)

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
