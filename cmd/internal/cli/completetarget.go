package cli

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mcpwire/capture"
	"mcpwire/cmd/internal/inspect/hosts"
	"mcpwire/cmd/internal/inspect/inventory"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/captures"
	"mcpwire/cmd/internal/trace/filter"
	"mcpwire/internal/json/jsonwire"
)

// A completer is a cobra.CompletionFunc.
type completer = func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective)

// completeServers completes the first argument with the names of configured servers that keep
// accepts. A nil keep accepts all. A name that means several servers gets its host.
func completeServers(keep func(hosts.Server) bool) completer {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return serverNames(keep), cobra.ShellCompDirectiveNoFileComp
	}
}

func serverNames(keep func(hosts.Server) bool) []string {
	machine, err := hosts.Current()
	if err != nil {
		return nil
	}
	files, err := hosts.Find(machine)
	if err != nil {
		return nil
	}
	byName := map[string][]hosts.Server{}
	for _, f := range files {
		for _, s := range f.Servers {
			if (keep == nil || keep(s)) && trace.Escape(s.Name) == s.Name {
				byName[s.Name] = append(byName[s.Name], s)
			}
		}
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		list := byName[name]
		for _, s := range list {
			target := s.Name
			if len(list) > 1 {
				target = s.Host + ":" + s.Name
			}
			names = append(names, target+"\t"+safe.Clip(serverRuns(s), maxRunsColumns))
		}
	}
	return names
}

// completeCapturesAndServers completes arguments of commands that take both.
func completeCapturesAndServers(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	names, directive := completeCaptures(cmd, args, word)
	for _, s := range serverNames(nil) {
		name, _, _ := strings.Cut(s, "\t")
		if slices.Contains(names, name) {
			s = ofLive + s
		}
		names = append(names, s)
	}
	return names, directive
}

// completeTarget completes the arguments of a command that talks to a server: the server, and then
// what the newest capture of this server says that it offers.
func completeTarget(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	if len(args) == 0 {
		return serverNames(nil), none
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
		return definitionNames(offered(cmd.Context(), args[0]), kind), none
	default:
		return nil, none
	}
	v := offered(cmd.Context(), args[0])
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

// maxOfferedTime limits how long completion reads a capture.
const maxOfferedTime = time.Second

// offered returns what the newest capture of a server contains about it, or nil without one.
func offered(ctx context.Context, target string) *inventory.Inventory {
	dir, err := captures.Dir()
	if err != nil {
		return nil
	}
	found, err := captures.Find(dir, target)
	if err != nil {
		found, err = captures.Find(dir, target[strings.LastIndexByte(target, ':')+1:])
	}
	if err != nil {
		return nil
	}
	return readInventory(ctx, found.Path)
}

func readInventory(ctx context.Context, path string) *inventory.Inventory {
	ctx, cancel := context.WithTimeout(ctx, maxOfferedTime)
	defer cancel()
	s := captureSource{paths: []string{path}, side: capture.Upstream}
	v, err := inventory.FromCapture(path, untilDone(ctx, s.events(ctx)))
	if err != nil {
		return nil
	}
	return v
}

// untilDone ends a sequence when ctx does.
func untilDone(ctx context.Context, events iter.Seq2[*capture.Event, error]) iter.Seq2[*capture.Event, error] {
	return func(yield func(*capture.Event, error) bool) {
		for e, err := range events {
			if ctx.Err() != nil || !yield(e, err) {
				return
			}
		}
	}
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
	list, _ := properties(schema)
	name, _, hasValue := strings.Cut(word, "=")
	var words []string
	for _, p := range list {
		switch {
		case trace.Escape(p.name) != p.name:
		case !hasValue:
			words = append(words, p.name+"=\t"+safe.Clip(strings.TrimSpace(typeText(p.schema, 0)+" "+safe.FirstLine(p.description)), 80))
		case p.name == name:
			for _, value := range schemaValues(p.schema) {
				words = append(words, name+"="+value)
			}
		}
	}
	if hasValue {
		return words, cobra.ShellCompDirectiveNoFileComp
	}
	return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// schemaValues returns the values of a schema that has a list of them.
func schemaValues(schema json.RawMessage) []string {
	if jsonwire.Text(jsonwire.Lookup(schema, "type")) == "boolean" {
		return []string{"true", "false"}
	}
	var list []string
	enum := jsonwire.Lookup(schema, "enum")
	if len(enum) == 0 || enum[0] != '[' {
		return nil
	}
	for el := jsonwire.ArrayElements(enum); el.Next(); {
		text := string(el.Value())
		if text != "" && text[0] == '"' {
			text = jsonwire.Text(el.Value())
		}
		if trace.Escape(text) == text {
			list = append(list, text)
		}
	}
	return list
}

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

// completeFilter completes the last term of a filter: fields, the values of fields with a list of
// them, and the tools of the capture that args or else the newest capture names.
func completeFilter(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	start := strings.LastIndexAny(text, " (|") + 1
	if strings.HasPrefix(text[start:], "-") {
		start++
	}
	before, term := text[:start], text[start:]
	name, _, isField := strings.Cut(term, ":")
	var words []string
	if !isField {
		for _, f := range filter.Fields() {
			words = append(words, before+string(f)+":")
		}
		return append(words, before+"dur>", before+"size>", before+"has:", before+"n:", before+"jq:("), directive
	}
	values := filter.Values(filter.Field(name))
	if name == string(filter.Tool) {
		for _, v := range newestInventories(cmd.Context(), args) {
			values = append(values, slices.Sorted(maps.Keys(v.Definitions[inventory.Tools]))...)
		}
	}
	for _, v := range values {
		if !strings.ContainsAny(v, " \t\"()|") && trace.Escape(v) == v {
			words = append(words, before+name+":"+v)
		}
	}
	return words, directive
}

// newestInventories returns what the named captures, or else the newest ones, contain about their
// servers.
func newestInventories(ctx context.Context, args []string) []*inventory.Inventory {
	var list []*inventory.Inventory
	if len(args) > 0 {
		for _, a := range args {
			if v := offered(ctx, a); v != nil {
				list = append(list, v)
			}
		}
		return list
	}
	newest, err := newestCaptures()
	if err != nil {
		return nil
	}
	for _, c := range newest {
		if v := readInventory(ctx, c.Path); v != nil {
			list = append(list, v)
		}
	}
	return list
}
