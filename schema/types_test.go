package schema_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/schema"
	"mcpwire/schema/fullschema"
)

// Types that the tests of this package share.

type (
	level  string
	weight int
	point  struct {
		X int `json:"x"`
		Y int `json:"y"`
	}
	node struct {
		Value int     `json:"value"`
		Kids  []*node `json:"kids,omitempty"`
		Next  *node   `json:"next,omitempty"`
	}
	base struct {
		ID   int    `json:"id"`
		Name string `json:"name"`
	}
	Opts struct {
		Deep bool `json:"deep"`
	}
	derived struct {
		base
		*Opts
		Name string `json:"name"` // hides base.Name
	}
	// color decodes itself from any JSON.
	paint struct{ r, g, b uint8 }
	// hex is a number written as text.
	hex uint32
	// celsius defines its own schema.
	celsius float64
	// nameRange defines its own schema and decodes as a struct.
	nameRange struct {
		From int `json:"from"`
		To   int `json:"to"`
	}
	trees []tree
	tree  struct {
		Kids trees `json:"kids" schema:"maxItems=2"`
	}
	ring map[string]ring
)

func (level) JSONSchemaEnum() []string  { return []string{"low", "high"} }
func (weight) JSONSchemaEnum() []string { return []string{"1", "2", "500"} }

func (c *paint) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return errors.New("a color is a string")
	}
	_, err := fmt.Sscanf(s, "#%02x%02x%02x", &c.r, &c.g, &c.b)
	return err
}

func (c paint) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, " \"#%02x%02x%02x\"\n", c.r, c.g, c.b), nil
}

func (h *hex) UnmarshalText(b []byte) error {
	_, err := fmt.Sscanf(string(b), "0x%x", (*uint32)(h))
	return err
}

func (h hex) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "0x%x", uint32(h)), nil }

func (celsius) JSONSchema() []byte {
	return []byte("{\n \"type\": \"number\", \"minimum\": -273.15\n}")
}

func (*nameRange) JSONSchema() []byte {
	return []byte(`{"type":"object","properties":{"from":{"type":"integer"},"to":{"type":"integer"}},"required":["from"]}`)
}

type everything struct {
	Bool    bool              `json:"bool"`
	Int8    int8              `json:"int8"`
	Int     int               `json:"int"`
	Uint16  uint16            `json:"uint16"`
	Uint64  uint64            `json:"uint64"`
	Float32 float32           `json:"float32"`
	Float64 float64           `json:"float64"`
	String  string            `json:"string"`
	Bytes   []byte            `json:"bytes"`
	Time    time.Time         `json:"time"`
	Raw     json.RawMessage   `json:"raw"`
	Any     any               `json:"any"`
	Number  json.Number       `json:"number"`
	Big     *big.Int          `json:"big"`
	Ints    []int             `json:"ints"`
	Pair    [2]string         `json:"pair"`
	Map     map[string]int    `json:"map"`
	ByInt   map[int8]string   `json:"byInt"`
	ByAddr  map[hex]bool      `json:"byAddr"`
	Point   point             `json:"point"`
	Ptr     *point            `json:"ptr"`
	Addr    netip.Addr        `json:"addr"`
	Color   paint             `json:"color"`
	Level   level             `json:"level"`
	Weight  weight            `json:"weight"`
	Strs    map[string]string `json:"strs"`
	Plain   int
	Skip    int `json:"-"`
	hidden  int
}

// of compiles T or fails the test.
func of[T any](t testing.TB, opts *schema.Options) *schema.Typed[T] {
	t.Helper()
	typed, err := schema.Of[T](opts)
	if err != nil {
		t.Fatal(err)
	}
	return typed
}

// schemaOf returns the schema of T, or the error.
func schemaOf[T any](opts *schema.Options) string {
	typed, err := schema.Of[T](opts)
	if err != nil {
		return "error: " + err.Error()
	}
	return string(typed.JSON())
}

