package fullschema

import (
	"embed"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A draft is a revision of JSON Schema: its number, or its year.
type draft int

const (
	draft4    draft = 4
	draft6    draft = 6
	draft7    draft = 7
	draft2019 draft = 2019
	draft2020 draft = 2020
)

// drafts are the known revisions by the URL of their metaschema, without scheme and fragment.
var drafts = map[string]draft{
	"json-schema.org/draft-04/schema":      draft4,
	"json-schema.org/draft-06/schema":      draft6,
	"json-schema.org/draft-07/schema":      draft7,
	"json-schema.org/draft/2019-09/schema": draft2019,
	"json-schema.org/draft/2020-12/schema": draft2020,
	"json-schema.org/schema":               draft2020,
}

// draftOf returns the draft that a value of $schema names.
func draftOf(url string) (draft, bool) {
	d, ok := drafts[withoutScheme(strings.TrimSuffix(url, "#"))]
	return d, ok
}

func withoutScheme(url string) string {
	if rest, ok := strings.CutPrefix(url, "http://"); ok {
		return rest
	}
	return strings.TrimPrefix(url, "https://")
}

// canonicalURL returns the URL that a metaschema has in its document, where the scheme of url may
// differ.
func canonicalURL(url string) string {
	switch name := withoutScheme(url); {
	case strings.HasPrefix(name, "json-schema.org/draft-"):
		return "http://" + name
	case strings.HasPrefix(name, "json-schema.org/draft/"):
		return "https://" + name
	}
	return url
}

// idKeyword returns the keyword that gives a schema its URL.
func (d draft) idKeyword() string {
	if d == draft4 {
		return "id"
	}
	return "$id"
}

// refReplaces reports whether $ref makes a schema ignore its other members.
func (d draft) refReplaces() bool { return d <= draft7 }

// A place is what a keyword has schemas in.
type place int

const (
	inValue  place = 1 << iota // a schema
	inArray                    // an array of schemas
	inObject                   // an object of schemas
)

// A container is a keyword with schemas, from the draft since until the draft until, or always if
// until is 0.
type container struct {
	keyword      string
	in           place
	since, until draft
}

var containers = []container{
	{"not", inValue, draft4, 0},
	{"allOf", inArray, draft4, 0},
	{"anyOf", inArray, draft4, 0},
	{"oneOf", inArray, draft4, 0},
	{"definitions", inObject, draft4, 0},
	{"properties", inObject, draft4, 0},
	{"patternProperties", inObject, draft4, 0},
	{"additionalProperties", inValue, draft4, 0},
	{"dependencies", inObject, draft4, 0},
	{"items", inValue | inArray, draft4, draft2019},
	{"items", inValue, draft2020, 0},
	{"additionalItems", inValue, draft4, draft2019},
	{"propertyNames", inValue, draft6, 0},
	{"contains", inValue, draft6, 0},
	{"if", inValue, draft7, 0},
	{"then", inValue, draft7, 0},
	{"else", inValue, draft7, 0},
	{"$defs", inObject, draft2019, 0},
	{"dependentSchemas", inObject, draft2019, 0},
	{"unevaluatedProperties", inValue, draft2019, 0},
	{"unevaluatedItems", inValue, draft2019, 0},
	{"contentSchema", inValue, draft2019, 0},
	{"prefixItems", inArray, draft2020, 0},
}

// isSchema reports whether a value may be a schema.
func isSchema(v any) bool {
	switch v.(type) {
	case bool, map[string]any:
		return true
	}
	return false
}

// children calls each for the schemas within a schema object, with the JSON pointer to them from
// the object.
func (d draft) children(object map[string]any, each func(pointer string, v any) error) error {
	for _, c := range containers {
		value, ok := object[c.keyword]
		if !ok || d < c.since || c.until != 0 && d > c.until {
			continue
		}
		var err error
		switch v := value.(type) {
		case []any:
			for i, e := range v {
				if c.in&inArray != 0 && isSchema(e) && err == nil {
					err = each(pointer(c.keyword, strconv.Itoa(i)), e)
				}
			}
		case map[string]any:
			if c.in&inValue != 0 {
				err = each(pointer(c.keyword), v)
			} else if c.in&inObject != 0 {
				for _, name := range sortedNames(v) {
					if isSchema(v[name]) && err == nil {
						err = each(pointer(c.keyword, name), v[name])
					}
				}
			}
		case bool:
			if c.in&inValue != 0 {
				err = each(pointer(c.keyword), v)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// metaschemas has the metaschemas of the drafts: what they assert, without descriptions. Those of
// the vocabularies are within the metaschema of their draft.
//
//go:embed metaschemas
var metaschemas embed.FS

// metaschema returns the document with the metaschema of a URL without its fragment, and the URL
// of the document.
func metaschema(url string) (text []byte, base string, ok bool) {
	name := withoutScheme(url)
	for prefix, file := range map[string]string{
		"json-schema.org/draft-04/": "draft-04", "json-schema.org/draft-06/": "draft-06", "json-schema.org/draft-07/": "draft-07",
		"json-schema.org/draft/2019-09/": "2019-09", "json-schema.org/draft/2020-12/": "2020-12",
	} {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		text, err := metaschemas.ReadFile("metaschemas/" + file + ".json")
		return text, strings.TrimSuffix(url, name) + prefix + "schema", err == nil
	}
	return nil, "", false
}

// compiledMetaschemas are the metaschemas of the drafts, compiled at their first use.
var compiledMetaschemas = map[draft]*compiledMetaschema{
	draft4:    {url: "http://json-schema.org/draft-04/schema"},
	draft6:    {url: "http://json-schema.org/draft-06/schema"},
	draft7:    {url: "http://json-schema.org/draft-07/schema"},
	draft2019: {url: "https://json-schema.org/draft/2019-09/schema"},
	draft2020: {url: "https://json-schema.org/draft/2020-12/schema"},
}

type compiledMetaschema struct {
	url  string
	once sync.Once
	node *node
	err  error
}

func (m *compiledMetaschema) compile() (*node, error) {
	m.once.Do(func() {
		c := newCompiler(compilePattern)
		c.trusted = true
		m.node, m.err = c.finish(m.url)
	})
	return m.node, m.err
}
