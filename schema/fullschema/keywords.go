package fullschema

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"mcpwire/internal/text/clip"
)

// A rule is one assertion of a schema.
type rule func(e *evaluation, v any)

// keywords compiles the members of a schema object.
type keywords struct {
	c      *compiler
	n      *node
	res    *resource
	doc    *document
	at     string
	object map[string]any
}

func (k *keywords) compile() error {
	steps := []func() error{k.references, k.any, k.number, k.text, k.array, k.objects, k.applicators, k.unevaluated}
	if _, ok := k.object["$ref"]; ok && k.res.draft.refReplaces() {
		steps = steps[:1]
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (k *keywords) add(r rule) { k.n.rules = append(k.n.rules, r) }

// child returns the node of the schema that a member of the object has at a path, or nil.
func (k *keywords) child(path ...string) (*node, error) {
	v, ok := k.object[path[0]]
	if !ok || len(path) == 1 && !isSchema(v) {
		return nil, nil
	}
	return k.c.at(k.doc, k.at+pointer(path...))
}

// list returns the nodes of an array of schemas.
func (k *keywords) list(name string) ([]*node, error) {
	values, _ := k.object[name].([]any)
	var nodes []*node
	for i := range values {
		n, err := k.child(name, strconv.Itoa(i))
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// A named is a schema with its name in an object of schemas.
type named struct {
	name string
	node *node
}

// schemas returns the nodes of an object of schemas, by name.
func (k *keywords) schemas(keyword string) ([]named, error) {
	object, _ := k.object[keyword].(map[string]any)
	var list []named
	for _, name := range sortedNames(object) {
		if !isSchema(object[name]) {
			continue
		}
		n, err := k.child(keyword, name)
		if err != nil {
			return nil, err
		}
		list = append(list, named{name, n})
	}
	return list, nil
}

func (k *keywords) references() error {
	if ref, ok := k.object["$ref"].(string); ok {
		n, err := k.target("$ref", ref)
		if err != nil {
			return err
		}
		k.add(func(e *evaluation, v any) { e.apply(n, v) })
	}
	if ref, ok := k.object["$recursiveRef"].(string); ok && k.res.draft == draft2019 {
		n, err := k.target("$recursiveRef", ref)
		if err != nil {
			return err
		}
		k.add(func(e *evaluation, v any) {
			e.apply(k.dynamic(e, n, func(r *resource) bool { return r.recursive }, ""), v)
		})
	}
	if ref, ok := k.object["$dynamicRef"].(string); ok && k.res.draft >= draft2020 {
		n, err := k.target("$dynamicRef", ref)
		if err != nil {
			return err
		}
		_, anchor, _ := strings.Cut(ref, "#")
		if !n.res.dynamic[anchor] {
			k.add(func(e *evaluation, v any) { e.apply(n, v) })
			return nil
		}
		k.add(func(e *evaluation, v any) {
			e.apply(k.dynamic(e, n, func(r *resource) bool { return r.dynamic[anchor] }, anchor), v)
		})
	}
	return nil
}

// target returns the node that a reference leads to.
func (k *keywords) target(keyword, ref string) (*node, error) {
	url, err := resolve(k.res.url, ref)
	if err != nil {
		return nil, fmt.Errorf("#%s/%s: %w", k.at, keyword, err)
	}
	n, err := k.c.reference(url)
	if err != nil {
		return nil, fmt.Errorf("%s to %s: %w", keyword, clip.String(strings.TrimPrefix(url, location), maxShown), err)
	}
	return n, nil
}

// dynamic returns the node that takes the place of n: that of the outermost resource which the
// evaluation has entered and which extends n's, as extends reports. The resources are compiled.
func (k *keywords) dynamic(e *evaluation, n *node, extends func(*resource) bool, anchor string) *node {
	if !extends(n.res) {
		return n
	}
	for up := e; up != nil; up = up.up {
		if res := up.node.res; extends(res) {
			at := res.pointer
			if anchor != "" {
				at = res.anchors[anchor]
			}
			if other := k.c.nodes[nodeKey{res.doc, at}]; other != nil {
				n = other
			}
		}
	}
	return n
}

// typeNames are the types in the order of messages.
var typeNames = []string{"null", "boolean", "number", "integer", "string", "array", "object"}

func (k *keywords) any() error {
	var types []string
	switch v := k.object["type"].(type) {
	case string:
		types = []string{v}
	case []any:
		for _, name := range typeNames {
			if slices.Contains(v, any(name)) {
				types = append(types, name)
			}
		}
	}
	if types != nil {
		k.add(func(e *evaluation, v any) {
			got := typeOf(v)
			if !slices.Contains(types, got) && !(got == "number" && slices.Contains(types, "integer") && isInteger(v)) {
				e.fail("expected %s, got %s", strings.Join(types, " or "), got)
			}
		})
	}
	if want, ok := k.object["const"]; ok && k.res.draft >= draft6 {
		k.equal("const", []any{want})
	}
	if want, ok := k.object["enum"].([]any); ok {
		k.equal("enum", want)
	}
	return nil
}

// equal adds the rule that the value is one of a list.
func (k *keywords) equal(keyword string, list []any) {
	allowed := map[string]bool{}
	var shown []string
	for _, want := range list {
		allowed[canonical(want)] = true
		if isScalar(want) {
			shown = append(shown, show(want))
		}
	}
	message := "value must be one of " + strings.Join(shown, ", ")
	switch {
	case len(shown) == 0 || len(shown) < len(list):
		message = "'" + keyword + "' failed"
	case len(shown) == 1:
		message = "value must be " + shown[0]
	}
	k.add(func(e *evaluation, v any) {
		if !allowed[canonical(v)] {
			e.fail("%s", message)
		}
	})
}

// bound returns a number of the object.
func (k *keywords) bound(name string) *big.Rat {
	number, ok := k.object[name].(json.Number)
	if !ok {
		return nil
	}
	return rational(number)
}

func (k *keywords) number() error {
	for _, limit := range []struct {
		keyword, exclusive string
		sign               int
	}{{"minimum", "exclusiveMinimum", -1}, {"maximum", "exclusiveMaximum", 1}} {
		outside := func(order int) bool { return order == limit.sign }
		notInside := func(order int) bool { return order != -limit.sign }
		if on, _ := k.object[limit.exclusive].(bool); on {
			k.limit(limit.exclusive, limit.keyword, notInside)
			continue
		}
		k.limit(limit.keyword, limit.keyword, outside)
		k.limit(limit.exclusive, limit.exclusive, notInside)
	}
	if step := k.bound("multipleOf"); step != nil && step.Sign() != 0 {
		k.add(func(e *evaluation, v any) {
			if n, ok := v.(json.Number); ok && !new(big.Rat).Quo(rational(n), step).IsInt() {
				e.fail("multipleOf: got %s, want %s", n, k.object["multipleOf"])
			}
		})
	}
	return nil
}

// limit adds the rule of a keyword whose bound is the value of the member from. violates takes the
// order of a number relative to the bound.
func (k *keywords) limit(keyword, from string, violates func(order int) bool) {
	bound := k.bound(from)
	if bound == nil {
		return
	}
	k.add(func(e *evaluation, v any) {
		if n, ok := v.(json.Number); ok && violates(rational(n).Cmp(bound)) {
			e.fail("%s: got %s, want %s", keyword, n, k.object[from])
		}
	})
}

// count returns a count of the object, clipped to the range of int.
func (k *keywords) count(name string) (int, bool) {
	r := k.bound(name)
	if r == nil || !r.IsInt() || r.Sign() < 0 {
		return 0, false
	}
	if !r.Num().IsInt64() {
		return math.MaxInt, true
	}
	return int(min(r.Num().Int64(), math.MaxInt)), true
}

// counts adds the rules of a minimum and a maximum of what length counts. length returns -1 for
// values of other types.
func (k *keywords) counts(minimum, maximum string, length func(v any) int) {
	if want, ok := k.count(minimum); ok {
		k.add(func(e *evaluation, v any) {
			if got := length(v); got >= 0 && got < want {
				e.fail("%s: got %d, want %d", minimum, got, want)
			}
		})
	}
	if want, ok := k.count(maximum); ok {
		k.add(func(e *evaluation, v any) {
			if got := length(v); got > want {
				e.fail("%s: got %d, want %d", maximum, got, want)
			}
		})
	}
}

func (k *keywords) text() error {
	k.counts("minLength", "maxLength", func(v any) int {
		if s, ok := v.(string); ok {
			return utf8.RuneCountInString(s)
		}
		return -1
	})
	if source, ok := k.object["pattern"].(string); ok {
		re, err := k.compilePattern("/pattern", source)
		if err != nil {
			return err
		}
		k.add(func(e *evaluation, v any) {
			if s, ok := v.(string); ok && !re.MatchString(s) {
				e.fail("%s does not match pattern %s", show(s), show(source))
			}
		})
	}
	if name, ok := k.object["format"].(string); ok && k.res.draft <= draft7 {
		valid := formats[name]
		if name == "regex" {
			valid = func(s string) bool { _, err := k.c.pattern(s); return err == nil }
		}
		if valid != nil {
			k.add(func(e *evaluation, v any) {
				if s, ok := v.(string); ok && !valid(s) {
					e.fail("%s is not valid %s", show(s), name)
				}
			})
		}
	}
	return nil
}

func (k *keywords) compilePattern(at, source string) (matcher, error) {
	re, err := k.c.pattern(source)
	if err != nil {
		return nil, fmt.Errorf("#%s%s: pattern %q: %w", k.at, at, clip.String(source, maxShown), err)
	}
	return re, nil
}

func (k *keywords) array() error {
	k.counts("minItems", "maxItems", func(v any) int {
		if list, ok := v.([]any); ok {
			return len(list)
		}
		return -1
	})
	if on, _ := k.object["uniqueItems"].(bool); on {
		k.add(func(e *evaluation, v any) {
			list, _ := v.([]any)
			seen := map[string]int{}
			for i, item := range list {
				text := canonical(item)
				if first, ok := seen[text]; ok {
					e.fail("items at %d and %d are equal", first, i)
					return
				}
				seen[text] = i
			}
		})
	}
	first, rest := "prefixItems", "items"
	if k.res.draft < draft2020 {
		first, rest = "items", "additionalItems"
		if _, ok := k.object["items"].([]any); !ok {
			first, rest = "", "items"
		}
	}
	prefix, err := k.list(first)
	if err != nil {
		return err
	}
	others, err := k.child(rest)
	if err != nil {
		return err
	}
	if prefix != nil || others != nil {
		k.add(func(e *evaluation, v any) {
			list, ok := v.([]any)
			for i, item := range list {
				if i < len(prefix) {
					e.item(i, prefix[i], item)
				} else if others != nil {
					e.item(i, others, item)
				}
			}
			if ok {
				if others != nil {
					e.items = math.MaxInt
				}
				e.items = max(e.items, len(prefix))
			}
		})
	}
	return k.contains()
}

func (k *keywords) contains() error {
	if k.res.draft < draft6 {
		return nil
	}
	n, err := k.child("contains")
	if n == nil || err != nil {
		return err
	}
	least, most := 1, math.MaxInt
	counted := false
	if k.res.draft >= draft2019 {
		if want, ok := k.count("minContains"); ok {
			least, counted = want, true
		}
		if want, ok := k.count("maxContains"); ok {
			most = want
		}
	}
	k.add(func(e *evaluation, v any) {
		list, ok := v.([]any)
		if !ok {
			return
		}
		got := 0
		for i, item := range list {
			if e.accepts(strconv.Itoa(i), n, item) {
				got++
				if k.res.draft >= draft2020 {
					e.contained(i)
				}
			}
		}
		switch {
		case got < least && !counted:
			e.fail("no items match contains schema")
		case got < least:
			e.fail("minContains: got %d, want %d", got, least)
		case got > most:
			e.fail("maxContains: got %d, want %d", got, most)
		}
	})
	return nil
}

func (k *keywords) objects() error {
	k.counts("minProperties", "maxProperties", func(v any) int {
		if object, ok := v.(map[string]any); ok {
			return len(object)
		}
		return -1
	})
	if want := texts(k.object["required"]); want != nil {
		k.add(func(e *evaluation, v any) {
			if object, ok := v.(map[string]any); ok {
				if missing := missingOf(object, want); len(missing) == 1 {
					e.fail("missing property %s", missing[0])
				} else if len(missing) > 1 {
					e.fail("missing properties %s", strings.Join(missing, ", "))
				}
			}
		})
	}
	if err := k.dependencies("dependencies"); err != nil {
		return err
	}
	if k.res.draft >= draft2019 {
		if err := k.dependencies("dependentRequired"); err != nil {
			return err
		}
		if err := k.dependencies("dependentSchemas"); err != nil {
			return err
		}
	}
	if err := k.properties(); err != nil || k.res.draft < draft6 {
		return err
	}
	n, err := k.child("propertyNames")
	if n == nil || err != nil {
		return err
	}
	k.add(func(e *evaluation, v any) {
		object, _ := v.(map[string]any)
		for _, name := range sortedNames(object) {
			e.name(n, name)
		}
	})
	return nil
}

// texts returns the strings of an array.
func texts(v any) []string {
	list, _ := v.([]any)
	var all []string
	for _, e := range list {
		if s, ok := e.(string); ok {
			all = append(all, s)
		}
	}
	return all
}

// missingOf returns the names that an object lacks, in quotes.
func missingOf(object map[string]any, names []string) []string {
	var missing []string
	for _, name := range names {
		if _, ok := object[name]; !ok {
			missing = append(missing, show(name))
		}
	}
	return missing
}

func (k *keywords) properties() error {
	list, err := k.schemas("properties")
	if err != nil {
		return err
	}
	properties := map[string]*node{}
	for _, p := range list {
		properties[p.name] = p.node
	}
	type pattern struct {
		re   matcher
		node *node
	}
	var patterns []pattern
	if list, err = k.schemas("patternProperties"); err != nil {
		return err
	}
	for _, p := range list {
		re, err := k.compilePattern(pointer("patternProperties", p.name), p.name)
		if err != nil {
			return err
		}
		patterns = append(patterns, pattern{re, p.node})
	}
	others, err := k.child("additionalProperties")
	if err != nil {
		return err
	}
	if len(properties) == 0 && len(patterns) == 0 && others == nil {
		return nil
	}
	forbidden := k.object["additionalProperties"] == false
	k.add(func(e *evaluation, v any) {
		object, _ := v.(map[string]any)
		var extra []string
		for _, name := range sortedNames(object) {
			known := false
			if n := properties[name]; n != nil {
				known = true
				e.property(name, n, object[name])
			}
			for _, p := range patterns {
				if p.re.MatchString(name) {
					known = true
					e.property(name, p.node, object[name])
				}
			}
			switch {
			case known || others == nil:
			case forbidden:
				extra = append(extra, show(name))
			default:
				e.property(name, others, object[name])
			}
		}
		if extra != nil {
			e.fail("additional properties %s not allowed", strings.Join(extra, ", "))
		}
	})
	return nil
}

// dependencies adds the rules for objects that have a property: the properties that it requires,
// and the schema that it implies.
func (k *keywords) dependencies(keyword string) error {
	object, _ := k.object[keyword].(map[string]any)
	for _, name := range sortedNames(object) {
		required := texts(object[name])
		var n *node
		if isSchema(object[name]) {
			var err error
			if n, err = k.child(keyword, name); err != nil {
				return err
			}
		}
		k.add(func(e *evaluation, v any) {
			instance, _ := v.(map[string]any)
			if _, ok := instance[name]; !ok {
				return
			}
			if missing := missingOf(instance, required); missing != nil {
				e.fail("properties %s required, if %s exists", strings.Join(missing, ", "), show(name))
			}
			if n != nil {
				e.apply(n, v)
			}
		})
	}
	return nil
}

func (k *keywords) applicators() error {
	if n, err := k.child("not"); err != nil {
		return err
	} else if n != nil {
		k.add(func(e *evaluation, v any) {
			if e.try(n, v).problems == nil {
				e.fail("'not' failed")
			}
		})
	}
	all, err := k.list("allOf")
	if err != nil {
		return err
	}
	for _, n := range all {
		k.add(func(e *evaluation, v any) { e.apply(n, v) })
	}
	for _, keyword := range []string{"anyOf", "oneOf"} {
		alternatives, err := k.list(keyword)
		if err != nil {
			return err
		}
		if alternatives != nil {
			k.add(func(e *evaluation, v any) { e.alternatives(alternatives, v, keyword == "oneOf") })
		}
	}
	if k.res.draft < draft7 {
		return nil
	}
	return k.condition()
}

func (k *keywords) condition() error {
	condition, err := k.child("if")
	if condition == nil || err != nil {
		return err
	}
	then, err := k.child("then")
	if err != nil {
		return err
	}
	otherwise, err := k.child("else")
	if err != nil {
		return err
	}
	k.add(func(e *evaluation, v any) {
		next := otherwise
		if tried := e.try(condition, v); tried.problems == nil {
			e.merge(tried)
			next = then
		}
		if next != nil {
			e.apply(next, v)
		}
	})
	return nil
}

func (k *keywords) unevaluated() error {
	if k.res.draft < draft2019 {
		return nil
	}
	items, err := k.child("unevaluatedItems")
	if err != nil {
		return err
	}
	if items != nil {
		k.add(func(e *evaluation, v any) {
			list, ok := v.([]any)
			for i, item := range list {
				if i >= e.items && !e.matched[i] {
					e.item(i, items, item)
				}
			}
			if ok {
				e.items = math.MaxInt
			}
		})
	}
	properties, err := k.child("unevaluatedProperties")
	if err != nil {
		return err
	}
	if properties != nil {
		k.add(func(e *evaluation, v any) {
			object, _ := v.(map[string]any)
			for _, name := range sortedNames(object) {
				if !e.names[name] {
					e.property(name, properties, object[name])
				}
			}
		})
	}
	return nil
}
