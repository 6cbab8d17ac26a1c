package hosts

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAdd(t *testing.T) {
	for _, tt := range []struct {
		name, host, file, before, after string
	}{
		{"no file", "cursor", "mcp.json", "", `{
  "mcpServers": {
    "mcpwire": {
      "command": "/bin/mcpwire",
      "args": [
        "mcp"
      ]
    }
  }
}
`},
		{"after others", "cursor", "mcp.json", `{
    // my servers
    "mcpServers": {
        "fs": {"command": "fs"}, // files
    },
    "other": 1
}
`, `{
    // my servers
    "mcpServers": {
        "fs": {"command": "fs"},
        "mcpwire": {
            "command": "/bin/mcpwire",
            "args": [
                "mcp"
            ]
        }, // files
    },
    "other": 1
}
`},
		{"no servers", "claude-code", ".claude.json", "{\r\n  \"theme\": \"dark\"\r\n}\r\n",
			"{\r\n  \"theme\": \"dark\",\r\n  \"mcpServers\": {\r\n    \"mcpwire\": {\r\n      \"type\": \"stdio\",\r\n      \"command\": \"/bin/mcpwire\",\r\n      \"args\": [\r\n        \"mcp\"\r\n      ]\r\n    }\r\n  }\r\n}\r\n"},
		{"an empty table", "cursor", "mcp.json", "{\n\t\"mcpServers\": {}\n}\n",
			"{\n\t\"mcpServers\": {\n\t\t\"mcpwire\": {\n\t\t\t\"command\": \"/bin/mcpwire\",\n\t\t\t\"args\": [\n\t\t\t\t\"mcp\"\n\t\t\t]\n\t\t}\n\t}\n}\n"},
		{"a comment in an empty table", "cursor", "mcp.json", "{\n  \"mcpServers\": {\n    // none\n  }\n}\n",
			"{\n  \"mcpServers\": {\n    // none\n    \"mcpwire\": {\n      \"command\": \"/bin/mcpwire\",\n      \"args\": [\n        \"mcp\"\n      ]\n    }\n  }\n}\n"},
		{"compact", "cursor", "mcp.json", `{"mcpServers":{"fs":{"command":"fs"}}}`,
			`{"mcpServers":{"fs":{"command":"fs"},"mcpwire":{"command":"/bin/mcpwire","args":["mcp"]}}}`},
		{"another form", "opencode", "opencode.json", `{"mcp":{"fs":{"type":"local","command":["fs"]}}}`,
			`{"mcp":{"fs":{"type":"local","command":["fs"]},"mcpwire":{"type":"local","command":["/bin/mcpwire","mcp"],"enabled":true}}}`},
		{"a form with tools", "copilot-cli", "mcp-config.json", `{"mcpServers":{"fs":{"command":"fs"}}}`,
			`{"mcpServers":{"fs":{"command":"fs"},"mcpwire":{"type":"local","command":"/bin/mcpwire","args":["mcp"],"tools":["*"]}}}`},
		{"TOML", "codex", "config.toml", "model = \"x\" # mine\n\n[mcp_servers.fs]\ncommand = \"fs\"",
			"model = \"x\" # mine\n\n[mcp_servers.fs]\ncommand = \"fs\"\n\n[mcp_servers.mcpwire]\ncommand = \"/bin/mcpwire\"\nargs = [\"mcp\"]\n"},
		{"TOML, no file", "codex", "config.toml", "", "[mcp_servers.mcpwire]\ncommand = \"/bin/mcpwire\"\nargs = [\"mcp\"]\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			e := &Env{Home: dir, Dir: dir, Lookup: func(string) (string, bool) { return "", false }}
			path := filepath.Join(dir, tt.file)
			if tt.before != "" {
				if err := os.WriteFile(path, []byte(tt.before), 0o640); err != nil {
					t.Fatal(err)
				}
			}
			d, err := OpenOrNew(e, path)
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Add(tt.host, "mcpwire", []string{"/bin/mcpwire", "mcp"}); err != nil {
				t.Fatal(err)
			}
			if _, err := d.Save(); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.after, string(got)); diff != "" {
				t.Errorf("the file (-want +got):\n%s", diff)
			}
			mode := os.FileMode(0o640)
			if tt.before == "" {
				mode = 0o600
			}
			if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != mode {
				t.Errorf("got %v, %v, want mode %v", info, err, mode)
			}

			// A second entry of that name is rejected.
			again, err := OpenOrNew(e, path)
			if err != nil {
				t.Fatal(err)
			}
			if err := again.Add(tt.host, "mcpwire", []string{"x"}); !errors.Is(err, ErrExists) {
				t.Errorf("a second entry: %v, want ErrExists", err)
			}
		})
	}
}

