// Package specschema has the schemas of the specification for tests. They are stored next to the
// repository and are not part of it.
package specschema

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Find returns the folder of the specification, which has a folder for each revision.
func Find() (dir string, ok bool) {
	root, err := os.Getwd()
	for ; err == nil && root != filepath.Dir(root); root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, "CHANGELOG.md")); err == nil {
			dir = filepath.Join(filepath.Dir(root), "shared", "spec")
			_, err = os.Stat(dir)
			return dir, err == nil
		}
	}
	return "", false
}

// Dir returns the folder of the specification. It skips the test if the folder is missing.
func Dir(t testing.TB) string {
	t.Helper()
	dir, ok := Find()
	if !ok {
		t.Skip("the specification's schemas are not there: no shared/spec beside the repository")
	}
	return dir
}

// A Schema is the schema.json of one revision.
type Schema struct {
	Revision string
	// Defs has the definitions by name.
	Defs map[string]any

	// key is the name of the member with the definitions.
	key      string
	compiler *jsonschema.Compiler
}

// Open returns the schema of a revision. Its formats are those of package jsonschema, and of the
// given functions by name. It skips the test if the specification is missing.
func Open(t testing.TB, revision string, formats map[string]func(any) error) *Schema {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Dir(t), revision, "schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	s := &Schema{Revision: revision, compiler: jsonschema.NewCompiler()}
	for name, check := range formats {
		s.compiler.RegisterFormat(&jsonschema.Format{Name: name, Validate: check})
	}
	if err := s.compiler.AddResource("urn:mcp", doc); err != nil {
		t.Fatal(err)
	}
	for _, s.key = range []string{"$defs", "definitions"} {
		if s.Defs, _ = doc.(map[string]any)[s.key].(map[string]any); s.Defs != nil {
			return s
		}
	}
	t.Fatalf("%s: no definitions", revision)
	return nil
}

// Compile returns the schema at a path below the definitions, such as Tool or
// CallToolRequest/properties/params.
func (s *Schema) Compile(t testing.TB, path string) *jsonschema.Schema {
	t.Helper()
	schema, err := s.compiler.Compile("urn:mcp#/" + s.key + "/" + path)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// Check validates a JSON text against the schema at a path below the definitions.
func (s *Schema) Check(t testing.TB, path, text string) {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err == nil {
		err = s.Compile(t, path).Validate(value)
	}
	if err != nil {
		t.Errorf("%s, revision %s: %v\n%s", path, s.Revision, err, text)
	}
}

// CheckFirst validates a JSON text against the first of the definitions that the revision has, and
// reports whether it has one.
func (s *Schema) CheckFirst(t testing.TB, text string, names ...string) bool {
	t.Helper()
	for _, name := range names {
		if s.Defs[name] != nil {
			s.Check(t, name, text)
			return true
		}
	}
	return false
}
