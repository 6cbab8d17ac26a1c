package hosts

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestParseYAML reads files of Goose that are not as expected. Errors quote no values.
func TestParseYAML(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"empty", "", ""},
		{"a comment", "# nothing\n", ""},
		{"a mark", "\ufeffextensions:\n  a: {cmd: x}\n", ""},
		{"not closed", "extensions:\n  a: {cmd: secret-value\n", "not YAML"},
		{"tabs", "extensions:\n\ta: secret-value\n", "not YAML"},
		{"an alias", "x: &y {cmd: secret-value}\nextensions:\n  a: *y\n", "3:6: aliases are not supported"},
		{"deep", strings.Repeat("[", MaxDepth+2) + strings.Repeat("]", MaxDepth+2), "nested more than"},
		{"many values", strings.Repeat("- 1\n", MaxValues+1), "more than"},
		{"a list", "- a\n- b\n", "not a table"},
		{"a command that is a table", "extensions:\n  a:\n    cmd: {x: secret-value}\n", "3:10: command is not a string"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			home := t.TempDir()
			path := filepath.Join(home, ".config", "goose", "config.yaml")
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			files, err := Find(&Env{GOOS: "linux", Home: home, Dir: home, Lookup: func(string) (string, bool) { return "", false }})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, f := range files {
				if f.Err != nil {
					got += f.Err.Error()
				}
				for _, p := range f.Errors {
					got += p.Error()
				}
			}
			if got == "" != (tt.want == "") || !strings.Contains(got, tt.want) || strings.Contains(got, "secret-value") {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestMark shows that a byte order mark is reported, and that the servers are read nevertheless.
func TestMark(t *testing.T) {
	home := t.TempDir()
	path := filepath.Join(home, ".cursor", "mcp.json")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("\ufeff{\"mcpServers\": {\"a\": {\"command\": \"x\"}}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := &Env{GOOS: "linux", Home: home, Dir: home, Lookup: func(string) (string, bool) { return "", false }}
	files, err := Find(e)
	if err != nil || len(files) != 1 {
		t.Fatalf("got %d files, %v", len(files), err)
	}
	var got []string
	for _, p := range files[0].Errors {
		got = append(got, p.Error())
	}
	want := []string{path + ":1:1: the file begins with a byte order mark, which JSON.parse refuses, and so cursor may: save it as UTF-8 without one"}
	if diff := cmp.Diff(want, got); diff != "" || len(files[0].Servers) != 1 {
		t.Errorf("%d servers, (-want +got):\n%s", len(files[0].Servers), diff)
	}
	if _, err := Resolve(e, "cursor:a"); err != nil {
		t.Error(err)
	}
	if _, err := Resolve(e, "cursor:b"); !errors.As(err, new(*NotFoundError)) {
		t.Errorf("another name: %v", err)
	}
}
