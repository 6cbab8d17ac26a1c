package schema_test

import (
	"fmt"
	"strings"
)

// entropy makes choices from the bytes of a fuzz input, so that every input determines one schema
// and one instance, and small changes of the input cause small changes of both.
type entropy struct {
	data []byte
}

// pick returns a number from 0 to n-1, or 0 when the input is used up.
func (e *entropy) pick(n int) int {
	if len(e.data) == 0 {
		return 0
	}
	b := e.data[0]
	e.data = e.data[1:]
	return int(b) % n
}

func (e *entropy) of(choices ...string) string { return choices[e.pick(len(choices))] }

// list joins up to n values of f.
func (e *entropy) list(n int, each func(i int) string) string {
	var parts []string
	for i := range e.pick(n + 1) {
		parts = append(parts, each(i))
	}
	return strings.Join(parts, ",")
}

func (e *entropy) name() string {
	return e.of(`"a"`, `"b"`, `"c"`, `"ab"`, `"long name"`, `"\u0061"`, `""`, `"é"`)
}

func (e *entropy) number() string {
	return e.of("0", "1", "-1", "2", "3", "1.0", "1e0", "0.5", "1.5", "-0", "10", "1e2", "100", "0.1", "0.3",
		"9007199254740993", "9007199254740992", "18446744073709551615", "1e30", "-2.50", "1e-3", "123456789012345678901234567890")
}

func (e *entropy) str() string {
	return e.of(`"a"`, `""`, `"ab"`, `"abc"`, `"é"`, `"\ud83d\ude00"`, `"\ud83d"`, `"a\nb"`, `"\u0061b"`, `"1"`, `"long enough to matter"`)
}

func (e *entropy) instance(depth int) string {
	kinds := 8
	if depth <= 0 {
		kinds = 6
	}
	switch e.pick(kinds) {
	case 0:
		return e.str()
	case 1, 2:
		return e.number()
	case 3:
		return e.of("true", "false")
	case 4:
		return "null"
	case 5:
		return e.of("[]", "{}", "[1]", `{"a":1}`)
	case 6:
		return "[" + e.list(4, func(int) string { return e.instance(depth - 1) }) + "]"
	default:
		seen := map[string]bool{}
		return "{" + e.list(4, func(i int) string {
			name := e.name()
			plain := strings.ReplaceAll(name, `\u0061`, "a")
			if seen[plain] {
				name = fmt.Sprintf(`"n%d"`, i)
			}
			seen[plain] = true
			return name + ": " + e.instance(depth-1)
		}) + " }"
	}
}

func (e *entropy) schema(depth int) string {
	if depth <= 0 {
		return e.of("true", "{}", "false", `{"type":"string"}`, `{"type":"integer"}`, `{"type":["number","null"]}`, `{"const":1}`)
	}
	seen := map[string]bool{}
	return "{" + e.list(4, func(i int) string {
		name, value := e.keyword(depth - 1)
		if seen[name] {
			name, value = fmt.Sprintf("x%d", i), "1"
		}
		seen[name] = true
		return `"` + name + `": ` + value
	}) + "}"
}

func (e *entropy) schemas(depth int) string {
	return "[" + e.schema(depth) + "," + e.list(2, func(int) string { return e.schema(depth) }) + "]"
}

// distinct returns a list of distinct texts.
func (e *entropy) distinct(n int, each func() string) string {
	seen := map[string]bool{}
	var parts []string
	for range e.pick(n + 1) {
		if t := each(); !seen[t] {
			seen[t] = true
			parts = append(parts, t)
		}
	}
	return strings.Join(parts, ",")
}

func (e *entropy) names() string {
	return "[" + e.distinct(2, func() string { return e.of(`"a"`, `"b"`, `"c"`, `"é"`) }) + "]"
}

func (e *entropy) schemaMap(depth int, names ...string) string {
	var parts []string
	for _, name := range names {
		if e.pick(2) == 0 {
			parts = append(parts, name+":"+e.schema(depth))
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func (e *entropy) keyword(depth int) (name, value string) {
	names := []string{
		"type", "enum", "const", "properties", "required", "additionalProperties", "patternProperties", "propertyNames",
		"minProperties", "maxProperties", "dependentRequired", "dependentSchemas", "items", "prefixItems", "contains",
		"minContains", "maxContains", "minItems", "maxItems", "uniqueItems", "minimum", "maximum", "exclusiveMinimum",
		"exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern", "allOf", "anyOf", "oneOf", "not", "if",
		"then", "else", "$ref", "$defs", "format", "title",
	}
	name = names[e.pick(len(names))]
	switch name {
	case "type":
		if e.pick(3) == 0 {
			return name, `["integer",` + e.of(`"null"`, `"string"`, `"array"`) + "]"
		}
		return name, e.of(`"object"`, `"array"`, `"string"`, `"number"`, `"integer"`, `"boolean"`, `"null"`)
	case "enum":
		return name, "[" + e.instance(1) + "," + e.list(15, func(int) string { return e.instance(1) }) + "]"
	case "const":
		return name, e.instance(2)
	case "properties", "dependentSchemas":
		return name, e.schemaMap(depth, `"a"`, `"b"`, `"c"`, `"é"`)
	case "$defs":
		return name, e.schemaMap(depth, `"d"`, `"e"`)
	case "patternProperties":
		return name, e.schemaMap(depth, `"^a"`, `"b$"`, `"."`)
	case "required":
		return name, e.names()
	case "dependentRequired":
		return name, `{"a":` + e.names() + `,"b":` + e.names() + "}"
	case "additionalProperties", "propertyNames", "items", "contains", "not", "if", "then", "else":
		return name, e.schema(depth)
	case "prefixItems", "allOf", "anyOf", "oneOf":
		return name, e.schemas(depth)
	case "uniqueItems":
		return name, e.of("true", "false")
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum":
		return name, e.number()
	case "multipleOf":
		return name, e.of("1", "2", "0.1", "0.5", "1.0", "3", "1e2", "0.01", "12345678901234567890123")
	case "pattern":
		return name, e.of(`"a"`, `"^a"`, `"^.$"`, `"^\\w+$"`, `"[0-9]"`, `"^\\u0061"`)
	case "$ref":
		return name, e.of(`"#"`, `"#/$defs/d"`, `"#/properties/a"`)
	case "format":
		return name, `"date"`
	case "title":
		return name, `"t"`
	}
	return name, e.of("0", "1", "2", "3", "1.0") // a size
}
