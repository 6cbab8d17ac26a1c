package cli

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/inspect/hosts"
	"mcpwire/cmd/internal/text/safe"
)

// namedTarget finds the server with a name in the configurations of hosts.
func namedTarget(cmd *cobra.Command, e *env, name string) (targetSpec, error) {
	machine, err := hosts.Current()
	if err != nil {
		return targetSpec{}, err
	}
	given := variables(cmd)
	lookup := machine.Lookup
	machine.Lookup = func(name string) (string, bool) {
		if v, ok := given[name]; ok {
			return v, true
		}
		return lookup(name)
	}
	if recorded, ok := strings.CutPrefix(name, ofCapture); ok {
		return targetSpec{}, exit.Usagef("%s: capture:%s is a recording, not a server (live:%[2]s)", cmd.Name(), safe.Line(recorded))
	}
	name = strings.TrimPrefix(name, ofLive)
	s, err := hosts.Resolve(machine, name)
	if err != nil {
		return targetSpec{}, unresolved(cmd, name, err)
	}
	expanded, err := s.Expand(machine)
	if err != nil {
		return targetSpec{}, exit.Fail(exit.Usage, "bad_configuration", "set the variables, or give them with --env NAME=value", err)
	}
	if err := trustProject(cmd, e, machine, s, name); err != nil {
		return targetSpec{}, err
	}
	return hostTarget(expanded)
}

// hostTarget returns the target for a server that a host has configured.
func hostTarget(s hosts.Server) (targetSpec, error) {
	t := targetSpec{name: safe.Line(s.Name), timeout: s.Timeout}
	if s.IsRemote() {
		remote, err := urlTarget(s.URL)
		if err != nil {
			return t, err
		}
		t.url, t.header, t.transport = remote.url, http.Header{}, transportAuto
		if s.Transport == hosts.TransportSSE {
			t.transport = transportSSE
		}
		for name, value := range s.Headers {
			t.header.Set(name, value)
		}
		return t, nil
	}
	if s.Command == "" {
		return t, exit.Usagef("%s: the entry has neither a command nor a URL: only its host can start it", t.name)
	}
	t.command, t.dir = append([]string{s.Command}, s.Args...), s.Cwd
	for name, value := range s.Env {
		t.env = append(t.env, name+"="+value)
	}
	slices.Sort(t.env)
	return t, nil
}

const serverNamesHint = "mcpwire servers lists the names"

// unresolved returns the error for a name that matches no server, or several.
func unresolved(cmd *cobra.Command, name string, err error) error {
	hint := serverNamesHint
	var missing *hosts.NotFoundError
	if errors.As(err, &missing) {
		if fields := strings.Fields(name); len(fields) > 0 && isProgram(fields[0]) {
			hint = "a command follows --: " + shellLine(append([]string{"mcpwire", cmd.Name(), "--"}, fields...)...)
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
