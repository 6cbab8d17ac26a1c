package hosts_test

import (
	"os"
	"path/filepath"
	"testing"

	"mcpwire/cmd/internal/inspect/hosts"
)

func TestTrust(t *testing.T) {
	const entry = `{"mcpServers": {"gh": {"command": "sh", "args": ["-c", "id"], "env": {"A": "${TOKEN}"}, "envFile": "vars.env"}}}`
	vars := map[string]string{"TOKEN": "1"}
	e, root := machine(t, "linux", map[string]string{
		"src/.git/HEAD": "", "src/.mcp.json": entry, "src/vars.env": "B=1\n",
	}, vars)
	resolve := func() hosts.Server {
		t.Helper()
		s, err := hosts.Resolve(e, "gh")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := resolve(); s.Scope != hosts.ScopeProject || hosts.IsTrusted(e, s) {
		t.Fatalf("before: scope %s, trusted %v", s.Scope, hosts.IsTrusted(e, s))
	}
	for range 2 { // the second has no effect
		if err := hosts.Trust(e, resolve()); err != nil {
			t.Fatal(err)
		}
	}
	list, err := filepath.Glob(filepath.Join(root, "state", "state", "trusted", "*"))
	if err != nil || len(list) != 1 {
		t.Errorf("stored in %v, %v, want one file", list, err)
	}
	for _, tt := range []struct {
		name, file, text string
		want             bool
	}{
		{"as it was", "src/.mcp.json", entry, true},
		{"a comment and another server", "src/.mcp.json", `{"mcpServers": {"other": {"command": "x"}, "gh": {"command": "sh", "args": ["-c", "id"], "env": {"A": "${TOKEN}"}, "envFile": "vars.env"}}}`, true},
		{"another argument", "src/.mcp.json", `{"mcpServers": {"gh": {"command": "sh", "args": ["-c", "id; id"], "env": {"A": "${TOKEN}"}, "envFile": "vars.env"}}}`, false},
		{"another variable", "src/.mcp.json", `{"mcpServers": {"gh": {"command": "sh", "args": ["-c", "id"], "env": {"A": "${OTHER:-}"}, "envFile": "vars.env"}}}`, false},
		{"a URL", "src/.mcp.json", `{"mcpServers": {"gh": {"url": "https://example.com/?k=${TOKEN}"}}}`, false},
		{"a file with variables", "src/vars.env", "B=2\n", false},
		{"the file as it was", "src/vars.env", "B=1\n", true},
	} {
		write(t, filepath.Join(root, "src", ".mcp.json"), entry)
		write(t, filepath.Join(root, filepath.FromSlash(tt.file)), tt.text)
		if got := hosts.IsTrusted(e, resolve()); got != tt.want {
			t.Errorf("%s: trusted is %v, want %v", tt.name, got, tt.want)
		}
	}
	vars["TOKEN"] = "2"
	if !hosts.IsTrusted(e, resolve()) {
		t.Error("a token that is renewed needs trust again")
	}

	// The same text in another folder runs other files.
	for _, name := range []string{".git/HEAD", ".mcp.json", "vars.env"} {
		write(t, filepath.Join(root, "copy", name), read(t, filepath.Join(root, "src", name)))
	}
	e.Dir = filepath.Join(root, "copy")
	if hosts.IsTrusted(e, resolve()) {
		t.Error("a copy of the project is trusted")
	}

	// An entry that the user has configured in the same words has the user's scope.
	write(t, filepath.Join(root, "home", ".kiro", "settings", "mcp.json"), entry)
	if s := resolve(); s.Scope != hosts.ScopeUser {
		t.Errorf("the scope of what the user configured, too, is %s", s.Scope)
	}
}

func TestTrustNowhere(t *testing.T) {
	e := &hosts.Env{GOOS: "linux", Dir: t.TempDir()}
	s := hosts.Server{Scope: hosts.ScopeProject, Project: e.Dir, Command: "a"}
	if err := hosts.Trust(e, s); err != hosts.ErrNoState || hosts.IsTrusted(e, s) {
		t.Errorf("without a folder: %v, %v", err, hosts.IsTrusted(e, s))
	}
	e.Lookup = func(name string) (string, bool) { return e.Dir, name == "MCPWIRE_HOME" }
	if err := hosts.Trust(e, s); err != nil || !hosts.IsTrusted(e, s) {
		t.Errorf("with one: %v, %v", err, hosts.IsTrusted(e, s))
	}
	list, _ := filepath.Glob(filepath.Join(e.Dir, "state", "trusted", "*"))
	if len(list) != 1 {
		t.Fatalf("remembered in %v", list)
	}
	if err := os.Remove(list[0]); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(e.Dir), list[0]); err == nil && hosts.IsTrusted(e, s) {
		t.Error("a link is taken for an answer")
	}
}
