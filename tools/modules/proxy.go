package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	gomodule "golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// writeProxy writes the modules that users get, as a proxy serves them
// (https://go.dev/ref/mod#goproxy-protocol).
func writeProxy(root, dir, version string) error {
	all, err := modules(root)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "modules")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	for i, m := range all {
		if m.dir == toolsDir {
			continue
		}
		if err := m.publish(root, dir, filepath.Join(scratch, fmt.Sprint(i)), version, all); err != nil {
			return fmt.Errorf("%s: %w", m.dir, err)
		}
	}
	return nil
}

// publish writes one module: the list of its versions, and of this version the description, the
// go.mod and the archive. scratch is the name of a folder for a copy of the module.
func (m *module) publish(root, dir, scratch, version string, all []*module) error {
	if err := m.require(all, version); err != nil {
		return err
	}
	text, err := m.file.Format()
	if err != nil {
		return err
	}
	escaped, err := gomodule.EscapePath(m.path)
	if err != nil {
		return err
	}
	out := filepath.Join(dir, filepath.FromSlash(escaped), "@v")
	if err := errors.Join(os.MkdirAll(out, 0o755), os.CopyFS(scratch, os.DirFS(filepath.Join(root, m.dir)))); err != nil {
		return err
	}
	// Other modules below this one have a go.mod of their own: zip leaves them out.
	if err := os.WriteFile(filepath.Join(scratch, "go.mod"), text, 0o644); err != nil {
		return err
	}
	archive, err := os.Create(filepath.Join(out, version+".zip"))
	if err != nil {
		return err
	}
	defer archive.Close()
	if err := zip.CreateFromDir(archive, gomodule.Version{Path: m.path, Version: version}, scratch); err != nil {
		return err
	}
	return errors.Join(archive.Close(),
		os.WriteFile(filepath.Join(out, "list"), []byte(version+"\n"), 0o644),
		os.WriteFile(filepath.Join(out, version+".info"), fmt.Appendf(nil, `{"Version":%q}`, version), 0o644),
		os.WriteFile(filepath.Join(out, version+".mod"), text, 0o644))
}
