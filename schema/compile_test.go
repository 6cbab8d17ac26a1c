package schema_test

import (
	"errors"
	"strings"
	"testing"

	"mcpwire/schema"
	"mcpwire/schema/fullschema"
)

// TestCompileUnsupported checks schemas that need an engine: without one the error names the
// keyword and its position, with one they compile.
//
// Spec: S45 S46 S48 C21 C22
func TestCompileUnsupported(t *testing.T) {
	for _, c := range []struct{ schema, want, valid, invalid string }{
		{`{"properties":{"a":true},"unevaluatedProperties":false}`, `#: unevaluatedProperties`, `{"a":1}`, `{"b":1}`},
		{`{"items":{"prefixItems":[true],"unevaluatedItems":false}}`, `#/items: unevaluatedItems`, `[[1]]`, `[[1,2]]`},
		{`{"$dynamicRef":"#n","$defs":{"a":{"$dynamicAnchor":"n","type":"null"}}}`, `#: $dynamicRef`, `null`, `1`},
		{`{"dependencies":{"a":["b"]}}`, `#: dependencies`, `{"b":1}`, `{"a":1}`},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","items":[{"type":"null"}]}`, `#: $schema`, `[null]`, `[1]`},
		{`{"items":[{"type":"null"}],"$schema":"http://json-schema.org/draft-07/schema#"}`, `#: $schema`, `[null]`, `[1]`},
		{`{"$schema":"https://json-schema.org/draft/2019-09/schema","type":"null"}`, `#: $schema`, `null`, `1`},
		{`{"$defs":{"a":{"$id":"inner","type":"null"}},"$ref":"inner"}`, `#/$defs/a: $id`, `null`, `1`},
		{`{"$ref":"https://json-schema.org/draft/2020-12/schema"}`, `#: $ref: "https://json-schema.org/draft/2020-12/schema" is outside this document, and nothing is fetched`, `{"type":"null"}`, `{"type":1}`},
	} {
		_, err := schema.Compile([]byte(c.schema), nil)
		if err == nil || !strings.HasPrefix(err.Error(), "schema: "+c.want) || !strings.HasSuffix(err.Error(), "; compile with a full engine (package schema/fullschema) or write the schema without it") {
			t.Errorf("%s:\n got %v\nwant %s", c.schema, err, c.want)
		}
		v, err := schema.Compile([]byte(c.schema), fullschema.Engine)
		if err != nil {
			t.Errorf("%s: %v", c.schema, err)
			continue
		}
		if err := v.Validate([]byte(c.valid)); err != nil {
			t.Errorf("%s: %s: %v", c.schema, c.valid, err)
		}
		err = v.Validate([]byte(c.invalid))
		var bad *schema.Error
		if !errors.As(err, &bad) || len(bad.Problems) == 0 {
			t.Errorf("%s: %s: got %v, want a *schema.Error", c.schema, c.invalid, err)
		}
		if string(v.JSON()) != c.schema {
			t.Errorf("JSON: %s", v.JSON())
		}
	}
}

