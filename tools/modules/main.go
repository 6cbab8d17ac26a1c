// Command modules does what concerns all Go modules of the repository:
//
//	cd tools && go run ./modules tidy          # go mod tidy in each module; -diff only says what it would change
//	cd tools && go run ./modules lines         # counts lines by floor and package
//	cd tools && go run ./modules require v0.1.0
//	cd tools && go run ./modules proxy DIR v0.1.0
//
// The modules require each other in version v0.0.0, which go.work replaces by their folders. Before
// a release is tagged, require sets the version in all go.mod files. proxy makes a module proxy of
// the checkout in a folder, as GOPROXY=file://DIR reads it, in which the modules have that version.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// toolsDir is the folder of the module that nobody requires.
const toolsDir = "tools"

// A module is a Go module of the repository.
type module struct {
	// dir is its folder, relative to the root.
	dir  string
	path string
	file *modfile.File
}

// version returns the version in which the modules require each other.
func version(all []*module) string {
	for _, m := range all {
		for _, r := range m.file.Require {
			if slices.ContainsFunc(all, func(other *module) bool { return other.path == r.Mod.Path }) {
				return r.Mod.Version
			}
		}
	}
	return ""
}

// name returns the name of the go.mod or go.sum file.
func (m *module) name(root, file string) string { return filepath.Join(root, m.dir, file) }

func readWork(root string) (*modfile.WorkFile, error) {
	name := filepath.Join(root, "go.work")
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return modfile.ParseWork(name, text, nil)
}

// modules returns the modules that go.work uses.
func modules(root string) ([]*module, error) {
	work, err := readWork(root)
	if err != nil {
		return nil, err
	}
	var list []*module
	for _, use := range work.Use {
		m := &module{dir: filepath.Clean(use.Path)}
		text, err := os.ReadFile(m.name(root, "go.mod"))
		if err != nil {
			return nil, err
		}
		if err := m.parse(text); err != nil {
			return nil, err
		}
		m.path = m.file.Module.Mod.Path
		list = append(list, m)
	}
	return list, nil
}

// parse reads the text of the go.mod.
func (m *module) parse(text []byte) (err error) {
	m.file, err = modfile.Parse(filepath.Join(m.dir, "go.mod"), text, nil)
	return err
}

// require sets the version in which m requires the other modules.
func (m *module) require(all []*module, version string) error {
	for _, other := range all {
		for _, r := range m.file.Require {
			if r.Mod.Path == other.path {
				if err := m.file.AddRequire(other.path, version); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// requireAll changes the go.mod files of all modules, and what go.work replaces.
func requireAll(root, version string) error {
	all, err := modules(root)
	if err != nil {
		return err
	}
	for _, m := range all {
		if err := m.require(all, version); err != nil {
			return err
		}
		text, err := m.file.Format()
		if err != nil {
			return err
		}
		if err := os.WriteFile(m.name(root, "go.mod"), text, 0o644); err != nil {
			return err
		}
	}
	work, err := readWork(root)
	if err != nil {
		return err
	}
	for _, m := range all {
		for _, r := range slices.Clone(work.Replace) {
			if dir := r.New.Path; r.Old.Path == m.path {
				if err := errors.Join(work.DropReplace(m.path, r.Old.Version), work.AddReplace(m.path, version, dir, "")); err != nil {
					return err
				}
			}
		}
	}
	work.Cleanup()
	return os.WriteFile(filepath.Join(root, "go.work"), modfile.Format(work.Syntax), 0o644)
}

const usage = "want tidy [-diff], lines, require VERSION, or proxy DIR VERSION"

func run(root string, args []string) error {
	flags := flag.NewFlagSet("modules", flag.ContinueOnError)
	diff := flags.Bool("diff", false, "tidy: say what would change, and fail if something would")
	if len(args) == 0 {
		return errors.New(usage)
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	what := strings.Join(append(args[:1:1], flags.Args()...), " ")
	switch rest := flags.Args(); {
	case what == "tidy":
		return tidy(root, *diff)
	case what == "lines":
		return printLines(os.Stdout, root)
	case args[0] == "require" && len(rest) == 1 && semver.IsValid(rest[0]):
		return requireAll(root, rest[0])
	case args[0] == "proxy" && len(rest) == 2 && semver.IsValid(rest[1]):
		return writeProxy(root, rest[0], rest[1])
	}
	return fmt.Errorf("%q: %s", what, usage)
}

func main() {
	if err := run("..", os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "modules:", err)
		os.Exit(1)
	}
}
