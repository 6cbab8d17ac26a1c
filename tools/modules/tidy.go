package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// tidy runs go mod tidy in each module. The command ignores go.work, so each module is tidied with a
// copy of its go.mod that replaces the other modules by their folders.
func tidy(root string, diff bool) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	all, err := modules(root)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "modules")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var failed []error
	for _, m := range all {
		if err := m.tidy(root, dir, all, diff); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", m.dir, err))
		}
	}
	return errors.Join(failed...)
}

// tidy tidies one module; dir is for its copies.
func (m *module) tidy(root, dir string, all []*module, diff bool) error {
	required := version(all)
	for _, other := range all {
		if other.path != m.path {
			if err := m.file.AddReplace(other.path, "", filepath.Join(root, other.dir), ""); err != nil {
				return err
			}
		}
	}
	text, err := m.file.Format()
	if err != nil {
		return err
	}
	sums, err := os.ReadFile(m.name(root, "go.sum"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	copied := filepath.Join(dir, "copy.mod")
	copiedSums := filepath.Join(dir, "copy.sum") // where the go command looks for it
	if err := errors.Join(os.WriteFile(copied, text, 0o600), os.WriteFile(copiedSums, sums, 0o600)); err != nil {
		return err
	}
	args := []string{"mod", "tidy", "-modfile=" + copied}
	if diff {
		args = append(args, "-diff")
	}
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = filepath.Join(root, m.dir), os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if err := cmd.Run(); err != nil || diff {
		return err
	}
	return m.takeBack(root, copied, copiedSums, all, required)
}

// takeBack writes the go.mod and go.sum of the module from tidied copies. required is the version in
// which the modules require each other.
func (m *module) takeBack(root, copied, copiedSums string, all []*module, required string) error {
	text, err := os.ReadFile(copied)
	if err != nil {
		return err
	}
	if err := m.parse(text); err != nil {
		return err
	}
	for _, other := range all {
		if err := m.file.DropReplace(other.path, ""); err != nil {
			return err
		}
	}
	if err := m.require(all, required); err != nil {
		return err
	}
	m.file.Cleanup()
	if text, err = m.file.Format(); err != nil {
		return err
	}
	sums, err := os.ReadFile(copiedSums)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(m.name(root, "go.mod"), text, 0o644), os.WriteFile(m.name(root, "go.sum"), sums, 0o644))
}
