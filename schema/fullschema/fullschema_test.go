package fullschema_test

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/schema"
	"mcpwire/schema/fullschema"
)

func TestMessages(t *testing.T) {
	for _, c := range []struct{ schema, in, want string }{
		{`{"properties":{"a":{"type":["integer","null"]}}}`, `{"a":"x"}`, `arguments.a: expected null or integer, got string`},
		{`{"unevaluatedProperties":false}`, `{"a/b":1}`, `arguments["a/b"]: false schema`},
		{`{"required":["a"],"properties":{"b":{"minimum":3}}}`, `{"b":1}`, `arguments: missing property 'a'; arguments.b: minimum: got 1, want 3`},
		{`{"items":{"anyOf":[{"type":"string"},{"required":["u"],"properties":{"v":{"type":"null"}}}]}}`, `[{"u":1,"v":2}]`,
			`arguments[0]: matches none of the alternatives; 1: expected string, got object; 2: /v: expected null, got number`},
		{`{"oneOf":[{"type":"string"},{"type":"null"}]}`, `1`, `arguments: matches none of the alternatives; 1: expected string, got number; 2: expected null, got number`},
		{`{"oneOf":[true,{"type":"null"}]}`, `null`, `arguments: 'oneOf' failed, subschemas 0, 1 matched`},
		{`{"$ref":"#/$defs/a","$defs":{"a":{"type":"null"}}}`, `1`, `arguments: expected null, got number`},
		{`{"anyOf":[false,false,false,false,false,false]}`, `1`, `arguments: matches none of the alternatives; 1: false schema; 2: false schema; 3: false schema; 4: false schema; and 2 more`},
		{`{"items":false}`, `[1,2,3]`, `arguments[0]: false schema; arguments[1]: false schema; arguments[2]: false schema`},
		{`{}`, `[1e1001]`, `arguments: number at byte 1: expected an exponent of at most 1000`},
		{`{}`, `[-0.5e-99999999999999999999]`, `arguments: number at byte 1: expected an exponent of at most 1000`},
		{`{"minLength":300}`, `"e5"`, `arguments: minLength: got 2, want 300`},
		{`{}`, `{`, `arguments: unexpected EOF`},
	} {
		validate, err := fullschema.Engine([]byte(c.schema))
		if err != nil {
			t.Errorf("%s: %v", c.schema, err)
			continue
		}
		err = validate([]byte(c.in))
		var bad *schema.Error
		if !errors.As(err, &bad) || err.Error() != c.want {
			t.Errorf("%s\n%s\n got %v\nwant %s", c.schema, c.in, err, c.want)
		}
	}
}

func TestValid(t *testing.T) {
	validate, err := fullschema.Engine([]byte(`{"unevaluatedItems":{"multipleOf":0.1}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []string{`[0.3,1e1000]`, `{}`, ` [ ] `, `["1e9999"]`} {
		if err := validate([]byte(in)); err != nil {
			t.Errorf("%s: %v", in, err)
		}
	}
}

// TestNothingIsFetched checks every kind of reference that a loader might fetch.
//
// Spec: S48 C22
func TestNothingIsFetched(t *testing.T) {
	for _, ref := range []string{
		"https://example.com/schema.json", "http://127.0.0.1:1/x", "file:///etc/hostname", "/etc/hostname", "other.json", "ftp://example.com/x", "urn:x:y",
	} {
		_, err := fullschema.Engine([]byte(`{"$ref":"` + ref + `"}`))
		if err == nil || !strings.Contains(err.Error(), "nothing is fetched") {
			t.Errorf("%s: got %v", ref, err)
		}
		_, err = fullschema.Engine([]byte(`{"$schema":"` + ref + `"}`))
		if err == nil {
			t.Errorf("$schema %s: no error", ref)
		}
	}
}

func TestEngineErrors(t *testing.T) {
	for _, s := range []string{`{"type":"nonsense"}`, `{"pattern":"("}`, `{"$ref":"#/nowhere"}`, `{`, `{"minimum":1e2000}`, `1`} {
		if _, err := fullschema.Engine([]byte(s)); err == nil {
			t.Errorf("%s: no error", s)
		}
	}
}

// TestManyProperties compiles a schema with so many properties and references that the work for each
// must not depend on their number.
func TestManyProperties(t *testing.T) {
	const n = 20_000
	properties, definitions := map[string]any{}, map[string]any{}
	for i := range n {
		name := strconv.Itoa(i)
		properties[name] = map[string]any{"$ref": "#/$defs/" + name}
		definitions[name] = map[string]any{"type": "integer"}
	}
	text, err := json.Marshal(map[string]any{"properties": properties, "$defs": definitions, "unevaluatedProperties": false})
	if err != nil {
		t.Fatal(err)
	}
	validate, err := fullschema.Engine(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate([]byte(`{"0":1,"19999":2}`)); err != nil {
		t.Error(err)
	}
	if err := validate([]byte(`{"20000":1}`)); err == nil {
		t.Error("an unevaluated property is accepted")
	}
}

// TestMetaschemas refers to metaschemas with both schemes.
func TestMetaschemas(t *testing.T) {
	for _, url := range []string{
		"json-schema.org/draft-04/schema#", "json-schema.org/draft-06/schema#", "json-schema.org/draft-07/schema#",
		"json-schema.org/draft/2019-09/schema", "json-schema.org/draft/2020-12/schema", "json-schema.org/draft/2020-12/meta/validation",
	} {
		validate, err := fullschema.Engine([]byte(`{"allOf":[{"$ref":"http://` + url + `"},{"$ref":"https://` + url + `"}]}`))
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if err := validate([]byte(`{"minLength":1}`)); err != nil {
			t.Errorf("%s: %v", url, err)
		}
		if err := validate([]byte(`{"minLength":-1}`)); err == nil {
			t.Errorf("%s: an invalid schema is accepted", url)
		}
	}
}

// TestThroughCompile uses the package as an engine of schema.Compile.
func TestThroughCompile(t *testing.T) {
	v, err := schema.Compile([]byte(`{ "allOf": [ {"properties": {"a": true}} ], "unevaluatedProperties": false }`), fullschema.Engine)
	if err != nil {
		t.Fatal(err)
	}
	err = v.Validate([]byte(`{"a":1,"b":2}`))
	var got *schema.Error
	if !errors.As(err, &got) {
		t.Fatalf("got %v", err)
	}
	want := &schema.Error{Problems: []schema.Problem{{Pointer: "/b", Message: "false schema"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := v.Validate([]byte(`{"a":1,"a":2}`)); err == nil {
		t.Error("duplicate names are accepted")
	}
}