// TestUserFile chooses among the files of a host by the folders that exist.
func TestUserFile(t *testing.T) {
	const extension = ".config/Code/User/globalStorage/saoudrizwan.claude-dev"
	for _, tt := range []struct {
		name, host string
		// exist are folders, and files in JSON.
		exist []string
		want  string // or a folder of which the error says that it does not exist
		err   bool
	}{
		{"a folder", "amp", []string{".config/amp"}, ".config/amp/settings.json", false},
		{"the second file", "amp", []string{".config/amp/settings.jsonc"}, ".config/amp/settings.jsonc", false},
		{"none", "kiro", nil, ".kiro", true},
		{"a host without settings", "kiro", []string{".kiro"}, ".kiro/settings/mcp.json", false},
		{"a host with settings", "kiro", []string{".kiro/settings"}, ".kiro/settings/mcp.json", false},
		{"no place of two", "cline", nil, ".cline/data", true},
		{"the second place", "cline", []string{extension}, extension + "/settings/cline_mcp_settings.json", false},
		{"a file in the second place", "cline", []string{".cline/data", extension + "/settings/cline_mcp_settings.json"}, extension + "/settings/cline_mcp_settings.json", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			e := &Env{GOOS: "linux", Home: dir, Dir: dir, Lookup: func(string) (string, bool) { return "", false }}
			for _, path := range tt.exist {
				path = filepath.Join(dir, path)
				if !strings.HasPrefix(filepath.Ext(path), ".json") {
					if err := os.MkdirAll(path, 0o700); err != nil {
						t.Fatal(err)
					}
					continue
				}
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := UserFile(e, tt.host)
			if missing, ok := errors.AsType[*NotInstalledError](err); ok != tt.err {
				t.Fatalf("UserFile: %v, want a NotInstalledError %t", err, tt.err)
			} else if ok {
				got = missing.Folder
			}
			if want := filepath.Join(dir, tt.want); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			if tt.err {
				return
			}
			text := save(t, e, got, func(d *Document) error { return d.Add(tt.host, "mcpwire", []string{"mcpwire", "mcp"}) })
			if text == "" {
				t.Error("the file is empty")
			}
		})
	}
}

// TestAddKeepsWrapped shows that a wrapped entry can still be unwrapped after another entry is
// added, and that the added one stays.
func TestAddKeepsWrapped(t *testing.T) {
	dir := t.TempDir()
	e := &Env{Home: dir, Dir: dir, Lookup: func(string) (string, bool) { return "", false }}
	path := filepath.Join(dir, "mcp.json")
	if err := os.WriteFile(path, []byte(`{"mcpServers":{"fs":{"command":"fs"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, edit := range []func(*Document) error{
		func(d *Document) error {
			return d.Wrap("/mcpServers/fs", []string{"mcpwire", "tap", "--name", "fs", "--"})
		},
		func(d *Document) error { return d.Add("cursor", "mcpwire", []string{"mcpwire", "mcp"}) },
		func(d *Document) error { return d.Unwrap("/mcpServers/fs") },
	} {
		d, err := Open(e, path)
		if err != nil {
			t.Fatal(err)
		}
		if err := edit(d); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Save(); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"mcpServers":{"fs":{"command":"fs"},"mcpwire":{"command":"mcpwire","args":["mcp"]}}}`; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestAddRejected shows which files are not edited: one whose table is not a table, one with an
// inline table of TOML, which a second table would contradict, and one that appears during the
// edit.
func TestAddRejected(t *testing.T) {
	for _, tt := range []struct{ name, host, file, text string }{
		{"no object", "cursor", "mcp.json", `{"mcpServers":[]}`},
		{"inline table", "codex", "config.toml", "mcp_servers = { fs = { command = \"fs\" } }\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			e := &Env{Home: dir, Dir: dir, Lookup: func(string) (string, bool) { return "", false }}
			path := filepath.Join(dir, tt.file)
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			d, err := OpenOrNew(e, path)
			if err != nil {
				t.Fatal(err)
			}
			if err = d.Add(tt.host, "mcpwire", []string{"mcpwire", "mcp"}); err == nil {
				_, err = d.Save()
			}
			if err == nil {
				t.Error("it was edited")
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != tt.text {
				t.Errorf("the file is %q, %v; want it unchanged", got, err)
			}
		})
	}
	t.Run("appears", func(t *testing.T) {
		dir := t.TempDir()
		e := &Env{Home: dir, Dir: dir, Lookup: func(string) (string, bool) { return "", false }}
		path := filepath.Join(dir, "mcp.json")
		d, err := OpenOrNew(e, path)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Add("cursor", "mcpwire", []string{"mcpwire", "mcp"}); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Save(); !errors.Is(err, ErrChanged) {
			t.Errorf("Save: %v, want ErrChanged", err)
		}
	})
}
