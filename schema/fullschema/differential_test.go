package fullschema

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// A generator makes random schemas and instances that are likely to match.
type generator struct {
	*rand.Rand
	draft draft
}

var names = []string{"a", "b", "ab", "a/b", "~"}

func (g generator) pick(list ...any) any { return list[g.IntN(len(list))] }
func (g generator) name() string         { return names[g.IntN(len(names))] }

func (g generator) list(n int, element func() any) []any {
	list := []any{}
	for range n {
		list = append(list, element())
	}
	return list
}

func (g generator) object(n int, value func() any) map[string]any {
	object := map[string]any{}
	for range n {
		object[g.name()] = value()
	}
	return object
}

func (g generator) instance(depth int) any {
	kinds := 8
	if depth == 0 {
		kinds = 6
	}
	switch g.IntN(kinds) {
	case 0:
		return g.pick(nil, true, false)
	case 1, 2:
		return g.pick(0, 1, 2, 1.5, -1, 3.0, json.Number("1.0"), json.Number("1e1"))
	case 3, 4:
		return g.pick("", "a", "ab", "äö", "2020-01-01", "x y")
	case 5, 6:
		return g.object(g.IntN(4), func() any { return g.instance(max(depth-1, 0)) })
	}
	return g.list(g.IntN(4), func() any { return g.instance(depth - 1) })
}

func (g generator) schema(depth int) any {
	if depth == 0 || g.IntN(8) == 0 {
		if g.draft == draft4 {
			return map[string]any{"type": g.pick("string", "integer", "number", "null", "boolean", "array", "object")}
		}
		return g.pick(true, true, false, map[string]any{"type": g.pick("string", "integer", "number", "null", "boolean", "array", "object")})
	}
	s := map[string]any{}
	for range 1 + g.IntN(3) {
		name, value := g.keyword(depth - 1)
		s[name] = value
	}
	if _, ok := s["$ref"]; ok && g.draft.refReplaces() {
		for _, name := range []string{"const", "contains", "propertyNames", "if"} {
			delete(s, name) // the library does not ignore them
		}
	}
	return s
}

// keyword returns a member of a schema. Drafts without the keyword ignore it.
func (g generator) keyword(depth int) (string, any) {
	sub := func() any { return g.schema(depth) }
	count := func() any { return g.IntN(4) }
	number := func() any { return g.pick(0, 1, 2, 1.5) }
	texts := func() any { return g.list(1, func() any { return g.name() }) }
	instance := func() any { return g.instance(2) }
	list := func() any { return g.list(1+g.IntN(2), sub) }
	object := func() any { return g.object(1+g.IntN(2), sub) }
	exclusive := number
	if g.draft == draft4 {
		exclusive = func() any { return g.IntN(2) == 0 }
	}
	type keyword struct {
		name  string
		value func() any
	}
	keywords := []keyword{
		{"type", func() any {
			return g.pick("string", "integer", "number", "array", "object", []any{"null", "integer", "object"})
		}},
		{"enum", func() any { return []any{g.instance(1), "unlikely"} }},
		{"minimum", number}, {"maximum", number}, {"exclusiveMinimum", exclusive}, {"exclusiveMaximum", exclusive},
		{"multipleOf", func() any { return g.pick(1, 2, 0.5) }},
		{"minLength", count}, {"maxLength", count}, {"pattern", func() any { return g.pick("^a", "b$", "^$") }},
		{"format", func() any { return g.pick("date", "uri", "email") }},
		{"minItems", count}, {"maxItems", count}, {"uniqueItems", func() any { return true }},
		{"minProperties", count}, {"maxProperties", count}, {"required", texts},
		{"properties", object}, {"properties", object}, {"additionalProperties", sub},
		{"patternProperties", func() any { return map[string]any{"^a": g.schema(depth)} }},
		{"items", sub}, {"additionalItems", sub},
		{"dependencies", func() any { return map[string]any{g.name(): g.pick(texts(), g.schema(depth))} }},
		{"not", sub}, {"allOf", list}, {"anyOf", list}, {"oneOf", list},
		{"$ref", func() any { return g.pick("#/definitions/x", "#", "#/definitions/y", "#x") }},
	}
	if g.draft < draft2020 {
		keywords = append(keywords, keyword{"items", list})
	}
	if g.draft >= draft6 {
		keywords = append(keywords, []keyword{
			{"const", instance}, {"contains", sub}, {"propertyNames", sub}, {"if", sub}, {"then", sub}, {"else", sub},
		}...)
	}
	if g.draft >= draft2019 {
		keywords = append(keywords, []keyword{
			{"minContains", count}, {"maxContains", count}, {"dependentRequired", func() any { return map[string]any{g.name(): texts()} }},
			{"dependentSchemas", object}, {"unevaluatedItems", sub}, {"unevaluatedItems", sub}, {"unevaluatedProperties", sub}, {"unevaluatedProperties", sub},
		}...)
	}
	switch g.draft {
	case draft2019:
		keywords = append(keywords, keyword{"$recursiveRef", func() any { return "#" }})
	case draft2020:
		keywords = append(keywords, keyword{"$dynamicRef", func() any { return g.pick("#x", "#/definitions/x") }}, keyword{"prefixItems", list})
	}
	k := keywords[g.IntN(len(keywords))]
	return k.name, k.value()
}

