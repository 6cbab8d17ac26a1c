// Command gen generates the types of package mcp, and the tables of package internal/era/shape,
// from the schemas of the specification.
//
//	go run ./tools/gen -spec ../shared/spec -out mcp -shape internal/era/shape
//
// It reads schema.json of each revision, merges the definitions of each concept into one Go type,
// and writes the files mcp/gen_*.go. rules.go adds what a schema cannot express. An unused rule
// fails the run, and so does any part of a schema that is neither covered nor listed there as
// skipped. additions.json describes types that no schema has.
//
// The tables of internal/era/shape keep the revisions apart. Their rules are in shape.go, and
// shapeadditions.json adds to the schemas.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	spec := flag.String("spec", "../shared/spec", "folder with a folder for each revision")
	out := flag.String("out", "mcp", "folder of package mcp; if empty, it is not generated")
	shape := flag.String("shape", "", "folder of package internal/era/shape; if empty, it is not generated")
	flag.Parse()
	if err := run(*spec, *out, *shape); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(spec, out, shape string) error {
	if out != "" {
		files, _, err := generate(spec)
		if err != nil {
			return err
		}
		if err := write(out, files); err != nil {
			return err
		}
	}
	if shape == "" {
		return nil
	}
	files, err := generateShape(spec)
	if err != nil {
		return err
	}
	return write(shape, files)
}

// write replaces the generated files of a folder.
func write(out string, files map[string][]byte) error {
	old, err := filepath.Glob(filepath.Join(out, "gen_*.go"))
	if err != nil {
		return err
	}
	for _, path := range old {
		if _, ok := files[filepath.Base(path)]; !ok && !strings.HasSuffix(path, "_test.go") {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(out, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generate returns the files by name, and the model with the outcome of each part of the schemas.
func generate(spec string) (map[string][]byte, *model, error) {
	docs, err := load(spec)
	if err != nil {
		return nil, nil, err
	}
	m := newModel(docs)
	m.build()
	if err := m.finish(); err != nil {
		return nil, nil, err
	}
	files, err := emit(m)
	return files, m, err
}
