package sources

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mcpwire/capture"
	"mcpwire/cmd/internal/inspect/inventory"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/captures"
	"mcpwire/cmd/internal/trace/filter"
)

// CompleteCaptures completes names of servers with captures, and file names.
func CompleteCaptures(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	dir, err := captures.Dir()
	if err != nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	list, _ := captures.List(dir)
	var names []string
	seen := map[string]bool{}
	for _, i := range list {
		if i.Name != "" && !seen[i.Name] && trace.Escape(i.Name) == i.Name {
			seen[i.Name] = true
			names = append(names, i.Name)
		}
	}
	return names, cobra.ShellCompDirectiveDefault
}

// maxOfferedTime limits how long completion reads a capture.
const maxOfferedTime = time.Second

// Offered returns what the newest capture of a server contains about it, or nil without one.
func Offered(ctx context.Context, target string) *inventory.Inventory {
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
	s := Source{Paths: []string{path}, Side: capture.Upstream}
	v, err := inventory.FromCapture(path, untilDone(ctx, s.Events(ctx)))
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

// CompleteFilter completes the last term of a filter: fields, the values of fields with a list of
// them, and the tools of the capture that args or else the newest capture names.
func CompleteFilter(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
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
			if v := Offered(ctx, a); v != nil {
				list = append(list, v)
			}
		}
		return list
	}
	newest, err := Newest()
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
