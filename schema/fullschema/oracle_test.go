package fullschema

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// An oracle compiles schemas with another library for comparison.
type oracle struct {
	// documents are the other documents by URL.
	documents map[string][]byte
}

func (o oracle) Load(url string) (any, error) {
	text, ok := o.documents[url]
	if !ok {
		return nil, os.ErrNotExist
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(text))
}

// compile returns a function that validates an instance with the library.
func (o oracle) compile(text []byte) (func(instance []byte) error, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(o)
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource(location, doc); err != nil {
		return nil, err
	}
	compiled, err := c.Compile(location)
	if err != nil {
		return nil, err
	}
	return func(instance []byte) error {
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(instance))
		if err != nil {
			return err
		}
		return compiled.Validate(v)
	}, nil
}

// remotes reads the documents that the official test suite refers to.
func remotes(t *testing.T, folder string) map[string][]byte {
	t.Helper()
	documents := map[string][]byte{}
	root := filepath.Join(folder, "remotes")
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".json") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		documents["http://localhost:1234/"+filepath.ToSlash(rel)] = text
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return documents
}