func TestOf(t *testing.T) {
	for _, c := range []struct{ name, got, want string }{
		{"string", schemaOf[string](nil), `{"type":"string"}`},
		{"bool", schemaOf[bool](nil), `{"type":"boolean"}`},
		{"int", schemaOf[int](nil), `{"type":"integer"}`},
		{"int8", schemaOf[int8](nil), `{"type":"integer","minimum":-128,"maximum":127}`},
		{"uint32", schemaOf[uint32](nil), `{"type":"integer","minimum":0,"maximum":4294967295}`},
		{"uint64", schemaOf[uint64](nil), `{"type":"integer","minimum":0}`},
		{"float", schemaOf[float32](nil), `{"type":"number"}`},
		{"any", schemaOf[any](nil), `{}`},
		{"raw", schemaOf[json.RawMessage](nil), `{}`},
		{"number", schemaOf[json.Number](nil), `{"type":"number"}`},
		{"big", schemaOf[big.Int](nil), `{"type":"integer"}`},
		{"bytes", schemaOf[[]byte](nil), `{"type":"string","contentEncoding":"base64"}`},
		{"byte array", schemaOf[[2]byte](nil), `{"type":"array","minItems":2,"maxItems":2,"items":{"type":"integer","minimum":0,"maximum":255}}`},
		{"time", schemaOf[time.Time](nil), `{"type":"string","format":"date-time"}`},
		{"duration", schemaOf[time.Duration](nil), `{"type":"integer"}`},
		{"slice", schemaOf[[]string](nil), `{"type":"array","items":{"type":"string"}}`},
		{"slice of any", schemaOf[[]any](nil), `{"type":"array","items":{}}`},
		{"slice of pointers", schemaOf[[]*int](nil), `{"type":"array","items":{"type":["integer","null"]}}`},
		{"map", schemaOf[map[string]int](nil), `{"type":"object","additionalProperties":{"type":"integer"}}`},
		{"map of any", schemaOf[map[string]any](nil), `{"type":"object"}`},
		{"map by int", schemaOf[map[int]bool](nil), `{"type":"object","propertyNames":{"pattern":"^(0|-?[1-9][0-9]*)$"},"additionalProperties":{"type":"boolean"}}`},
		{"map by text", schemaOf[map[hex]bool](nil), `{"type":"object","additionalProperties":{"type":"boolean"}}`},
		{"text", schemaOf[netip.Addr](nil), `{"type":"string"}`},
		{"json", schemaOf[paint](nil), `{}`},
		{"enum", schemaOf[level](nil), `{"type":"string","enum":["low","high"]}`},
		{"enum of numbers", schemaOf[[]weight](nil), `{"type":"array","items":{"type":"integer","enum":[1,2,500]}}`},
		{"own", schemaOf[celsius](nil), `{"type":"number","minimum":-273.15}`},
		{"struct", schemaOf[point](nil), `{"type":"object","properties":{"x":{"type":"integer"},"y":{"type":"integer"}},"required":["x","y"],"additionalProperties":false}`},
		{"pointer", schemaOf[*point](nil), schemaOf[point](nil)},
		{"empty struct", schemaOf[struct{}](nil), `{"type":"object","properties":{},"additionalProperties":false}`},
		{"type of another package", schemaOf[struct{ A []netip.Addr }](foreignTypes), `{"type":"object","properties":{"A":{"type":"array","items":{"type":"string","format":"ipv4"}}},"required":["A"],"additionalProperties":false}`},
		{"own, replaced", schemaOf[celsius](&schema.Options{Types: map[reflect.Type]json.RawMessage{reflect.TypeFor[celsius](): json.RawMessage(`{"minimum":0}`)}}), `{"minimum":0}`},
		{"known, replaced", schemaOf[time.Time](&schema.Options{Types: map[reflect.Type]json.RawMessage{reflect.TypeFor[time.Time](): json.RawMessage(`{"type":"string","maxLength":20}`)}}), `{"type":"string","maxLength":20}`},
		{"annotations", schemaOf[struct {
			A string `json:"a" schema:"examples=x|'y|z',deprecated"`
			B *int   `json:"b" schema:"examples=1|2,x-mcp-header=Level"`
			C []int  `json:"c" schema:"examples='[1,2]'"`
		}](nil), `{"type":"object","properties":{"a":{"type":"string","examples":["x","y|z"],"deprecated":true},"b":{"type":["integer","null"],"examples":[1,2],"x-mcp-header":"Level"},` +
			`"c":{"type":"array","items":{"type":"integer"},"examples":[[1,2]]}},"required":["a","c"],"additionalProperties":false}`},
		{"unknown allowed", schemaOf[struct{ A int }](&schema.Options{AllowUnknown: true}), `{"type":"object","properties":{"A":{"type":"integer"}},"required":["A"]}`},
		{"optional", schemaOf[struct {
			A int     `json:"a,omitempty"`
			B int     `json:"b,omitzero"`
			C *int    `json:"c"`
			D int     `json:"d" schema:"default=7"`
			E int     `json:"e" schema:"optional"`
			F *string `json:"f" schema:"required,minLength=1"`
		}](nil), `{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"},"c":{"type":["integer","null"]},` +
			`"d":{"type":"integer","default":7},"e":{"type":"integer"},"f":{"type":["string","null"],"minLength":1}},"required":["f"],"additionalProperties":false}`},
		{"embedded", schemaOf[derived](nil), `{"type":"object","properties":{"id":{"type":"integer"},"deep":{"type":"boolean"},"name":{"type":"string"}},"required":["id","name"],"additionalProperties":false}`},
		{"tags", schemaOf[struct {
			N int               `json:"n" jsonschema:"how \"many\"" schema:"minimum=1,maximum=10,multipleOf=1,title=Count,default=5"`
			I uint8             `json:"i" schema:"exclusiveMinimum=2"`
			F float64           `json:"f" schema:"minimum=-1.5,exclusiveMaximum=1e3"`
			S string            `json:"s" schema:"minLength=1,maxLength=80,pattern='^a{1,3},''x''$',format=uri"`
			E string            `json:"e" schema:"enum=a|'b|c,d'|,default=a"`
			P *string           `json:"p" schema:"enum=a"`
			L []string          `json:"l" schema:"minItems=1,maxItems=3,uniqueItems,items.enum=x|y"`
			M map[string]int    `json:"m" schema:"minProperties=1,values.minimum=0"`
			W []weight          `json:"w" schema:"items.enum=2"`
			D map[string]string `json:"d" schema:"default='{\"a\": \"b\"}'"`
		}](nil), `{"type":"object","properties":{` +
			`"n":{"type":"integer","minimum":1,"maximum":10,"multipleOf":1,"description":"how \"many\"","title":"Count","default":5},` +
			`"i":{"type":"integer","maximum":255,"exclusiveMinimum":2},` +
			`"f":{"type":"number","minimum":-1.5,"exclusiveMaximum":1e3},` +
			`"s":{"type":"string","minLength":1,"maxLength":80,"pattern":"^a{1,3},'x'$","format":"uri"},` +
			`"e":{"type":"string","enum":["a","b|c,d",""],"default":"a"},` +
			`"p":{"type":["string","null"],"enum":["a",null]},` +
			`"l":{"type":"array","minItems":1,"maxItems":3,"uniqueItems":true,"items":{"type":"string","enum":["x","y"]}},` +
			`"m":{"type":"object","minProperties":1,"additionalProperties":{"type":"integer","minimum":0}},` +
			`"w":{"type":"array","items":{"type":"integer","enum":[2]}},` +
			`"d":{"type":"object","additionalProperties":{"type":"string"},"default":{"a":"b"}}},` +
			`"required":["i","f","s","l","m","w"],"additionalProperties":false}`},
		{"custom schema inside", schemaOf[struct {
			A celsius  `json:"a"`
			B *celsius `json:"b"`
			C celsius  `json:"c" jsonschema:"hot"`
		}](nil), `{"type":"object","properties":{"a":{"type":"number","minimum":-273.15},"b":{"anyOf":[{"type":"number","minimum":-273.15},{"type":"null"}]},` +
			`"c":{"allOf":[{"type":"number","minimum":-273.15}],"description":"hot"}},"required":["a","c"],"additionalProperties":false}`},
		{"recursive root", schemaOf[node](nil), `{"type":"object","properties":{"value":{"type":"integer"},"kids":{"type":"array","items":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},` +
			`"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["value"],"additionalProperties":false}`},
		{"recursive inside", schemaOf[struct {
			N node `json:"n" jsonschema:"first"`
		}](nil), `{"type":"object","properties":{"n":{"$ref":"#/$defs/node","description":"first"}},"required":["n"],"additionalProperties":false,` +
			`"$defs":{"node":{"type":"object","properties":{"value":{"type":"integer"},"kids":{"type":"array","items":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},` +
			`"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["value"],"additionalProperties":false}}}`},
		{"recursive slice", schemaOf[trees](nil), `{"type":"array","items":{"$ref":"#/$defs/tree"},"$defs":{"tree":{"type":"object","properties":{"kids":{"type":"array","maxItems":2,"items":{"$ref":"#/$defs/tree"}}},` +
			`"required":["kids"],"additionalProperties":false}}}`},
		{"recursive map", schemaOf[ring](nil), `{"type":"object","additionalProperties":{"$ref":"#"}}`},
	} {
		if c.got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, c.got, c.want)
		}
		if strings.HasPrefix(c.got, "error") {
			continue
		}
		if _, err := schema.Compile([]byte(c.got), nil); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

