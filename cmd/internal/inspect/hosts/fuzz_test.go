package hosts_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"mcpwire/cmd/internal/inspect/hosts"
	"mcpwire/internal/text/printable"
)

// fuzzEdit wraps and unwraps all servers of a file with any content: a wrapped entry must run the
// same server, and unwrapping must restore the original bytes.
func fuzzEdit(t *testing.T, name string, data []byte) {
	dir := t.TempDir()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	e := &hosts.Env{GOOS: "linux", Home: dir, Dir: dir}
	f, err := hosts.ReadFile(e, path)
	if err != nil {
		if text := printable.Line(err.Error()); strings.IndexFunc(text, func(r rune) bool { return !unicode.IsGraphic(r) }) >= 0 {
			t.Errorf("%q is for a terminal", text)
		}
		return
	}
	for _, s := range f.Servers {
		s.Redacted()
		_, _ = s.Expand(e) // must end
		d, err := hosts.Open(e, path)
		if err != nil {
			t.Fatalf("read, but not opened: %v", err)
		}
		if err := d.Wrap(s.Pointer, []string{"mcpwire", "tap", "--name", s.Name, "--"}); err != nil {
			continue
		}
		for _, r := range d.Diff(nil, nil) {
			if r != '\n' && r != '\t' && !unicode.IsGraphic(r) {
				t.Fatalf("%q in the diff", r)
			}
		}
		checkEdited(t, e, path, s, d.Result(), data)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func checkEdited(t *testing.T, e *hosts.Env, path string, s hosts.Server, wrapped, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, wrapped, 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := hosts.Open(e, path)
	if err != nil {
		t.Fatalf("the edited file cannot be read: %v\n%s", err, wrapped)
	}
	if err := d.Unwrap(s.Pointer); err != nil {
		t.Fatalf("it cannot be unwrapped: %v\n%s", err, wrapped)
	}
	if got := d.Result(); len(s.Args) > 0 && string(got) != string(data) {
		t.Fatalf("the bytes differ after unwrapping:\n%q\n%q\n%q", data, wrapped, got)
	}
}

func FuzzJSON(f *testing.F) {
	for _, s := range []string{
		`{"mcpServers": {"fs": {"command": "x", "args": ["a", "b"], "env": {"A": "b"}}}}`,
		"\ufeff{// c\n\"servers\":{\"a/b\":{\"command\":[\"x\",\"y\"],},},}//",
		`{"a": {"command": {"path": "x", "args": [1]}}, "a": {"url": "http://x"}}`,
		`{"projects": {"/p": {"mcpServers": {"x": {"command": "y", "args": null}}}}}`,
		`{"mcp": {"servers": {"url": "x"}, "\u202e": {"command": "${A:-${B}}"}}}`, `[[[[`, `{"a"`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) { fuzzEdit(t, "c.json", data) })
}

func FuzzTOML(f *testing.F) {
	for _, s := range []string{
		"[mcp_servers.fs]\ncommand = 'x' # c\nargs = [\"a\",\n 'b', # d\n]\n[mcp_servers.fs.env]\nA = 'b'",
		"mcp_servers.a.command = \"x\"\r\nmcp_servers.a.args = ['y']\r\n", "mcp_servers = { a = { command = 'x', args = ['y'] } }",
		"[[mcp_servers]]\ncommand = 'x'", "[mcp_servers.'a.b'.\"c\"]\nurl = '''x'''", "a = [[[{b=1}]]]", "[mcp_servers",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) { fuzzEdit(t, "c.toml", data) })
}

func FuzzEnvFile(f *testing.F) {
	for _, s := range []string{"A=1\nexport B='x'\n", "A=\"x\\n\ny\" # c", "A=", "#", "A='", "A=\"\\"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "env")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _ = hosts.ReadEnvFile(path) // must end, and not panic
	})
}
