package schemadiff

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"reflect"
	"slices"
	"strings"
)

func isAnnotation(keyword string) bool {
	switch keyword {
	case "title", "description", "default", "examples", "deprecated", "$comment", "$schema", "$id", "readOnly", "writeOnly":
		return true
	}
	return false
}

// annotations compares what people and models read.
func (c *comparer) annotations(at string, a, b map[string]any) {
	for _, k := range unionKeys(a, b) {
		if isAnnotation(k) && !reflect.DeepEqual(a[k], b[k]) {
			c.add(childPointer(at, k), Annotations, "the %s is another one", k)
		}
	}
}

// allTypes are those of JSON Schema. An integer is a number, too.
var allTypes = []string{"array", "boolean", "integer", "null", "number", "object", "string"}

// types compares which types are allowed.
func (c *comparer) types(at string, a, b map[string]any) {
	x, y := typesOf(a), typesOf(b)
	if removed := difference(x, y); len(removed) > 0 {
		c.narrowed(childPointer(at, "type"), "%s is not allowed any more", strings.Join(removed, ", "))
	}
	if added := difference(y, x); len(added) > 0 {
		c.widened(childPointer(at, "type"), "%s is allowed now", strings.Join(added, ", "))
	}
}

func typesOf(m map[string]any) []string {
	var list []string
	switch t := m["type"].(type) {
	case string:
		list = []string{t}
	case []any:
		for _, v := range t {
			if s, ok := v.(string); ok {
				list = append(list, s)
			}
		}
	default:
		return allTypes
	}
	if slices.Contains(list, "number") && !slices.Contains(list, "integer") {
		list = append(list, "integer")
	}
	return list
}

func difference(list, other []string) (rest []string) {
	has := make(map[string]bool, len(other))
	for _, s := range other {
		has[s] = true
	}
	for _, s := range list {
		if !has[s] {
			rest = append(rest, s)
		}
	}
	return rest
}

// values compares enumerations.
func (c *comparer) values(at string, a, b map[string]any) {
	x, xok := valuesOf(a)
	y, yok := valuesOf(b)
	at = childPointer(at, "enum")
	switch {
	case !xok && !yok:
	case !xok:
		c.narrowed(at, "only %s are allowed now", clip(strings.Join(y, ", ")))
	case !yok:
		c.widened(at, "anything is allowed where only %s were", clip(strings.Join(x, ", ")))
	default:
		if removed := difference(x, y); len(removed) > 0 {
			c.narrowed(at, "%s is not allowed any more", clip(strings.Join(removed, ", ")))
		}
		if added := difference(y, x); len(added) > 0 {
			c.widened(at, "%s is allowed now", clip(strings.Join(added, ", ")))
		}
	}
}

func valuesOf(m map[string]any) ([]string, bool) {
	list, ok := m["enum"].([]any)
	if v, is := m["const"]; is {
		list, ok = []any{v}, true
	}
	if !ok {
		return nil, false
	}
	texts := make([]string, 0, len(list))
	for _, v := range list {
		text, _ := json.Marshal(v)
		texts = append(texts, string(text))
	}
	return texts, true
}

// bounds compares limits on numbers, lengths and counts.
func (c *comparer) bounds(at string, a, b map[string]any) {
	for _, k := range []string{"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains"} {
		c.bound(at, k, a[k], b[k], 1)
	}
	for _, k := range []string{"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains"} {
		c.bound(at, k, a[k], b[k], -1)
	}
	if x, y := a["uniqueItems"] == true, b["uniqueItems"] == true; x != y {
		if y {
			c.narrowed(childPointer(at, "uniqueItems"), "no item may come twice now")
		} else {
			c.widened(childPointer(at, "uniqueItems"), "items may come twice now")
		}
	}
	for _, k := range []string{"pattern", "format", "multipleOf"} {
		switch x, y := a[k], b[k]; {
		case reflect.DeepEqual(x, y):
		case x == nil:
			c.narrowed(childPointer(at, k), "there is a %s now: %s", k, text(y))
		case y == nil:
			c.widened(childPointer(at, k), "there is no %s any more", k)
		default:
			c.add(childPointer(at, k), Unclear, "the %s was %s and is %s", k, text(x), text(y))
		}
	}
}

