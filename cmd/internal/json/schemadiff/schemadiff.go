package schemadiff

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"reflect"
	"slices"
	"strings"

	"mcpwire/internal/json/jsonpointer"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
)

// An Impact is the effect of a change.
type Impact string

// The impacts, in ascending order.
const (
	// Annotations means that only texts for people and models change: titles, descriptions,
	// examples.
	Annotations Impact = "words"
	// Compatible means that valid values stay valid.
	Compatible Impact = "compatible"
	Unclear    Impact = "unclear"
	// Breaking means that valid values may become invalid.
	Breaking Impact = "breaking"
)

// A Direction says which side writes the values of a schema.
type Direction bool

// The directions.
const (
	// Input values come from the client: a new schema must allow all that the old one did.
	Input Direction = false
	// Output values come from the server: a new schema must not allow more than the old one did.
	Output Direction = true
)

// A Change is one difference between two schemas.
type Change struct {
	// Pointer is a JSON pointer into the schema.
	Pointer string `json:"pointer"`
	Impact  Impact `json:"impact"`
	Why     string `json:"why"`
}

// Limits of a comparison. Differences beyond them are unclear.
const (
	maxDepth   = 64
	maxNested  = 512 // levels of JSON text
	maxPairs   = 1 << 14
	maxChanges = 1000
)

// Compare returns the differences between two schemas, the worst first, and none if they are equal.
func Compare(before, after []byte, direction Direction) []Change {
	a, aok := decode(before)
	b, bok := decode(after)
	if !aok || !bok {
		if bytes.Equal(bytes.TrimSpace(before), bytes.TrimSpace(after)) {
			return nil
		}
		return []Change{{"", Unclear, "one of the two is not a schema, or nested too deeply"}}
	}
	c := &comparer{direction: direction, roots: [2]any{a, b}, seen: map[[2]uintptr]bool{}}
	c.schema("", a, b, 0)
	slices.SortStableFunc(c.changes, func(x, y Change) int {
		return cmp.Or(y.Impact.Rank()-x.Impact.Rank(), strings.Compare(x.Pointer, y.Pointer))
	})
	return c.changes
}

// Rank returns a number that is greater for a worse impact.
func (v Impact) Rank() int {
	return slices.Index([]Impact{"", Annotations, Compatible, Unclear, Breaking}, v)
}

func decode(text []byte) (v any, ok bool) {
	if jsonwire.Valid(text, maxNested) != nil {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return nil, false
	}
	switch v.(type) {
	case map[string]any, bool:
		return v, true
	}
	return nil, false
}

// A comparer collects changes. roots are the schemas before and after.
type comparer struct {
	direction Direction
	roots     [2]any
	// seen holds the compared pairs of schemas, because references may be circular.
	seen    map[[2]uintptr]bool
	changes []Change
}

func (c *comparer) add(pointer string, v Impact, format string, args ...any) {
	if len(c.changes) < maxChanges {
		c.changes = append(c.changes, Change{pointer, v, fmt.Sprintf(format, args...)})
	}
}

// narrowed reports that a schema allows less than before, widened that it allows more. The first
// breaks writers, the second readers.
func (c *comparer) narrowed(pointer, format string, args ...any) {
	c.add(pointer, map[Direction]Impact{Input: Breaking, Output: Compatible}[c.direction], format, args...)
}

func (c *comparer) widened(pointer, format string, args ...any) {
	c.add(pointer, map[Direction]Impact{Input: Compatible, Output: Breaking}[c.direction], format, args...)
}

func (c *comparer) schema(at string, a, b any, depth int) {
	if depth > maxDepth {
		if !reflect.DeepEqual(a, b) {
			c.add(at, Unclear, "it differs, but is nested too deeply to compare")
		}
		return
	}
	a, b = c.resolve(a, 0), c.resolve(b, 1)
	if reflect.DeepEqual(a, b) && !c.hasReference(a) {
		return
	}
	pair := [2]uintptr{identity(a), identity(b)}
	if pair[0] != 0 && pair[1] != 0 && c.seen[pair] {
		return
	}
	if c.seen[pair] = true; len(c.seen) > maxPairs {
		c.add(at, Unclear, "it is too large to compare")
		return
	}
	x, xok := asObject(a)
	y, yok := asObject(b)
	switch {
	case !xok && !yok: // both false
		return
	case !yok:
		c.narrowed(at, "no value is allowed now")
		return
	case !xok:
		c.widened(at, "values are allowed now, where none was before")
		return
	}
	c.annotations(at, x, y)
	c.lists(childPointer(at, "type"), typesOf(x), typesOf(y))
	c.values(at, x, y)
	c.bounds(at, x, y)
	c.object(at, x, y, depth)
	c.items(at, x, y, depth)
	c.otherKeywords(at, x, y)
}

// identity returns a number that identifies an object, or 0 for other values.
func identity(v any) uintptr {
	if m, ok := v.(map[string]any); ok {
		return reflect.ValueOf(m).Pointer()
	}
	return 0
}

// asObject returns the keywords of a schema. true has no keywords. It reports false for the schema
// false.
func asObject(v any) (map[string]any, bool) {
	switch v := v.(type) {
	case map[string]any:
		return v, true
	case bool:
		return map[string]any{}, v
	}
	return map[string]any{}, true
}

