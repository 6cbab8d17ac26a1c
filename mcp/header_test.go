package mcp_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/mcp"
)

// Spec: S137 S138 S139 S140 S141 S142 S143
func TestHeaderParams(t *testing.T) {
	const where = "x-mcp-header at /properties/a/x-mcp-header "
	deep := func(n int) string {
		return strings.Repeat(`{"properties":{"a":`, n) + `{"type":"string","x-mcp-header":"A"}` + strings.Repeat("}}", n)
	}
	for _, tt := range []struct {
		name, schema string
		want         []mcp.HeaderParam
		err          string
	}{
		{"none", `{"type":"object","properties":{"a":{"type":"string"}}}`, nil, ""},
		{"one of each type", `{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"Region"},"b":{"x-mcp-header":"N","type":"integer"},"c":{"type":"boolean","x-mcp-header":"!#$%&'*+-.^_` + "`" + `|~09"}}}`,
			[]mcp.HeaderParam{{"Region", []string{"a"}, "string"}, {"N", []string{"b"}, "integer"}, {"!#$%&'*+-.^_`|~09", []string{"c"}, "boolean"}}, ""},
		{"nested", `{"properties":{"a":{"type":"object","properties":{"b/c":{"type":"string","x-mcp-header":"Method"},"d":{"properties":{"e":{"type":"string","x-mcp-header":"E"}}}}}}}`,
			[]mcp.HeaderParam{{"Method", []string{"a", "b/c"}, "string"}, {"E", []string{"a", "d", "e"}, "string"}}, ""},
		{"white space and escapes", "{ \"properties\" : {\n\"\\u0061\": { \"type\" : \"str\\u0069ng\" , \"x-mcp-he\\u0061der\" : \"\\u0041\" } } }", []mcp.HeaderParam{{"A", []string{"a"}, "string"}}, ""},
		{"a property named x-mcp-header", `{"properties":{"x-mcp-header":{"type":"array"},"a":{"properties":{"x-mcp-header":{"type":"string","x-mcp-header":"H"}}}}}`, []mcp.HeaderParam{{"H", []string{"a", "x-mcp-header"}, "string"}}, ""},
		{"values are not schemas", `{"properties":{"a":{"enum":[{"x-mcp-header":""}],"default":{"x-mcp-header":1},"const":{"x-mcp-header":1},"examples":[{"x-mcp-header":1}]}},"required":["x-mcp-header"]}`, nil, ""},
		{"integers in range", `{"properties":{"a":{"type":"integer","x-mcp-header":"A","enum":[-9007199254740991,9007199254740991],"default":1e3,"maximum":9223372036854775807}}}`, []mcp.HeaderParam{{"A", []string{"a"}, "integer"}}, ""},
		{"deep", deep(40), []mcp.HeaderParam{{"A", strings.Split(strings.Repeat("a", 40), ""), "string"}}, ""},
		{"no object", `true`, nil, ""},
		{"no object, with the word", `["x-mcp-header"]`, nil, ""},

		{"empty", `{"properties":{"a":{"type":"string","x-mcp-header":""}}}`, nil, where + "is empty: it must be the part of a header name after Mcp-Param-"},
		{"blank", `{"properties":{"a":{"type":"string","x-mcp-header":"a b"}}}`, nil, where + "is \"a b\": it must be an HTTP token, of letters, digits and !#$%&'*+-.^_`|~"},
		{"colon", `{"properties":{"a":{"type":"string","x-mcp-header":"a:"}}}`, nil, where + "is \"a:\": it must be an HTTP token, of letters, digits and !#$%&'*+-.^_`|~"},
		{"control", `{"properties":{"a":{"type":"string","x-mcp-header":"a\r\nb"}}}`, nil, where + "is \"a\\r\\nb\": it must be an HTTP token, of letters, digits and !#$%&'*+-.^_`|~"},
		{"not ASCII", `{"properties":{"a":{"type":"string","x-mcp-header":"é"}}}`, nil, where + "is \"é\": it must be an HTTP token, of letters, digits and !#$%&'*+-.^_`|~"},
		{"no string", `{"properties":{"a":{"type":"string","x-mcp-header":true}}}`, nil, where + "must be a string"},
		{"null", `{"properties":{"a":{"type":"string","x-mcp-header":null}}}`, nil, where + "must be a string"},
		{"duplicate in one schema", `{"properties":{"a":{"type":"string","x-mcp-header":"A","x-mcp-header":"B"}}}`, nil, where + "appears twice"},
		{"not unique", `{"properties":{"b":{"properties":{"c":{"type":"string","x-mcp-header":"Foo"}}},"a":{"type":"string","x-mcp-header":"fOO"}}}`, nil, where + `is "fOO", like that of b.c: header names are case-insensitive`},
		{"number", `{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}`, nil, where + `needs "type":"string", "integer" or "boolean" next to it`},
		{"array", `{"properties":{"a":{"type":"array","x-mcp-header":"A"}}}`, nil, where + `needs "type":"string", "integer" or "boolean" next to it`},
		{"object", `{"properties":{"a":{"type":"object","x-mcp-header":"A"}}}`, nil, where + `needs "type":"string", "integer" or "boolean" next to it`},
		{"type null", `{"properties":{"a":{"type":"null","x-mcp-header":"A"}}}`, nil, where + `needs "type":"string", "integer" or "boolean" next to it`},
		{"string or null", `{"properties":{"a":{"type":["string","null"],"x-mcp-header":"A"}}}`, nil, where + `needs "type":"string", "integer" or "boolean" next to it`},
		{"no type", `{"properties":{"a":{"enum":["x"],"x-mcp-header":"A"}}}`, nil, where + `needs "type":"string", "integer" or "boolean" next to it`},
		{"large enum", `{"properties":{"a":{"type":"integer","x-mcp-header":"A","enum":[1,9007199254740992]}}}`, nil, where + "is not allowed here: 9007199254740992 is not exact in a header; only integers between ±(2^53-1) are"},
		{"large const", `{"properties":{"a":{"type":"integer","x-mcp-header":"A","const":-9007199254740992}}}`, nil, where + "is not allowed here: -9007199254740992 is not exact in a header; only integers between ±(2^53-1) are"},
		{"large default", `{"properties":{"a":{"type":"integer","x-mcp-header":"A","default":1e400}}}`, nil, where + "is not allowed here: 1e400 is not exact in a header; only integers between ±(2^53-1) are"},
		{"root", `{"type":"string","x-mcp-header":"A"}`, nil, "x-mcp-header at /x-mcp-header is not allowed here: the arguments as a whole cannot be in a header"},
		{"deeper", deep(64), nil, "x-mcp-header: the schema nests deeper than 64 levels"},
	} {
		got, err := mcp.HeaderParams([]byte(tt.schema))
		text := ""
		if err != nil {
			text = err.Error()
		}
		if diff := cmp.Diff(tt.want, got); diff != "" || text != tt.err {
			t.Errorf("%s: got error %q, want %q (-want +got):\n%s", tt.name, text, tt.err, diff)
		}
	}
}

