package targets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/sources"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/inspect/hosts"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/text/shellword"
)

// Named finds the server with a name in the configurations of hosts.
func Named(cmd *cobra.Command, e *kit.Env, name string) (Spec, error) {
	machine, err := hosts.Current()
	if err != nil {
		return Spec{}, err
	}
	given := variables(cmd)
	lookup := machine.Lookup
	machine.Lookup = func(name string) (string, bool) {
		if v, ok := given[name]; ok {
			return v, true
		}
		return lookup(name)
	}
	if recorded, ok := strings.CutPrefix(name, sources.OfCapture); ok {
		return Spec{}, exit.Usagef("%s: capture:%s is a recording, not a server (live:%[2]s)", cmd.Name(), safe.Line(recorded))
	}
	name = strings.TrimPrefix(name, sources.OfLive)
	s, err := hosts.Resolve(machine, name)
	if err != nil {
		return Spec{}, unresolved(cmd, name, err)
	}
	expanded, err := s.Expand(machine)
	if err != nil {
		return Spec{}, exit.Fail(exit.Usage, "bad_configuration", "set the variables, or give them with --env NAME=value", err)
	}
	if err := trustProject(cmd, e, machine, s, name); err != nil {
		return Spec{}, err
	}
	return OfHost(expanded)
}

// OfHost returns the target for a server that a host has configured.
func OfHost(s hosts.Server) (Spec, error) {
	t := Spec{Name: safe.Line(s.Name), timeout: time.Duration(s.TimeoutMS) * time.Millisecond}
	if s.IsRemote() {
		remote, err := OfURL(s.URL)
		if err != nil {
			return t, err
		}
		t.URL, t.Header, t.Transport = remote.URL, http.Header{}, TransportAuto
		if s.Transport == hosts.TransportSSE {
			t.Transport = TransportSSE
		}
		for name, value := range s.Headers {
			t.Header.Set(name, value)
		}
		return t, nil
	}
	if s.Command == "" {
		return t, exit.Usagef("%s: the entry has neither a command nor a URL: only its host can start it", t.Name)
	}
	t.Command, t.Dir = append([]string{s.Command}, s.Args...), s.Cwd
	for name, value := range s.Env {
		t.Env = append(t.Env, name+"="+value)
	}
	slices.Sort(t.Env)
	return t, nil
}

// ServerNamesHint is the hint for an unknown server.
const ServerNamesHint = "mcpwire servers lists the names"

// unresolved returns the error for a name that matches no server, or several.
func unresolved(cmd *cobra.Command, name string, err error) error {
	hint := ServerNamesHint
	var missing *hosts.NotFoundError
	if errors.As(err, &missing) {
		if fields := strings.Fields(name); len(fields) > 0 && isProgram(fields[0]) {
			hint = "a command follows --: " + kit.ShellLine(append([]string{"mcpwire", cmd.Name(), "--"}, fields...)...)
		} else if strings.Contains(name, ".") && !strings.Contains(name, "=") && len(missing.Similar) == 0 {
			hint = "a URL begins with http:// or https://; " + hint
		}
	}
	return exit.Fail(exit.Usage, "unknown_server", hint, err)
}

// isProgram reports whether name can be run.
func isProgram(name string) bool {
	if _, err := exec.LookPath(name); err == nil {
		return true
	}
	switch filepath.Ext(name) {
	case ".js", ".mjs", ".cjs", ".ts", ".py", ".sh", ".rb":
		_, err := os.Stat(name)
		return err == nil
	}
	return false
}

// variables returns the variables that --env sets.
func variables(cmd *cobra.Command) map[string]string {
	list, err := cmd.Flags().GetStringArray("env")
	if err != nil {
		return nil
	}
	m := map[string]string{}
	for _, v := range list {
		if name, value, ok := strings.Cut(v, "="); ok {
			m[name] = value
		}
	}
	return m
}

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