// Spec: S47
func TestCompileErrors(t *testing.T) {
	for _, c := range []struct{ schema, want string }{
		{``, `schema: invalid JSON at byte 0: unexpected end of text, want a value`},
		{`{"type":}`, `schema: invalid JSON at byte 8: unexpected '}', want a value`},
		{`1`, `schema: #: schema: expected an object or a boolean, got number 1`},
		{`{"type":"integer","type":"string"}`, `schema: #: duplicate property "type"`},
		{`{"properties":{"a":{"x":[{"b":1,"b":2}]}}}`, `schema: #/properties/a/x/0: duplicate property "b"`},
		{`{"properties":{"a/b":{"type":"int"}}}`, `schema: #/properties/a~1b: type: unknown type "int"; known are "null", "boolean", "object", "array", "string", "number", "integer"`},
		{`{"type":[]}`, `schema: #: type: expected at least one type, got array`},
		{`{"type":["string","string"]}`, `schema: #: type: "string" is listed twice`},
		{`{"type":1}`, `schema: #: type: expected a string, got number 1`},
		{`{"enum":1}`, `schema: #: enum: expected an array, got number 1`},
		{`{"minLength":-1}`, `schema: #: minLength: expected an integer of 0 or more, got number -1`},
		{`{"maxItems":1.5}`, `schema: #: maxItems: expected an integer of 0 or more, got number 1.5`},
		{`{"minimum":"1"}`, `schema: #: minimum: expected a number, got string "1"`},
		{`{"multipleOf":0}`, `schema: #: multipleOf: expected a number greater than 0, got number 0`},
		{`{"multipleOf":` + strings.Repeat("7", 1001) + `}`, `schema: #: multipleOf: more than 1000 digits`},
		{`{"uniqueItems":1}`, `schema: #: uniqueItems: expected a boolean, got number 1`},
		{`{"properties":[]}`, `schema: #: properties: expected an object of schemas, got array`},
		{`{"required":"a"}`, `schema: #: required: expected an array of names, got string "a"`},
		{`{"required":["a","a"]}`, `schema: #: required: "a" is listed twice`},
		{`{"required":[1]}`, `schema: #: required: expected a string, got number 1`},
		{`{"dependentRequired":[]}`, `schema: #: dependentRequired: expected an object, got array`},
		{`{"items":[{}]}`, `schema: #: items: expected one schema, got an array, which is prefixItems in this draft`},
		{`{"prefixItems":[]}`, `schema: #: prefixItems: expected an array of schemas with at least one, got array`},
		{`{"anyOf":{}}`, `schema: #: anyOf: expected an array of schemas with at least one, got object`},
		{`{"not":null}`, `schema: #/not: schema: expected an object or a boolean, got null`},
		{`{"$ref":1}`, `schema: #: $ref: expected a string, got number 1`},
		{`{"$ref":"#/$defs/x"}`, `schema: #: $ref: nothing found at "#/$defs/x"`},
		{`{"$ref":"#x"}`, `schema: #: $ref: $anchor "x" not found`},
		{`{"$ref":"#/%zz"}`, `schema: #: $ref: "#/%zz" has a malformed fragment`},
		{`{"$ref":"#/type","type":"object"}`, `schema: #/type: schema: expected an object or a boolean, got string "object"`},
		{`{"$ref":"#"}`, `schema: #: $ref: the schema applies itself to the same value endlessly`},
		{`{"$anchor":"a","$defs":{"b":{"$anchor":"a"}}}`, `schema: #/$defs/b: $anchor: "a" is defined twice`},
		{`{"pattern":"(?=a)"}`, "schema: #: pattern: \"(?=a)\" is not a regular expression that Go can match: error parsing regexp: invalid or unsupported Perl syntax: `(?=`; " +
			"compile with a full engine (package schema/fullschema) or write the schema without it"},
		{`{"pattern":"(a{1,100}){1,9}{1,9}{1,9}"}`, "schema: #: pattern: \"(a{1,100}){1,9}{1,9}{1,9}\" is not a regular expression that Go can match: error parsing regexp: invalid nested repetition operator: `{1,9}{1,9}`; " +
			"compile with a full engine (package schema/fullschema) or write the schema without it"},
		{`{"patternProperties":{"(abcdefghijklmnopqrst){1,1000}":true}}`, `schema: #: patternProperties: "(abcdefghijklmnopqrst){1,1000}" is too large to match in bounded time`},
	} {
		_, err := schema.Compile([]byte(c.schema), nil)
		if errText(err) != c.want {
			t.Errorf("%s:\n got %v\nwant %s", c.schema, err, c.want)
		}
	}
	loops := []string{
		`{"$defs":{"a":{"allOf":[{"$ref":"#/$defs/b"}]},"b":{"not":{"$ref":"#/$defs/a"}}}}`,
		`{"dependentSchemas":{"a":{"if":true,"then":{"$ref":"#"}}}}`,
	}
	for _, s := range loops {
		if _, err := schema.Compile([]byte(s), nil); err == nil || !strings.Contains(err.Error(), "endlessly") {
			t.Errorf("%s: %v", s, err)
		}
	}
}

// TestCompileEngineErrors checks the errors of an engine.
func TestCompileEngineErrors(t *testing.T) {
	text := []byte(`{"unevaluatedItems":false}`)
	oops := errors.New("oops")
	_, err := schema.Compile(text, func([]byte) (func([]byte) error, error) { return nil, oops })
	if !errors.Is(err, oops) {
		t.Errorf("got %v, want oops", err)
	}
	v, err := schema.Compile(text, func([]byte) (func([]byte) error, error) { return func([]byte) error { return oops }, nil })
	if err != nil {
		t.Fatal(err)
	}
	if got, want := errText(v.Validate([]byte(`1`))), "arguments: oops"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if _, err := schema.Compile([]byte(`{"type":1}`), func([]byte) (func([]byte) error, error) {
		t.Error("the engine got an invalid schema")
		return nil, nil
	}); err == nil {
		t.Error("no error")
	}
}
