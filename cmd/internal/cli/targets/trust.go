package targets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/inspect/hosts"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/text/shellword"
)

// trustProject asks once before it allows a server that only a file of the project configures,
// because the project's author chose its command and where variables go. The user agrees on the
// terminal, with --trust-project, by the file's name in the target, or, without a terminal, by
// HOST:NAME.
func trustProject(cmd *cobra.Command, e *kit.Env, machine *hosts.Env, s hosts.Server, target string) error {
	byHost := target == s.Host+":"+s.Name
	switch {
	case s.Scope != hosts.ScopeProject, target != s.Name && !byHost, kit.FlagText(cmd, "trust-project") == "true", hosts.IsTrusted(machine, s):
		return nil
	case !e.CanAsk() && byHost:
		return nil
	case !e.CanAsk():
		return exit.Fail(exit.Usage, "untrusted_project",
			fmt.Sprintf("if you trust the project: %s instead of %s, or --trust-project; on a terminal mcpwire asks once", safe.Line(shellword.Word(s.Host+":"+s.Name)), safe.Line(shellword.Word(s.Name))),
			fmt.Errorf("%q is configured in the project's file %s, not in your configuration", s.Name, safe.Line(s.File)))
	}
	answer, err := e.Prompter.Ask(cmd.Context(), trustPrompt(s))
	switch {
	case err != nil && cmd.Context().Err() != nil:
		return context.Canceled
	case err != nil, !slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer))):
		return exit.Fail(exit.Usage, "untrusted_project", "", fmt.Errorf("the server %q of the project was not allowed", s.Name))
	}
	if err := hosts.Trust(machine, s); err != nil && !errors.Is(err, hosts.ErrNoState) {
		fmt.Fprintf(e.Stderr, "warning: the answer could not be stored: %s\n", safe.Line(err.Error()))
	}
	return nil
}

// trustPrompt shows all fields of an entry, unexpanded: references show which variables are sent
// where, and values may change what a program does as much as its arguments.
func trustPrompt(s hosts.Server) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q is configured in the project's file %s, not in your configuration.\n", s.Name, safe.Line(s.File))
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "  %-9s %s\n", name, safe.Line(value))
		}
	}
	table := func(name, separator string, m map[string]string) {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			line(name, key+separator+m[key])
			name = ""
		}
	}
	verb := "Start it"
	if s.IsRemote() {
		verb = "Connect to it"
		line("url", s.URL)
		table("headers", ": ", s.Headers)
	} else {
		words := []string{shellword.Word(s.Command)}
		for _, a := range s.Args {
			words = append(words, shellword.Word(a))
		}
		line("command", strings.Join(words, " "))
		line("folder", s.Cwd)
		table("variables", "=", s.Env)
		line("env file", s.EnvFile)
		b.WriteString("It runs with your permissions and this terminal's environment variables.\n")
	}
	fmt.Fprintf(&b, "%s? The answer is valid until the entry changes. [y/N] ", verb)
	return b.String()
}
