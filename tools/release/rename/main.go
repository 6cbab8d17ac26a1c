// Command rename changes the path of the module, in all modules of a checkout:
//
//	cd tools/release && go run ./rename github.com/you/mcpwire
//
// It changes go.mod files, imports, and the paths of packages in comments, documents and scripts.
// It leaves other uses of the program's name alone.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

func main() {
	root := flag.String("root", "../..", "the checkout")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "rename: want the new path of the module, such as: go run ./rename github.com/you/mcpwire")
		os.Exit(2)
	}
	n, err := rename(*root, flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, "rename:", err)
		os.Exit(1)
	}
	fmt.Fprintf(os.Stderr, "changed %d files; run gofmt -l . and the tests, and see what README.md says of the module's home\n", n)
}

// newPath matches module paths that other modules can require: a host and more.
var newPath = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)+(/[A-Za-z0-9._~-]+)+$`)

// moduleLine matches the line of go.mod that names the module.
var moduleLine = regexp.MustCompile(`(?m)^module (\S+)$`)

// rename gives the module at root a new path and returns the number of files that changed.
func rename(root, path string) (int, error) {
	if !newPath.MatchString(path) {
		return 0, fmt.Errorf("module path %q: want a host and a path, such as github.com/you/mcpwire", path)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return 0, err
	}
	line := moduleLine.FindSubmatch(mod)
	if line == nil {
		return 0, errors.New("go.mod names no module")
	}
	old := string(line[1])
	out, err := exec.Command("git", "-C", root, "ls-files", "-z").Output()
	if err != nil {
		return 0, fmt.Errorf("git ls-files: %w", err)
	}
	r := renamer{root: root, old: old, new: path, reference: regexp.MustCompile(`(^|[^\w./@-])` + regexp.QuoteMeta(old) + `/([a-z][a-z0-9/]*)`)}
	changed := 0
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		did, err := r.file(name)
		if err != nil {
			return changed, err
		}
		if did {
			changed++
		}
	}
	return changed, nil
}

// A renamer changes the path of a module from old to new.
type renamer struct {
	root, old, new string
	// reference matches what may be the path of a package of the module.
	reference *regexp.Regexp
}

// file changes one file, and reports whether it did.
func (r *renamer) file(name string) (bool, error) {
	path := filepath.Join(r.root, name)
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	if bytes.IndexByte(text, 0) >= 0 { // not text
		return false, nil
	}
	changed := r.packages(text)
	if base := filepath.Base(name); base == "go.mod" || base == "go.work" {
		changed = r.requirements(changed)
	}
	if bytes.Equal(changed, text) {
		return false, nil
	}
	return true, os.WriteFile(path, changed, info.Mode().Perm())
}

// packages changes the paths of packages. A path that has no folder is something else, such as the
// name of a capability.
func (r *renamer) packages(text []byte) []byte {
	return r.reference.ReplaceAllFunc(text, func(match []byte) []byte {
		m := r.reference.FindSubmatch(match)
		dir := strings.TrimSuffix(string(m[2]), "/")
		if info, err := os.Stat(filepath.Join(r.root, dir)); err != nil || !info.IsDir() {
			return match
		}
		return []byte(string(m[1]) + r.new + "/" + string(m[2]))
	})
}

// requirements changes the module's path where a go.mod or go.work file declares, requires or replaces it.
func (r *renamer) requirements(text []byte) []byte {
	old := regexp.QuoteMeta(r.old)
	text = regexp.MustCompile(`(?m)^module `+old+`$`).ReplaceAll(text, []byte("module "+r.new))
	return regexp.MustCompile(`(?m)^((?:\t|require |replace ))`+old+` v0`).ReplaceAll(text, []byte("${1}"+r.new+" v0"))
}
