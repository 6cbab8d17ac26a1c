package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckModules checks that a tag is rejected from which users could not get all modules.
func TestCheckModules(t *testing.T) {
	for _, tt := range []struct {
		name, version string
		tags          []string
		want          string // "" means no error
	}{
		{"ready", "v0.1.0", []string{"v0.1.0", "cmd/v0.1.0"}, ""},
		{"the modules require no release", "v0.0.0", []string{"v0.1.0", "cmd/v0.1.0"}, "requires example.com/m v0.0.0: run go run ./modules require v0.1.0"},
		{"a module has no tag", "v0.1.0", []string{"v0.1.0"}, "no tag cmd/v0.1.0"},
		{"a module has an older tag", "v0.1.0", []string{"v0.1.0", "cmd/v0.0.9"}, "no tag cmd/v0.1.0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range map[string]string{
				"go.work":      "go 1.26.0\n\nuse (\n\t.\n\t./cmd\n\t./tools\n)\n",
				"go.mod":       "module example.com/m\n",
				"cmd/go.mod":   "module example.com/m/cmd\n\nrequire (\n\texample.com/m " + tt.version + "\n\texample.com/module v1.2.3\n)\n",
				"tools/go.mod": "module example.com/m/tools\n\nrequire example.com/m " + tt.version + "\n",
			} {
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			commands := [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-q", "-m", "x"}}
			for _, tag := range tt.tags {
				commands = append(commands, []string{"tag", tag})
			}
			for _, args := range commands {
				cmd := exec.Command("git", args...)
				cmd.Dir = root
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("git %v: %v\n%s", args, err, out)
				}
			}
			got := ""
			if err := (&source{root: root}).checkModules(t.Context(), "v0.1.0"); err != nil {
				got = err.Error()
			}
			if got == "" != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
