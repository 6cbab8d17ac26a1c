package schemadiff

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"mcpwire/internal/jsonwire"
)

// A Impact says what a change means.
type Impact string

// The verdicts, from the harmless to the worst.
const (
	Annotations Impact = "words"      // what people and models read: titles, descriptions, examples
	Compatible  Impact = "compatible" // what was right is right
	Unclear     Impact = "unclear"
	Breaking    Impact = "breaking" // what was right may be wrong now
)

// A Direction says who fills in what a schema describes.
type Direction bool

// The sides.
const (
	Input  Direction = false // the client: a new schema must allow all that the old one did
	Output Direction = true  // the server: a new schema must not allow what the old one did not
)

// A Change is one difference between two schemas.
type Change struct {
	Pointer string `json:"pointer"` // into the schema, a JSON pointer
	Impact  Impact `json:"verdict"`
	Why     string `json:"why"`
}

// Limits of a comparison. What is beyond is unclear.
const (
	maxDepth   = 64
	maxNested  = 512 // of the JSON text; deeper ones are no schemas
	maxPairs   = 1 << 14
	maxChanges = 1000
)

// Compare returns what is different between two schemas, the worst first. Equal ones have no changes.
func Compare(before, after []byte, direction Direction) []Change {
	a, aok := decode(before)
	b, bok := decode(after)
	if !aok || !bok {
		if bytes.Equal(bytes.TrimSpace(before), bytes.TrimSpace(after)) {
			return nil
		}
		return []Change{{"", Unclear, "one of the two is no schema, or too deep"}}
	}
	c := &comparer{direction: direction, roots: [2]any{a, b}, seen: map[[2]uintptr]bool{}}
	c.schema("", a, b, 0)
	slices.SortStableFunc(c.changes, func(x, y Change) int {
		return cmp.Or(rank(y.Impact)-rank(x.Impact), strings.Compare(x.Pointer, y.Pointer))
	})
	return c.changes
}

// Worst returns the worst verdict; "" if there are no changes.
func Worst(changes []Change) Impact {
	worst := Impact("")
	for _, c := range changes {
		if rank(c.Impact) > rank(worst) {
			worst = c.Impact
		}
	}
	return worst
}

func rank(v Impact) int {
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

// A comparer collects changes. before and after are as the caller named them, whichever side it is; the words are chosen by side.
type comparer struct {
	direction Direction
	roots     [2]any
	seen      map[[2]uintptr]bool // pairs of schemas that were compared: references may lead in circles
	changes   []Change
}

func (c *comparer) add(pointer string, v Impact, format string, args ...any) {
	if len(c.changes) < maxChanges {
		c.changes = append(c.changes, Change{pointer, v, fmt.Sprintf(format, args...)})
	}
}

// narrowed notes that less is allowed than before, widened that more is: one breaks those who write, the other those who read.
func (c *comparer) narrowed(pointer, format string, args ...any) {
	v := Breaking
	if c.direction == Output {
		v = Compatible
	}
	c.add(pointer, v, format, args...)
}

func (c *comparer) widened(pointer, format string, args ...any) {
	v := Compatible
	if c.direction == Output {
		v = Breaking
	}
	c.add(pointer, v, format, args...)
}

// schema compares two schemas.
func (c *comparer) schema(at string, a, b any, depth int) {
	if depth > maxDepth {
		if !reflect.DeepEqual(a, b) {
			c.add(at, Unclear, "it is different, at a depth where nobody looks")
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
		c.add(at, Unclear, "it is not compared: there is too much of it")
		return
	}
	x, xok := asObject(a)
	y, yok := asObject(b)
	switch {
	case !xok && !yok: // both false
		return
	case !yok:
		c.narrowed(at, "nothing is allowed any more")
		return
	case !xok:
		c.widened(at, "something is allowed where nothing was")
		return
	}
	c.annotations(at, x, y)
	c.types(at, x, y)
	c.values(at, x, y)
	c.bounds(at, x, y)
	c.object(at, x, y, depth)
	c.items(at, x, y, depth)
	c.otherKeywords(at, x, y)
}

// identity tells objects apart; 0 is none.
func identity(v any) uintptr {
	if m, ok := v.(map[string]any); ok {
		return reflect.ValueOf(m).Pointer()
	}
	return 0
}

// asObject returns the keywords of a schema; true is one without any. false is none.
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

// hasReference reports whether there is a reference below: equal texts may then mean different things. Definitions are compared where they are used.
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

// lookup follows a JSON pointer.
func lookup(v any, pointer string) (any, bool) {
	if pointer == "" {
		return v, true
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		part = unescapes.Replace(part)
		if v, ok = m[part]; !ok {
			return nil, false
		}
	}
	return v, true
}

// What JSON pointers escape (https://www.rfc-editor.org/rfc/rfc6901#section-3).
var (
	escapes   = strings.NewReplacer("~", "~0", "/", "~1")
	unescapes = strings.NewReplacer("~1", "/", "~0", "~")
)

// childPointer returns the pointer of a member.
func childPointer(at string, parts ...string) string {
	for _, p := range parts {
		at += "/" + escapes.Replace(p)
	}
	return at
}