// resolve follows local references, a limited number of times.
func (c *comparer) resolve(v any, which int) any {
	for range 16 {
		m, ok := v.(map[string]any)
		if !ok {
			return v
		}
		ref, ok := m["$ref"].(string)
		if !ok || !strings.HasPrefix(ref, "#") || len(m) > 1 && !onlyAnnotations(m) {
			return v
		}
		target, ok := lookup(c.roots[which], ref[1:])
		if !ok {
			return v
		}
		v = target
	}
	return v
}

// hasReference reports whether a schema contains a reference, so that equal texts may differ in
// meaning. Definitions are compared where they are used.
func (c *comparer) hasReference(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		if _, ok := v["$ref"]; ok {
			return true
		}
		for k, x := range v {
			if k != "$defs" && k != "definitions" && c.hasReference(x) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, c.hasReference)
	}
	return false
}

func onlyAnnotations(m map[string]any) bool {
	for k := range m {
		if k != "$ref" && !isAnnotation(k) {
			return false
		}
	}
	return true
}

func lookup(v any, pointer string) (any, bool) {
	for _, part := range jsonpointer.Split(pointer) {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		if v, ok = m[part]; !ok {
			return nil, false
		}
	}
	return v, true
}

func childPointer(at string, parts ...string) string {
	for _, p := range parts {
		at += "/" + jsonpointer.Escape(p)
	}
	return at
}

func isAnnotation(keyword string) bool {
	switch keyword {
	case "title", "description", "default", "examples", "deprecated", "$comment", "$schema", "$id", "readOnly", "writeOnly":
		return true
	}
	return false
}

func (c *comparer) annotations(at string, a, b map[string]any) {
	for _, k := range unionKeys(a, b) {
		if isAnnotation(k) && !reflect.DeepEqual(a[k], b[k]) {
			c.add(childPointer(at, k), Annotations, "the %s changed", k)
		}
	}
}

// allTypes are the types of JSON Schema. An integer is also a number.
var allTypes = []string{"array", "boolean", "integer", "null", "number", "object", "string"}

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
		c.narrowed(at, "only %s are allowed now", clip.String(strings.Join(y, ", "), 200))
	case !yok:
		c.widened(at, "anything is allowed now, where only %s were before", clip.String(strings.Join(x, ", "), 200))
	default:
		c.lists(at, x, y)
	}
}

func (c *comparer) lists(at string, x, y []string) {
	if removed := difference(x, y); len(removed) > 0 {
		c.narrowed(at, "%s is no longer allowed", clip.String(strings.Join(removed, ", "), 200))
	}
	if added := difference(y, x); len(added) > 0 {
		c.widened(at, "%s is allowed now", clip.String(strings.Join(added, ", "), 200))
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
			c.narrowed(childPointer(at, "uniqueItems"), "items must be unique now")
		} else {
			c.widened(childPointer(at, "uniqueItems"), "items need not be unique now")
		}
	}
	for _, k := range []string{"pattern", "format", "multipleOf"} {
		switch x, y := a[k], b[k]; {
		case reflect.DeepEqual(x, y):
		case x == nil:
			c.narrowed(childPointer(at, k), "%s was added: %s", k, text(y))
		case y == nil:
			c.widened(childPointer(at, k), "%s was removed", k)
		default:
			c.add(childPointer(at, k), Unclear, "%s was %s and is %s", k, text(x), text(y))
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
		c.widened(at, "%s was %s and is removed", keyword, text(a))
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
		case has && after[k]: // reported below
		case has && isClosed(a):
			c.widened(here, "%s is allowed now", quote(k))
		case has:
			c.add(here, Compatible, "%s was added, and is optional", quote(k))
		case isClosed(b):
			c.narrowed(here, "%s is no longer allowed", quote(k))
		default:
			// It is still allowed, as an unused argument or an extra member of a result.
			c.add(here, Unclear, "%s was removed", quote(k))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(after)) {
		if !before[k] {
			c.narrowed(childPointer(at, "required"), "%s is required now", quote(k))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(before)) {
		if !after[k] {
			c.widened(childPointer(at, "required"), "%s is optional now", quote(k))
		}
	}
	c.additional(at, a, b, depth)
}

func (c *comparer) additional(at string, a, b map[string]any, depth int) {
	const k = "additionalProperties"
	switch x, y := a[k], b[k]; {
	case reflect.DeepEqual(x, y):
	case isClosed(b) && !isClosed(a):
		c.narrowed(childPointer(at, k), "other properties are no longer allowed")
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

// isClosed reports whether undescribed properties are rejected.
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

// items compares the element schemas of arrays.
func (c *comparer) items(at string, a, b map[string]any, depth int) {
	if !reflect.DeepEqual(a["items"], b["items"]) || c.hasReference(a["items"]) {
		c.schema(childPointer(at, "items"), orTrue(a["items"]), orTrue(b["items"]), depth+1)
	}
}

// otherKeywords reports differences in all other keywords as unclear.
func (c *comparer) otherKeywords(at string, a, b map[string]any) {
	for _, k := range unionKeys(a, b) {
		if !knownKeyword(k) && !reflect.DeepEqual(a[k], b[k]) {
			c.add(childPointer(at, k), Unclear, "the keyword %s differs", quote(k))
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

func unionKeys(a, b map[string]any) []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)
	return slices.Compact(keys)
}

func text(v any) string {
	b, _ := json.Marshal(v)
	return clip.String(string(b), 200)
}

func quote(s string) string { return fmt.Sprintf("%q", clip.String(s, 200)) }