type (
	w0 struct{ A, B, C, D, E, F string }
	w1 struct{ A, B, C w0 }
	w2 struct{ A, B, C w1 }
	w3 struct{ A, B, C w2 }
	w4 struct{ A, B, C w3 }
)

// TestOfSize shows that a schema grows with the number of types, not with the number of paths
// through them.
func TestOfSize(t *testing.T) {
	text := schemaOf[w4](nil)
	if len(text) > 5000 {
		t.Errorf("%d bytes", len(text))
	}
	for _, def := range []string{`"w1":`, `"w3":`, `"$ref":"#/$defs/w3"`} {
		if !strings.Contains(text, def) {
			t.Errorf("no %s in %s", def, text)
		}
	}
	if _, err := schema.Compile([]byte(text), nil); err != nil {
		t.Error(err)
	}
}

type (
	badSchema struct{}
	refSchema struct{}
	badEnum   bool
	loop      *loop
)

func (badSchema) JSONSchema() []byte     { return []byte(`{"type":"nonsense"}`) }
func (refSchema) JSONSchema() []byte     { return []byte(`{"$ref":"#/$defs/a","$defs":{"a":{}}}`) }
func (badEnum) JSONSchemaEnum() []string { return []string{"true"} }

func TestOfErrors(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{schemaOf[chan int](nil), `schema: type chan int has no JSON form`},
		{schemaOf[struct {
			F int `jsonschema:"how many, minimum=1"`
		}](nil), `schema: type struct { F int "jsonschema:\"how many, minimum=1\"" }: field F: tag jsonschema:"how many, minimum=1": all of it is the description, so it must not contain minimum=; keywords are in the tag schema`},
		{schemaOf[struct{ F func() }](nil), `schema: type struct { F func() }: field F: type func() has no JSON form`},
		{schemaOf[map[string][]complex128](nil), `schema: type complex128 has no JSON form`},
		{schemaOf[fmt.Stringer](nil), `schema: type fmt.Stringer: values of an interface with methods cannot be decoded`},
		{schemaOf[map[float64]int](nil), `schema: type map[float64]int: a map key is a string, an integer or has both MarshalText and UnmarshalText`},
		{schemaOf[loop](nil), `schema: type schema_test.loop: too many pointers to pointers`},
		{schemaOf[badSchema](nil), `schema: type schema_test.badSchema: JSONSchema: schema: #: type: unknown type "nonsense"; known are "null", "boolean", "object", "array", "string", "number", "integer"`},
		{schemaOf[[]refSchema](nil), `schema: type schema_test.refSchema: JSONSchema: "$ref" cannot be used below the root of a schema`},
		{schemaOf[badEnum](nil), `schema: type schema_test.badEnum: JSONSchemaEnum: is for strings and numbers, not for schema_test.badEnum`},
		{schemaOf[struct {
			point `schema:"optional"`
		}](nil), "schema: type struct { schema_test.point \"schema:\\\"optional\\\"\" }: field point: a schema tag on an embedded struct applies to nothing"},
		{schemaOf[struct{ *base }](nil), `schema: type struct { *schema_test.base }: field base: cannot fill an embedded pointer to the unexported struct schema_test.base`},
		{schemaOf[struct {
			A int `json:"a,string"`
		}](nil), `schema: type struct { A int "json:\"a,string\"" }: field A: the json option "string" is not supported: the schema would require a string where models send a number`},
	} {
		if want := "error: " + c.want; c.got != want {
			t.Errorf("\n got %s\nwant %s", c.got, want)
		}
	}
}

