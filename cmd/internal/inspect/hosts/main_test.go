package hosts_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"mcpwire/cmd/internal/inspect/hosts"
)

var update = flag.Bool("update", false, "write the golden files")

// machine returns a machine in a temporary folder: files are paths below it, home/ is the home
// folder, src/ the working directory.
func machine(t testing.TB, goos string, files map[string]string, vars map[string]string) (*hosts.Env, string) {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"home", "src"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		write(t, filepath.Join(root, name), text)
	}
	return &hosts.Env{
		GOOS: goos, Home: filepath.Join(root, "home"), Dir: filepath.Join(root, "src"),
		Lookup: func(name string) (string, bool) {
			if name == "MCPWIRE_HOME" {
				return filepath.Join(root, "state"), true
			}
			v, ok := vars[name]
			return v, ok
		},
	}, root
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