// bound compares one limit. A higher one is narrower if sign is 1, and wider if it is -1.
func (c *comparer) bound(at, keyword string, a, b any, sign int) {
	x, xok := number(a)
	y, yok := number(b)
	at = childPointer(at, keyword)
	switch {
	case !xok && !yok:
	case !xok:
		c.narrowed(at, "%s is %s now", keyword, text(b))
	case !yok:
		c.widened(at, "%s was %s and is gone", keyword, text(a))
	default:
		switch y.Cmp(x) * sign {
		case 1:
			c.narrowed(at, "%s was %s and is %s", keyword, text(a), text(b))
		case -1:
			c.widened(at, "%s was %s and is %s", keyword, text(a), text(b))
		}
	}
}

func number(v any) (*big.Float, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return nil, false
	}
	f, _, err := big.ParseFloat(string(n), 10, 128, big.ToNearestEven)
	return f, err == nil
}

// object compares properties.
func (c *comparer) object(at string, a, b map[string]any, depth int) {
	x, _ := a["properties"].(map[string]any)
	y, _ := b["properties"].(map[string]any)
	before, after := required(a), required(b)
	for _, k := range unionKeys(x, y) {
		here := childPointer(at, "properties", k)
		p, had := x[k]
		q, has := y[k]
		switch {
		case had && has:
			c.schema(here, p, q, depth+1)
		case has && after[k]: // said below
		case has && isClosed(a):
			c.widened(here, "%s is allowed now", quote(k))
		case has:
			c.add(here, Compatible, "there is %s now, which may be left out", quote(k))
		case isClosed(b):
			c.narrowed(here, "%s is not allowed any more", quote(k))
		default:
			c.add(here, Unclear, "there is no %s any more", quote(k)) // it is still allowed: as an argument without effect, or in results that may lack it
		}
	}
	for _, k := range slices.Sorted(maps.Keys(after)) {
		if !before[k] {
			c.narrowed(childPointer(at, "required"), "%s is required now", quote(k))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(before)) {
		if !after[k] {
			c.widened(childPointer(at, "required"), "%s may be missing now", quote(k))
		}
	}
	c.additional(at, a, b, depth)
}

func (c *comparer) additional(at string, a, b map[string]any, depth int) {
	const k = "additionalProperties"
	switch x, y := a[k], b[k]; {
	case reflect.DeepEqual(x, y):
	case isClosed(b) && !isClosed(a):
		c.narrowed(childPointer(at, k), "other properties are not allowed any more")
	case isClosed(a) && !isClosed(b):
		c.widened(childPointer(at, k), "other properties are allowed now")
	default:
		c.schema(childPointer(at, k), orTrue(x), orTrue(y), depth+1)
	}
}

func orTrue(v any) any {
	if v == nil {
		return true
	}
	return v
}

// isClosed reports whether other properties than those described are refused.
func isClosed(m map[string]any) bool { return m["additionalProperties"] == false }

func required(m map[string]any) map[string]bool {
	set := map[string]bool{}
	list, _ := m["required"].([]any)
	for _, v := range list {
		if s, ok := v.(string); ok {
			set[s] = true
		}
	}
	return set
}

// items compares what arrays consist of.
func (c *comparer) items(at string, a, b map[string]any, depth int) {
	if !reflect.DeepEqual(a["items"], b["items"]) || c.hasReference(a["items"]) {
		c.schema(childPointer(at, "items"), orTrue(a["items"]), orTrue(b["items"]), depth+1)
	}
}

// otherKeywords says of all other keywords that they are different: what they mean together is not judged.
func (c *comparer) otherKeywords(at string, a, b map[string]any) {
	for _, k := range unionKeys(a, b) {
		if !knownKeyword(k) && !reflect.DeepEqual(a[k], b[k]) {
			c.add(childPointer(at, k), Unclear, "the keyword %s is different", quote(k))
		}
	}
}

func knownKeyword(k string) bool {
	switch k {
	case "type", "enum", "const", "properties", "required", "additionalProperties", "items", "uniqueItems", "pattern", "format", "multipleOf", "$defs", "definitions",
		"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains", "maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains":
		return true
	}
	return isAnnotation(k)
}

// unionKeys returns the keys of both, sorted.
func unionKeys(a, b map[string]any) []string {
	set := map[string]bool{}
	for k := range a {
		set[k] = true
	}
	for k := range b {
		set[k] = true
	}
	return slices.Sorted(maps.Keys(set))
}

func text(v any) string {
	b, _ := json.Marshal(v)
	return clip(string(b))
}

func quote(s string) string { return fmt.Sprintf("%q", clip(s)) }

func clip(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