// tagError returns the end of the error for a field with the tag.
func tagError(text string) string {
	_, after, _ := strings.Cut(text, "tag schema:\"")
	_, after, _ = strings.Cut(after, "\": ")
	return after
}

// foreignTypes has a schema for a type that has no method JSONSchema.
var foreignTypes = &schema.Options{Types: map[reflect.Type]json.RawMessage{
	reflect.TypeFor[netip.Addr](): json.RawMessage(`{"type":"string","format":"ipv4"}`),
}}

func TestTagErrors(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{schemaOf[struct {
			F int `schema:"minimum=x"`
		}](nil), `minimum: wants a number, got "x"`},
		{schemaOf[struct {
			F int `schema:"minimum=01"`
		}](nil), `minimum: wants a number, got "01"`},
		{schemaOf[struct {
			F int `schema:"minimum"`
		}](nil), `minimum: has no value`},
		{schemaOf[struct {
			F int `schema:"examples"`
		}](nil), `examples: has no value`},
		{schemaOf[struct {
			F int `schema:"x-mcp-header"`
		}](nil), `x-mcp-header: has no value`},
		{schemaOf[struct {
			F int `schema:"depreciated"`
		}](nil), `depreciated: unknown keyword; known are minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf, minLength, maxLength, pattern, format, minItems, maxItems, uniqueItems, minProperties, maxProperties, enum, default, examples, title, deprecated, x-mcp-header, required, optional, items.* and values.*`},
		{schemaOf[struct {
			F int `schema:"deprecated=no"`
		}](nil), `deprecated: takes no value`},
		{schemaOf[struct {
			F int `schema:"examples=1|x"`
		}](nil), `examples: "x" is not JSON: invalid JSON at byte 0: unexpected 'x', want a value`},
		{schemaOf[struct {
			F string `schema:"minimum=1"`
		}](nil), `minimum: is for numbers, not for string`},
		{schemaOf[struct {
			F int `schema:"minLength=1"`
		}](nil), `minLength: is for strings, not for int`},
		{schemaOf[struct {
			F []byte `schema:"minLength=1"`
		}](nil), `minLength: is for strings, not for []uint8`},
		{schemaOf[struct {
			F string `schema:"minLength=-1"`
		}](nil), `minLength: wants a whole number of 0 or more, got "-1"`},
		{schemaOf[struct {
			F string `schema:"minLength=3,maxLength=2"`
		}](nil), `maxLength: the minimum 3 is greater than the maximum 2`},
		{schemaOf[struct {
			F string `schema:"pattern=("`
		}](nil), "pattern: error parsing regexp: missing closing ): `(`"},
		{schemaOf[struct {
			F int8 `schema:"maximum=300"`
		}](nil), `maximum: 300 is outside the range of int8, -128 to 127`},
		{schemaOf[struct {
			F uint `schema:"minimum=-1"`
		}](nil), `minimum: -1 is outside the range of uint, 0 to 18446744073709551615`},
		{schemaOf[struct {
			F int `schema:"minimum=5,maximum=4"`
		}](nil), `maximum: minimum and maximum exclude every value`},
		{schemaOf[struct {
			F float64 `schema:"multipleOf=0"`
		}](nil), `multipleOf: wants a number greater than 0, got 0`},
		{schemaOf[struct {
			F int `schema:"enum=1|x"`
		}](nil), `enum: "x" is not an integer`},
		{schemaOf[struct {
			F int8 `schema:"enum=1|1000"`
		}](nil), `enum: 1000 is outside the range of int8, -128 to 127`},
		{schemaOf[struct {
			F string `schema:"enum=a|b|a"`
		}](nil), `enum: "a" is listed twice`},
		{schemaOf[struct {
			F bool `schema:"enum=true"`
		}](nil), `enum: is for strings and numbers, not for bool`},
		{schemaOf[struct {
			F []int `schema:"minItems=1,minItems=2"`
		}](nil), `minItems appears twice`},
		{schemaOf[struct {
			F [2]int `schema:"minItems=1"`
		}](nil), `minItems: the length of [2]int is fixed`},
		{schemaOf[struct {
			F []int `schema:"items.minLength=1"`
		}](nil), `items.minLength: is for strings, not for int`},
		{schemaOf[struct {
			F int `schema:"items.minimum=1"`
		}](nil), "items.minimum: unknown keyword; known are minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf, minLength, maxLength, pattern, format, minItems, maxItems, uniqueItems, minProperties, maxProperties, enum, default, examples, title, deprecated, x-mcp-header, required, optional, items.* and values.*"},
		{schemaOf[struct {
			F point `schema:"minProperties=1"`
		}](nil), `minProperties: is for maps, not for schema_test.point`},
		{schemaOf[struct {
			F celsius `schema:"minimum=1"`
		}](nil), `minimum: the type has its own schema`},
		{schemaOf[struct {
			F []int `schema:"uniqueItems=no"`
		}](nil), `uniqueItems: takes no value`},
		{schemaOf[struct {
			F int `schema:"minimum=1,,"`
		}](nil), `empty keyword`},
		{schemaOf[struct {
			F string `schema:"pattern='x"`
		}](nil), `pattern: missing closing quote`},
		{schemaOf[struct {
			F string `schema:"pattern='x'y"`
		}](nil), `pattern: unexpected "y" after the closing quote`},
		{schemaOf[struct {
			F int `json:"f,omitempty" schema:"required"`
		}](nil), `required contradicts omitempty and omitzero`},
		{schemaOf[struct {
			F int `schema:"required,default=1"`
		}](nil), `required contradicts optional and default`},
		{schemaOf[struct {
			F int `schema:"default=x"`
		}](nil), `default: "x" is not JSON: invalid JSON at byte 0: unexpected 'x', want a value`},
		{schemaOf[struct {
			F int `schema:"maximum=4,default=5"`
		}](nil), `error: schema: default of F: expected integer of at most 4, got 5`},
		{schemaOf[struct {
			F point `schema:"default={}"`
		}](nil), `error: schema: default of F: missing required property "x"; default of F: missing required property "y"`},
	} {
		got := tagError(c.got)
		if strings.HasPrefix(c.want, "error: ") {
			got = c.got
		}
		if got != c.want {
			t.Errorf("\n got %s\nfrom %s\nwant %s", got, c.got, c.want)
		}
	}
}