// document returns a schema with definitions.
func (g generator) document(url string) any {
	s, ok := g.schema(4).(map[string]any)
	if !ok {
		s = map[string]any{}
	}
	if g.draft <= draft7 {
		delete(s, "$ref") // would replace the definitions
	}
	define := func(extra map[string]any) any {
		x, ok := g.schema(2).(map[string]any)
		if !ok {
			x = map[string]any{}
		}
		if g.draft.refReplaces() {
			delete(x, "$ref") // would replace the anchor
		}
		for name, value := range extra {
			x[name] = value
		}
		return x
	}
	anchor := map[string]any{g.draft.idKeyword(): "#x"}
	if g.draft >= draft2019 {
		anchor = map[string]any{"$anchor": "x"}
	}
	if g.draft >= draft2020 && g.IntN(2) == 0 {
		anchor = map[string]any{"$dynamicAnchor": "x"}
	}
	s["$schema"] = url
	inner := map[string]any{}
	if g.draft >= draft2019 {
		inner = map[string]any{g.draft.idKeyword(): "http://example.com/y", "definitions": map[string]any{"x": define(anchor)}}
		if g.draft == draft2019 {
			inner["$recursiveAnchor"] = g.IntN(2) == 0
			s["$recursiveAnchor"] = g.IntN(2) == 0
		}
	}
	s["definitions"] = map[string]any{"x": define(anchor), "y": define(inner)}
	return s
}

// TestDifferential compares this package with a library that passes the official test suite.
func TestDifferential(t *testing.T) {
	for url, d := range map[string]draft{
		"http://json-schema.org/draft-04/schema#": draft4, "http://json-schema.org/draft-06/schema#": draft6, "http://json-schema.org/draft-07/schema#": draft7,
		"https://json-schema.org/draft/2019-09/schema": draft2019, "https://json-schema.org/draft/2020-12/schema": draft2020,
	} {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			t.Parallel()
			g := generator{rand.New(rand.NewPCG(1, uint64(d))), d}
			compiled, valid, invalid := 0, 0, 0
			for range rounds {
				text, err := json.Marshal(g.document(url))
				if err != nil {
					t.Fatal(err)
				}
				other, otherErr := oracle{}.compile(text)
				validate, err := Engine(text)
				if (err == nil) != (otherErr == nil) {
					t.Fatalf("%s\ngot %v, the library says %v", text, err, otherErr)
				}
				if err != nil {
					continue
				}
				compiled++
				for range 4 {
					instance, err := json.Marshal(g.instance(3))
					if err != nil {
						t.Fatal(err)
					}
					err = validate(instance)
					want := other(instance)
					if want != nil && strings.Contains(want.Error(), "reference cycle") {
						continue // also for names of properties, which are not the same value
					}
					if (err == nil) != (want == nil) {
						t.Fatalf("%s\n%s\ngot %v, the library says %v", text, instance, err, want)
					}
					if err == nil {
						valid++
					} else {
						invalid++
					}
				}
			}
			if compiled < rounds/4 || valid < rounds/4 || invalid < rounds/4 {
				t.Errorf("too few: %d compiled, %d valid and %d invalid instances", compiled, valid, invalid)
			}
		})
	}
}

// rounds is the number of schemas of each draft.
const rounds = 1000
