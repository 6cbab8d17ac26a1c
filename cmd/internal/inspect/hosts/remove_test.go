package hosts

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// save makes one change of a file and returns its text.
func save(t *testing.T, e *Env, path string, change func(*Document) error) string {
	t.Helper()
	d, err := OpenOrNew(e, path)
	if err != nil {
		t.Fatal(err)
	}
	if err := change(d); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Save(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestAddRemove adds an entry to the user's file of each host on each system, finds it, and removes
// it. Other servers, comments and formatting stay.
func TestAddRemove(t *testing.T) {
	command := []string{"/opt/mcp wire/mcpwire", "mcp", "--allow-calls"}
	for _, goos := range []string{"linux", "darwin", "windows"} {
		for _, host := range Names() {
			t.Run(goos+" "+host, func(t *testing.T) {
				t.Parallel() // most of the time, the disk writes
				home := t.TempDir()
				e := &Env{GOOS: goos, Home: home, Dir: home, Lookup: func(name string) (string, bool) {
					if name == "APPDATA" {
						return filepath.Join(home, "AppData", "Roaming"), true
					}
					return "", false
				}}
				_, err := UserFile(e, host)
				if missing, ok := errors.AsType[*NotInstalledError](err); ok {
					if err := os.MkdirAll(missing.Folder, 0o700); err != nil {
						t.Fatal(err)
					}
				}
				path, err := UserFile(e, host)
				if err != nil {
					t.Fatal(err)
				}

				if host == "goose" {
					if _, err := OpenOrNew(e, path); !errors.Is(err, ErrYAML) {
						t.Errorf("a file in YAML: got %v, want %v", err, ErrYAML)
					}
					return
				}

				// A file with another server.
				before := save(t, e, path, func(d *Document) error { return d.Add(host, "other", []string{"other", "--serve"}) })
				if syntaxOf(path, []byte(before)) == syntaxTOML {
					before = "# mine\n" + before
				} else {
					before = "// mine\n" + before
				}
				if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
					t.Fatal(err)
				}

				save(t, e, path, func(d *Document) error { return d.Add(host, "mcpwire", command) })
				s, err := Resolve(e, host+":mcpwire")
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(command, append([]string{s.Command}, s.Args...)); diff != "" || s.Disabled || s.Scope != ScopeUser {
					t.Errorf("the entry, disabled %t, scope %s (-want +got):\n%s", s.Disabled, s.Scope, diff)
				}
				after := save(t, e, path, func(d *Document) error {
					s, err := d.Entry(host, "mcpwire")
					if err != nil {
						return err
					}
					return d.Remove(s.Pointer)
				})
				if diff := cmp.Diff(before, after); diff != "" {
					t.Errorf("the file after add and remove (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestRemove(t *testing.T) {
	for _, tt := range []struct{ name, before, after string }{
		{"the first", `{"mcpServers": {"mcpwire": {"command": "m"}, "b": {"command": "b"}}}`, `{"mcpServers": {"b": {"command": "b"}}}`},
		{"between", `{"mcpServers":{"a":{"command":"a"},"mcpwire":{"command":"m"},"b":{"command":"b"}}}`, `{"mcpServers":{"a":{"command":"a"},"b":{"command":"b"}}}`},
		{"the only one", "{\n  \"mcpServers\": {\n    \"mcpwire\": {\"command\": \"m\"},\n  }\n}\n", "{\n  \"mcpServers\": {}\n}\n"},
		{"the last, with a trailing comma", "{\"mcpServers\": {\n  \"a\": {\"command\": \"a\"},\n  \"mcpwire\": {\"command\": \"m\"}, // debugs\n}}", "{\"mcpServers\": {\n  \"a\": {\"command\": \"a\"}, // debugs\n}}"},
		{"the last, after a comment", "{\"mcpServers\": {\n  \"a\": {\"command\": \"a\"}, // a, b\n  \"mcpwire\": {\"command\": \"m\"}\n}}", "{\"mcpServers\": {\n  \"a\": {\"command\": \"a\"} // a, b\n  \n}}"},
		{"the first, before a comment", "{\"mcpServers\": {\"mcpwire\": {\"command\": \"m\"} /* x, */, \"b\": {\"command\": \"b\"}}}", "{\"mcpServers\": { /* x, */ \"b\": {\"command\": \"b\"}}}"},
		{"the only one, with a comment", "{\"mcpServers\": { // mine\n  \"mcpwire\": {\"command\": \"m\"}\n}}", "{\"mcpServers\": { // mine\n  \n}}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			e := &Env{Home: dir, Dir: dir, Lookup: func(string) (string, bool) { return "", false }}
			path := filepath.Join(dir, "mcp.json")
			if err := os.WriteFile(path, []byte(tt.before), 0o600); err != nil {
				t.Fatal(err)
			}
			got := save(t, e, path, func(d *Document) error { return d.Remove("/mcpServers/mcpwire") })
			if diff := cmp.Diff(tt.after, got); diff != "" {
				t.Errorf("the file (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRemoveRejected(t *testing.T) {
	for _, tt := range []struct{ name, file, text, want string }{
		{"missing", "mcp.json", `{"mcpServers":{}}`, "entry not found"},
		{"twice", "mcp.json", `{"mcpServers":{"mcpwire":{"command":"a"},"mcpwire":{"command":"b"}}}`, "more than once"},
		{"an edited table", "config.toml", "[mcp_servers.mcpwire]\ncommand = \"m\"\nargs = []\n# c\nenabled = true\n", "was edited: remove it there"},
		{"a table with another", "config.toml", "[mcp_servers.mcpwire]\ncommand = \"m\"\nargs = []\n[mcp_servers.mcpwire.env]\nA = \"b\"\n", "does not remove"},
		{"an inline table", "config.toml", "[mcp_servers]\nmcpwire = {command = \"m\", args = []}\n", "was edited: remove it there"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			e := &Env{Home: dir, Dir: dir, Lookup: func(string) (string, bool) { return "", false }}
			path := filepath.Join(dir, tt.file)
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			d, err := Open(e, path)
			if err != nil {
				t.Fatal(err)
			}
			pointer := "/mcpServers/mcpwire"
			if strings.HasSuffix(tt.file, ".toml") {
				pointer = "/mcp_servers/mcpwire"
			}
			if err = d.Remove(pointer); err == nil {
				_, err = d.Save()
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != tt.text {
				t.Errorf("the file is %q, %v; want it unchanged", got, err)
			}
		})
	}
}
