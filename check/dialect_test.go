package check

import (
	"slices"
	"strings"
	"testing"
)

// TestDialects shows that schemas and instances are checked by the dialect of the schema.
func TestDialects(t *testing.T) {
	const (
		draft4 = `"$schema":"http://json-schema.org/draft-04/schema#",`
		draft7 = `"$schema":"http://json-schema.org/draft-07/schema#",`
		d2019  = `"$schema":"https://json-schema.org/draft/2019-09/schema",`
		d2020  = `"$schema":"https://json-schema.org/draft/2020-12/schema",`
	)
	for _, dialect := range []string{"", draft4, draft7, d2019, d2020} {
		for _, tt := range []struct{ members, arguments, want string }{
			{`"properties":{"n":{"type":"integer"}}`, `{"n":1}`, ""},
			{`"properties":{"n":{"type":"strnig"}}`, `{"n":1}`, "tools/schema-invalid"},
			{`"properties":{"n":{"minLength":-1}}`, `{"n":1}`, "tools/schema-invalid"},
			{`"properties":{"n":{"$ref":"#/definitions/nope"}}`, `{"n":1}`, "tools/schema-invalid"},
			{`"properties":{"n":{"pattern":"("}}`, `{"n":1}`, "tools/schema-invalid"},
			{`"properties":{"n":{"pattern":"^(?!a)"}}`, `{"n":1}`, ""},
			{`"properties":{"n":{"type":"integer"}}`, `{"n":"x"}`, "tools/arguments"},
			{`"definitions":{"i":{"type":"integer"}},"properties":{"n":{"$ref":"#/definitions/i"}}`, `{"n":"x"}`, "tools/arguments"},
			{`"definitions":{"i":{"type":"integer"}},"properties":{"n":{"$ref":"#/definitions/i"}}`, `{"n":1}`, ""},
		} {
			tool := `{"name":"add","inputSchema":{` + dialect + `"type":"object",` + tt.members + `}}`
			ids, messages := sessionFindings(t, Example{rev20251125, exToolCall(tool, tt.arguments, `"result":{"content":[{"type":"text","text":"x"}],"isError":true}`)})
			if tt.want == "" && len(ids) > 0 || tt.want != "" && !slices.Equal(ids, []string{tt.want}) {
				t.Errorf("%s with %s: found %v, want %s\n%q", tool, tt.arguments, ids, tt.want, messages)
			}
		}
	}
}

// TestExpansion shows that references that multiply or recurse are not passed to the engine.
func TestExpansion(t *testing.T) {
	const draft7 = `{"$schema":"http://json-schema.org/draft-07/schema#",`
	var double strings.Builder
	double.WriteString(draft7 + `"definitions":{"a0":{"type":"integer"}`)
	for i := range 25 {
		n := string(rune('a' + i))
		prev := "a0"
		if i > 0 {
			prev = string(rune('a' + i - 1))
		}
		double.WriteString(`,"` + n + `":{"allOf":[{"$ref":"#/definitions/` + prev + `"},{"$ref":"#/definitions/` + prev + `"}]}`)
	}
	double.WriteString(`},"$ref":"#/definitions/y"}`)
	for _, tt := range []struct {
		name, text string
		engine     bool
	}{
		{"no reference", draft7 + `"type":"object"}`, true},
		{"a reference", draft7 + `"definitions":{"a/b":{"type":"null"}},"$ref":"#/definitions/a~1b"}`, true},
		{"one into an array", draft7 + `"items":[{"type":"null"},{"$ref":"#/items/0"}]}`, true},
		{"to itself", draft7 + `"properties":{"a":{"$ref":"#"}}}`, false},
		{"to another document", draft7 + `"$ref":"https://example.com/x"}`, false},
		{"doubling", double.String(), false},
	} {
		if got := compile([]byte(tt.text)).v != nil; got != tt.engine {
			t.Errorf("%s: goes to the engine: %v, want %v", tt.name, got, tt.engine)
		}
	}
}