// Spec: S143
func TestHeaderParamsReachedOtherwise(t *testing.T) {
	const annotated = `{"type":"string","x-mcp-header":"A"}`
	for _, tt := range []struct{ schema, at string }{
		{`{"properties":{"a":{"items":` + annotated + `}}}`, "/properties/a/items"},
		{`{"properties":{"a":{"prefixItems":[true,` + annotated + `]}}}`, "/properties/a/prefixItems/1"},
		{`{"oneOf":[` + annotated + `]}`, "/oneOf/0"},
		{`{"anyOf":[{"properties":{"a":` + annotated + `}}]}`, "/anyOf/0/properties/a"},
		{`{"allOf":[{"properties":{"a":` + annotated + `}}]}`, "/allOf/0/properties/a"},
		{`{"not":{"properties":{"a":` + annotated + `}}}`, "/not/properties/a"},
		{`{"if":{"properties":{"a":` + annotated + `}}}`, "/if/properties/a"},
		{`{"then":{"properties":{"a":` + annotated + `}}}`, "/then/properties/a"},
		{`{"else":{"properties":{"a":` + annotated + `}}}`, "/else/properties/a"},
		{`{"properties":{"a":{"$ref":"#/$defs/x/y"}},"$defs":{"x/y":` + annotated + `}}`, "/$defs/x~1y"},
		{`{"definitions":{"x":` + annotated + `}}`, "/definitions/x"},
		{`{"patternProperties":{"^~":` + annotated + `}}`, "/patternProperties/^~0"},
		{`{"additionalProperties":` + annotated + `}`, "/additionalProperties"},
		{`{"propertyNames":` + annotated + `}`, "/propertyNames"},
		{`{"dependentSchemas":{"a":` + annotated + `}}`, "/dependentSchemas/a"},
		{`{"properties":{"a":{"contains":` + annotated + `}}}`, "/properties/a/contains"},
		{`{"x-more":{"deeper":` + annotated + `}}`, "/x-more/deeper"},
	} {
		_, err := mcp.HeaderParams([]byte(tt.schema))
		want := "x-mcp-header at " + tt.at + "/x-mcp-header is not allowed here: it must be on a property that is reached through properties alone"
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", tt.schema, err, want)
		}
	}
}

// FuzzHeaderParams shows that each returned parameter is in the schema, and is returned once.
func FuzzHeaderParams(f *testing.F) {
	f.Add([]byte(`{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"properties":{"c":{"type":"integer","x-mcp-header":"B"}}}}}`))
	f.Add([]byte(`{"anyOf":[{"x-mcp-header":"A"}],"enum":[{"x-mcp-header":"A"}],"properties":{"x-mcp-header":{}}}`))
	f.Add([]byte(`{"properties":[{"x-mcp-header":"A"}],"$defs":{"a":{"x-mcp-header":"\u0041"}}}`))
	f.Fuzz(func(t *testing.T, schema []byte) {
		var doc any
		if json.Unmarshal(schema, &doc) != nil {
			return
		}
		schema, err := json.Marshal(doc) // without duplicate names
		if err != nil {
			t.Fatal(err)
		}
		params, err := mcp.HeaderParams(schema)
		if err != nil {
			return
		}
		names := map[string]bool{}
		for _, p := range params {
			if fold := strings.ToLower(p.Header); names[fold] {
				t.Errorf("%s: %s comes twice", schema, p.Header)
			} else {
				names[fold] = true
			}
			at := doc
			for _, name := range p.Path {
				properties, _ := at.(map[string]any)["properties"].(map[string]any)
				at = properties[name]
			}
			if o, _ := at.(map[string]any); o["x-mcp-header"] != p.Header || o["type"] != p.Type {
				t.Errorf("%s: %+v is not there", schema, p)
			}
		}
	})
}
