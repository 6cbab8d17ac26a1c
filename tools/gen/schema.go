package main

import (
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A schema holds the used keywords of a JSON Schema.
type schema struct {
	Ref        string             `json:"$ref"`
	Type       typeNames          `json:"type"`
	Const      json.RawMessage    `json:"const"`
	Enum       []string           `json:"enum"`
	Format     string             `json:"format"`
	Properties map[string]*schema `json:"properties"`
	Required   []string           `json:"required"`
	Additional *additional        `json:"additionalProperties"`
	Items      *schema            `json:"items"`
	AnyOf      []*schema          `json:"anyOf"`
	AllOf      []*schema          `json:"allOf"`
	Minimum    *int               `json:"minimum"`
	Maximum    *int               `json:"maximum"`
	MaxItems   int                `json:"maxItems"`
}

// typeNames is the keyword "type": one name or several.
type typeNames []string

func (t *typeNames) UnmarshalJSON(text []byte) error {
	if text[0] != '[' {
		*t = make([]string, 1)
		return json.Unmarshal(text, &(*t)[0])
	}
	return json.Unmarshal(text, (*[]string)(t))
}

func (t typeNames) is(name string) bool { return len(t) == 1 && t[0] == name }

// additional is the keyword "additionalProperties". A boolean is a schema without keywords.
type additional struct{ schema }

func (a *additional) UnmarshalJSON(text []byte) error {
	if text[0] != '{' {
		return nil
	}
	return json.Unmarshal(text, &a.schema)
}

// def returns the name of the definition that s refers to, or "".
func (s *schema) def() string { return s.Ref[strings.LastIndexByte(s.Ref, '/')+1:] }

// open reports whether s is an object without known members.
func (s *schema) open() bool { return s.Type.is("object") && len(s.Properties) == 0 }

// free reports whether s allows any value.
func (s *schema) free() bool {
	return s.Ref == "" && s.Type == nil && s.Const == nil && s.AnyOf == nil && s.AllOf == nil && s.Properties == nil
}

// A document is the schema of one revision.
type document struct {
	rev  rev
	sum  string
	defs map[string]*schema
	// added holds the definitions that additions.json adds to the revision. They take precedence
	// over defs.
	added map[string]*schema
}

// def returns a definition, or nil.
func (d *document) def(name string) *schema {
	if s := d.added[name]; s != nil {
		return s
	}
	return d.defs[name]
}

// names returns the sorted names of the definitions.
func (d *document) names() []string {
	all := maps.Clone(d.defs)
	maps.Copy(all, d.added)
	return sortedKeys(all)
}

// A rev is the number of a revision, starting at 0.
type rev int

// dates lists the revisions, oldest first: the folders with a schema.
var dates []string

// ident returns the name of the revision's constant in package mcp.
func (r rev) ident() string { return "Revision" + strings.ReplaceAll(dates[r], "-", "") }

// revs is a set of revisions.
type revs uint8

func setOf(r rev) revs        { return 1 << r }
func (s revs) has(r rev) bool { return s&setOf(r) != 0 }
func (s revs) first() rev     { return rev(bits.TrailingZeros8(uint8(s))) }
func (s revs) last() rev      { return rev(bits.Len8(uint8(s)) - 1) }

//go:embed additions.json
var additionsText []byte

// load reads the schemas. The additions belong to the latest revision.
func load(spec string) ([]*document, error) {
	paths, err := filepath.Glob(filepath.Join(spec, "20??-??-??", "schema.json"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 || len(paths) > 8 {
		return nil, fmt.Errorf("%s has %d schemas", spec, len(paths))
	}
	dates = nil
	var docs []*document
	for i, path := range paths {
		d, err := read(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		d.rev = rev(i)
		dates = append(dates, filepath.Base(filepath.Dir(path)))
		docs = append(docs, d)
	}
	extra, err := parse(additionsText)
	if err != nil {
		return nil, fmt.Errorf("additions.json: %w", err)
	}
	newest := docs[len(docs)-1]
	newest.added = extra.defs
	return docs, nil
}

func read(path string) (*document, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parse(text)
}

func parse(text []byte) (*document, error) {
	var file struct {
		Definitions map[string]*schema `json:"definitions"`
		Defs        map[string]*schema `json:"$defs"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	d := &document{sum: fmt.Sprintf("%x", sha256.Sum256(text)), defs: file.Defs}
	if d.defs == nil {
		d.defs = file.Definitions
	}
	if len(d.defs) == 0 {
		return nil, fmt.Errorf("no definitions")
	}
	return d, nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