func TestIsObject(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want bool
	}{
		{"struct", of[point](t, nil).IsObject(), true},
		{"pointer", of[*node](t, nil).IsObject(), true},
		{"map", of[map[string]any](t, nil).IsObject(), true},
		{"own", of[nameRange](t, nil).IsObject(), true},
		{"any", of[any](t, nil).IsObject(), false},
		{"string", of[string](t, nil).IsObject(), false},
		{"slice", of[[]point](t, nil).IsObject(), false},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, c.got, c.want)
		}
	}
}

// sealed has a schema that only a full engine supports.
type sealed struct {
	A int `json:"a,omitempty"`
	B int `json:"b,omitempty"`
}

func (sealed) JSONSchema() []byte {
	return []byte(`{"type":"object","allOf":[{"properties":{"a":{"type":"integer"}}}],"unevaluatedProperties":false}`)
}

// letter has more values than are compared one by one.
type letter string

func (letter) JSONSchemaEnum() []string { return strings.Split("abcdefghijklmnopqrstuvwxyz", "") }

// mood embeds an enum, and is not an enum itself.
type mood struct {
	level
	Text string `json:"text"`
}

func TestEngineOption(t *testing.T) {
	if got, want := schemaOf[sealed](nil), `error: schema: type schema_test.sealed: JSONSchema: schema: #: unevaluatedProperties: this keyword is not supported by the compiler; `+
		`compile with a full engine (package schema/fullschema) or write the schema without it`; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	opts := &schema.Options{Engine: fullschema.Engine}
	if diff := cmp.Diff([]sealed{{A: 1}}, decode[[]sealed](t, `[{"a":1}]`, opts)); diff != "" {
		t.Error(diff)
	}
	if got, want := decode[[]sealed](t, `[{"b":1}]`, opts), any(`arguments[0]: .b: false schema`); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := appended(t, sealed{B: 1}, opts), `error: result: .b: false schema`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestManyValues(t *testing.T) {
	if got, want := decode[[]letter](t, `["z","\u0061"]`, nil), any([]letter{"z", "a"}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	list := `"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t", ... (26 in all)`
	if got, want := decode[letter](t, `"aa"`, nil), any(`arguments: expected one of `+list+`, got string "aa"`); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := appended(t, letter("m"), nil), `"m"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := appended(t, letter(""), nil), `error: result: expected one of `+list+`, got string ""`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestEmbeddedEnum(t *testing.T) {
	if got, want := decode[mood](t, `{"text":"x"}`, nil), any(mood{Text: "x"}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestManyMembers checks more members than the bit sets on the stack hold.
func TestManyMembers(t *testing.T) {
	const n = 300
	var members, props []string
	for i := range n {
		members = append(members, fmt.Sprintf(`"F%d":%d`, n-1-i, n-1-i))
		props = append(props, fmt.Sprintf(`"F%d":{"type":"integer"}`, i))
	}
	v, err := schema.Compile([]byte(`{"properties":{`+strings.Join(props, ",")+`},"required":["F299","F0"],"additionalProperties":false}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Validate([]byte("{" + strings.Join(members, ",") + "}")); err != nil {
		t.Error(err)
	}
	if got, want := errText(v.Validate([]byte("{"+strings.Join(members[1:], ",")+"}"))), `arguments: missing required property "F299"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestConcurrent uses one plan from several goroutines, including types that it learns of only
// while encoding.
func TestConcurrent(t *testing.T) {
	typed := of[any](t, nil)
	v, err := schema.Compile([]byte(`{"items":{"properties":{"x":{"pattern":"^1"},"y":{"enum":[1,2]}},"uniqueItems":true}}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				in := any([]any{point{1, 2}, &node{Value: 3}, []level{"low"}, map[hex]any{1: point{}}})
				out, err := typed.Append(nil, &in)
				if err == nil {
					err = v.Validate(out)
				}
				var back any
				if err == nil {
					err = typed.Decode(out, &back)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
