package targets

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"mcpwire/capture"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/sources"
	"mcpwire/cmd/internal/inspect/hosts"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/text/shellword"
	"mcpwire/cmd/internal/trace"
	"mcpwire/internal/text/lazyregexp"
	"mcpwire/internal/text/printable"
)

// A completer is a cobra.CompletionFunc.
type completer = func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective)

// CompleteServers completes the first argument with the names of configured servers that keep
// accepts. A nil keep accepts all. A name that means several servers gets its host.
func CompleteServers(keep func(hosts.Server) bool) completer {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return ServerNames(keep), cobra.ShellCompDirectiveNoFileComp
	}
}

// ServerNames returns the names of configured servers that keep accepts, with what they run.
func ServerNames(keep func(hosts.Server) bool) []string {
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
			names = append(names, target+"\t"+safe.Clip(ServerRuns(s), MaxRunsColumns))
		}
	}
	return names
}

// CompleteCapturesAndServers completes arguments of commands that take both.
func CompleteCapturesAndServers(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	names, directive := sources.CompleteCaptures(cmd, args, word)
	for _, s := range ServerNames(nil) {
		name, _, _ := strings.Cut(s, "\t")
		if slices.Contains(names, name) {
			s = sources.OfLive + s
		}
		names = append(names, s)
	}
	return names, directive
}

// The maximum widths of columns.
const (
	MaxNameColumns = 32
	MaxRunsColumns = 60
)

// ServerRuns returns a server's command or URL, without its secrets.
func ServerRuns(s hosts.Server) string {
	s = s.Redacted()
	if s.Transport != hosts.TransportStdio {
		return kit.OrDash(printable.Line(MaskText(s.URL)))
	}
	parts := MaskCommand(append([]string{s.Command}, s.Args...))
	for i, p := range parts {
		if plain := strings.ReplaceAll(p, hosts.Placeholder, "_"); shellword.Word(plain) != plain {
			parts[i] = shellword.Word(p)
		}
	}
	return strings.Join(parts, " ")
}

// placeholder matches what package capture writes instead of a secret.
var placeholder = lazyregexp.New(`~redacted:[^~]*~`)

// MaskText replaces likely secrets in a text, by the rules for captures.
func MaskText(s string) string {
	return placeholder().ReplaceAllString(capture.NewRedactor(nil).Text(s), hosts.Placeholder)
}

// MaskCommand replaces likely secrets in a command's arguments, by the rules for captures.
func MaskCommand(command []string) []string {
	out := capture.NewRedactor(nil).Args(command)
	for i := range out {
		out[i] = placeholder().ReplaceAllString(out[i], hosts.Placeholder)
	}
	return out
}
