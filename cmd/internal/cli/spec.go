package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/inspect/specref"
	"mcpwire/mcp"
)

func newSpecCommand(e *kit.Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "spec [METHOD|CODE|FIELD|HEADER|TYPE|WORDS...] [flags]",
		Short: "look up a term in the specification, or search for words, offline",
		Long: `Explain a method, an error code, a member of a message, a header or a type of
MCP: who sends it and when, its form, what each revision changed, the related
rules, and an example. Without an argument, list all terms. If a term has
several meanings, all of them are shown. For other words, print the lines of
this reference that have most of them.`,
		Example: `  mcpwire spec tools/call
  mcpwire spec tools/call --rev ` + mcp.Revision20250618.String() + `
  mcpwire spec -32020
  mcpwire spec HeaderMismatch
  mcpwire spec Mcp-Param-Region
  mcpwire spec _meta.io.modelcontextprotocol/clientInfo
  mcpwire spec Tool --json
  mcpwire spec 404
  mcpwire spec session expired`,
		// Codes begin with a hyphen. RunE separates them from flags.
		DisableFlagParsing: true,
	}
	revs := c.Flags().StringSlice("rev", nil, "show only what applies to this `REVISION`; may be repeated")
	asJSON := c.Flags().Bool("json", false, "print JSON")
	c.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var words []string
		for _, g := range specref.Open().Index() {
			for _, w := range g.Words {
				number, _, _ := strings.Cut(w, " ") // cut the code's name
				words = append(words, number)
			}
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		words, err := parseSpecArgs(cmd, args)
		if err != nil {
			return err
		}
		if help, _ := cmd.Flags().GetBool("help"); help {
			return cmd.Help()
		}
		for _, date := range *revs {
			if _, ok := mcp.ParseRevision(date); !ok {
				return exit.Usagef("spec: unknown revision %.40q (known: %v)", date, mcp.Revisions())
			}
		}
		in := slices.DeleteFunc(mcp.Revisions(), func(r mcp.Revision) bool { return !slices.Contains(*revs, r.String()) })
		return writeSpec(e, words, in, *asJSON)
	}
	return c
}

// parseSpecArgs parses flags and returns the words. A negative number is a word.
func parseSpecArgs(cmd *cobra.Command, args []string) (words []string, err error) {
	var others []string
	for i, arg := range args {
		if arg == "--" {
			others = append(others, args[i:]...)
			break
		}
		if len(arg) > 1 && arg[0] == '-' && strings.Trim(arg[1:], "0123456789.-") == "" {
			words = append(words, arg)
		} else {
			others = append(others, arg)
		}
	}
	if err := cmd.Flags().Parse(others); err != nil {
		return nil, cmd.FlagErrorFunc()(cmd, err)
	}
	return append(words, cmd.Flags().Args()...), nil
}

// writeSpec writes the meaning of a term, or what a search for words finds.
func writeSpec(e *kit.Env, words []string, revs []mcp.Revision, asJSON bool) error {
	book := specref.Open()
	style := specref.Style{Width: kit.HelpWidth}
	if p := kit.NewScreen(e.Stdout).Paint; p {
		style.Strong = func(text string) string { return p.In(kit.Bold, text) }
		style.Faint = func(text string) string { return p.In(kit.Dim, text) }
	}
	if len(words) == 0 {
		if asJSON {
			return kit.WriteIndentedJSON(e.Stdout, book.Index())
		}
		return specref.WriteIndex(e.Stdout, book.Index(), style)
	}
	query := strings.Join(words, " ")
	entries := book.Lookup(query, revs)
	if len(entries) == 0 {
		similar := book.Suggest(query)
		isPath := !strings.Contains(query, " ") && strings.ContainsAny(query, "/_.-")
		isName := len(similar) > 0 && strings.ToLower(query) != query
		if hits := book.Search(query, revs); len(hits) > 0 && !isPath && !isName {
			if len(similar) > 0 {
				fmt.Fprintf(e.Stderr, "terms like it: %s\n", strings.Join(similar, ", "))
			}
			if asJSON {
				return kit.WriteIndentedJSON(e.Stdout, hits)
			}
			return specref.WriteHits(e.Stdout, hits, style)
		}
		if len(similar) > 0 {
			return exit.Usagef("spec: unknown term %.100q: did you mean %s?", query, strings.Join(similar, " or "))
		}
		return exit.Usagef("spec: unknown term %.100q (mcpwire spec lists all terms)", query)
	}
	if asJSON {
		return kit.WriteIndentedJSON(e.Stdout, entries)
	}
	return specref.Write(e.Stdout, entries, style)
}
