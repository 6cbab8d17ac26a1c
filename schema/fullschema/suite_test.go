package fullschema

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// TestSuite runs the official test suite (github.com/json-schema-org/JSON-Schema-Test-Suite) if
// JSON_SCHEMA_TEST_SUITE names a folder with it, such as the folder json in the source of the Python
// package jsonschema. The library must pass a test, too, since some optional ones need what
// Go lacks, such as the patterns of ECMA-262.
func TestSuite(t *testing.T) {
	folder := os.Getenv("JSON_SCHEMA_TEST_SUITE")
	if folder == "" {
		t.Skip("JSON_SCHEMA_TEST_SUITE is not set")
	}
	documents := remotes(t, folder)
	for name, url := range map[string]string{
		"draft4": "http://json-schema.org/draft-04/schema#", "draft6": "http://json-schema.org/draft-06/schema#", "draft7": "http://json-schema.org/draft-07/schema#",
		"draft2019-09": "https://json-schema.org/draft/2019-09/schema", "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
	} {
		for _, pattern := range []string{"*.json", "optional/*.json", "optional/format/*.json"} {
			files, err := filepath.Glob(filepath.Join(folder, "tests", name, pattern))
			if err != nil || files == nil && pattern == "*.json" {
				t.Fatalf("no tests of %s: %v", name, err)
			}
			for _, file := range files {
				t.Run(name+"/"+filepath.Base(file), func(t *testing.T) { runSuite(t, file, url, documents) })
			}
		}
	}
}

func knownDialect(url string) bool {
	_, ok := draftOf(url)
	return ok
}

// withDocuments compiles a schema that refers to other documents.
func withDocuments(text []byte, documents map[string][]byte, d draft) (func([]byte) error, error) {
	c := newCompiler(compilePattern)
	for url, other := range documents {
		if v, err := decode(other); err == nil && c.resources[url] == nil {
			_ = c.add(v, url, d)
		}
	}
	v, err := decode(text)
	if err != nil {
		return nil, err
	}
	n, err := c.compile(v)
	if err != nil {
		return nil, err
	}
	return func(instance []byte) error { return validateInstance(n, instance) }, nil
}

func runSuite(t *testing.T, file, url string, documents map[string][]byte) {
	d, _ := draftOf(url)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var groups []struct {
		Description string
		Schema      any
		Tests       []struct {
			Description string
			Data        json.RawMessage
			Valid       bool
		}
	}
	if err := json.Unmarshal(text, &groups); err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		if object, ok := g.Schema.(map[string]any); ok {
			if object["$schema"] == nil {
				object["$schema"] = url
			}
			if name, _ := object["$schema"].(string); !knownDialect(name) {
				continue // a custom metaschema, which is not supported
			}
		}
		schemaText, err := json.Marshal(g.Schema)
		if err != nil {
			t.Fatal(err)
		}
		other, err := oracle{documents}.compile(schemaText)
		if err != nil {
			continue
		}
		validate, err := withDocuments(schemaText, documents, d)
		if err != nil {
			t.Errorf("%s: %v", g.Description, err)
			continue
		}
		for _, tt := range g.Tests {
			if err := validate(tt.Data); (err == nil) != tt.Valid && (other(tt.Data) == nil) == tt.Valid {
				t.Errorf("%s: %s: got %v, want valid %v", g.Description, tt.Description, err, tt.Valid)
			}
		}
	}
}
