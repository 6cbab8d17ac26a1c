package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A linkedModule is a module of which the program contains packages.
type linkedModule struct {
	path, version, sum string
	// dir is the folder of its source.
	dir string
}

// linkedModules returns the modules that a program is linked from, without the main module.
func linkedModules(ctx context.Context, s *source, program string) ([]linkedModule, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var modules []linkedModule
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			return nil, fmt.Errorf("the module %s is replaced; a release is built from published modules", dep.Path)
		}
		dir, err := s.output(ctx, "go", "list", "-m", "-f", "{{.Dir}}", dep.Path)
		if err != nil {
			return nil, err
		}
		version := dep.Version
		if version == "(devel)" { // of this checkout
			version = "v" + s.version
		}
		modules = append(modules, linkedModule{dep.Path, version, dep.Sum, dir})
	}
	return modules, nil
}

// vocabulary returns, in the form of a module, the data of other authors that the program contains.
func vocabulary(s *source) linkedModule {
	return linkedModule{path: "the vocabulary o200k_base of tiktoken", version: "0.14.0", dir: filepath.Join(s.root, "cmd/internal/text/tokens")}
}

// licenseName matches the names of files with license texts.
var licenseName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-._].*)?$`)

// licenseTexts returns the license texts of Go and of linked modules. A module without one must
// not be distributed, and is an error.
func licenseTexts(s *source, modules []linkedModule) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "mcpwire contains packages of Go and of these modules. Their licenses follow.\n\n")
	for _, m := range modules {
		fmt.Fprintf(&b, "  %s %s\n", m.path, m.version)
	}
	all := append([]linkedModule{{path: "Go", version: strings.TrimPrefix(s.goVersion, "go"), dir: s.goRoot}}, modules...)
	for _, m := range all {
		entries, err := os.ReadDir(m.dir)
		if err != nil {
			return nil, err
		}
		found := false
		for _, e := range entries {
			if e.IsDir() || !licenseName.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
				continue
			}
			text, err := os.ReadFile(filepath.Join(m.dir, e.Name()))
			if err != nil {
				return nil, err
			}
			found = true
			fmt.Fprintf(&b, "\n%s\n%s %s: %s\n\n%s\n", strings.Repeat("=", 80), m.path, m.version, e.Name(), bytes.TrimSpace(text))
		}
		if !found {
			return nil, fmt.Errorf("the module %s has no license text at its root", m.path)
		}
	}
	return b.Bytes(), nil
}
