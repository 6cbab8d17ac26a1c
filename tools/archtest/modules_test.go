package archtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// What a user of the library gets: the modules that the root requires itself, and those in the graph
// of a program that imports libraryPackages, with the program and the root.
const (
	maxRequired = 9
	maxModules  = 15
)

var libraryPackages = []string{"client", "server", "stdio", "streamable"}

// A goMod is what go mod edit -json prints of a go.mod.
type goMod struct {
	Module  struct{ Path string }
	Require []struct {
		Path, Version string
		Indirect      bool
	}
	Replace []struct{ Old struct{ Path string } }
}

// readGoMod reads the go.mod of a folder.
func readGoMod(t *testing.T, dir string) (m goMod) {
	t.Helper()
	if err := json.Unmarshal([]byte(goTool(t, dir, "mod", "edit", "-json")), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// goTool runs the go command in a folder, outside any workspace, and returns what it prints.
func goTool(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestModules checks that a user of the library gets few other modules.
func TestModules(t *testing.T) {
	m := readGoMod(t, root)
	var direct []string
	for _, r := range m.Require {
		if !r.Indirect {
			direct = append(direct, r.Path)
		}
	}
	if len(direct) > maxRequired {
		t.Errorf("the root requires %d modules, want at most %d: %v", len(direct), maxRequired, direct)
	}
	path, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	program := "package main\n\nimport (\n"
	for _, p := range libraryPackages {
		program += fmt.Sprintf("\t_ %q\n", m.Module.Path+"/"+p)
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"main.go": program + ")\n\nfunc main() {}\n",
		"go.mod":  fmt.Sprintf("module example.com/user\n\ngo 1.26.0\n\nrequire %s v0.0.0\n\nreplace %[1]s => %s\n", m.Module.Path, path),
		"go.sum":  string(sums),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	goTool(t, dir, "mod", "tidy")
	if all := strings.Fields(goTool(t, dir, "list", "-m", "-f", "{{.Path}}", "all")); len(all) > maxModules {
		t.Errorf("the graph of a user's program has %d modules, want at most %d: %v", len(all), maxModules, all)
	}
}

// TestGoMods checks that users can get each module by its version: a go.mod with a replacement would
// not work for them, and all modules of the repository require each other in one version.
func TestGoMods(t *testing.T) {
	top := readGoMod(t, root).Module.Path
	var work struct{ Use []struct{ DiskPath string } }
	if err := json.Unmarshal([]byte(goTool(t, root, "work", "edit", "-json", "go.work")), &work); err != nil || len(work.Use) < 2 {
		t.Fatalf("go.work uses %v: %v", work.Use, err)
	}
	version := ""
	for _, use := range work.Use {
		dir := path.Clean(use.DiskPath)
		m := readGoMod(t, filepath.Join(root, dir))
		if want := strings.TrimSuffix(top+"/"+dir, "/."); m.Module.Path != want {
			t.Errorf("%s: the module is %s, want %s", dir, m.Module.Path, want)
		}
		if len(m.Replace) > 0 {
			t.Errorf("%s: go.mod has replacements: %v; go.work has those of the repository", dir, m.Replace)
		}
		for _, r := range m.Require {
			if r.Path != top && !strings.HasPrefix(r.Path, top+"/") {
				continue
			}
			if dir == "." {
				t.Errorf("the root requires %s", r.Path)
			}
			if version = cmp.Or(version, r.Version); r.Version != version {
				t.Errorf("%s requires %s %s, others %s", dir, r.Path, r.Version, version)
			}
		}
	}
}
