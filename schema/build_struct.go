package schema

import (
	"fmt"
	"reflect"
	"strings"

	"mcpwire/internal/jsonwire"
)

// structType fills n with the members of its struct type.
func (b *builder) structType(n *node) error {
	fields, err := structFields(n.typ)
	if err != nil {
		return fmt.Errorf("type %s: %w", n.typ, err)
	}
	n.fields = &structPlan{lenient: b.opts.AllowUnknown}
	b.structs = append(b.structs, n.fields)
	for _, sf := range fields {
		f, err := b.field(sf)
		if err != nil {
			return fmt.Errorf("type %s: field %s: %w", n.typ, sf.Name, err)
		}
		n.fields.fields = append(n.fields.fields, f)
	}
	for i, sf := range fields {
		b.deferred = append(b.deferred, func() error {
			if err := n.fields.fields[i].applyTag(sf); err != nil {
				return fmt.Errorf("type %s: field %s: %w", n.typ, sf.Name, err)
			}
			return nil
		})
	}
	return nil
}

func (b *builder) field(sf structField) (fieldPlan, error) {
	f := fieldPlan{
		name:        sf.name,
		quoted:      string(jsonwire.AppendQuote(nil, sf.name)),
		hops:        sf.hops,
		offset:      sf.offset,
		description: sf.Tag.Get("jsonschema"),
	}
	var err error
	if f.node, err = b.node(sf.Type); err != nil {
		return f, err
	}
	f.required = !sf.mayBeAbsent() && sf.Type.Kind() != reflect.Pointer && len(sf.hops) == 0
	f.omitted = omission(sf)
	return f, nil
}

// applyTag adds what the schema tag says.
func (f *fieldPlan) applyTag(sf structField) (err error) {
	tag, ok := sf.Tag.Lookup("schema")
	if !ok {
		return nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("tag schema:%q: %w", tag, err)
		}
	}()
	items, err := parseTag(tag)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, it := range items {
		if seen[it.key] {
			return fmt.Errorf("%s stands there twice", it.key)
		}
		seen[it.key] = true
		if err := f.applyItem(it, sf.mayBeAbsent()); err != nil {
			return err
		}
	}
	if seen["required"] && (seen["optional"] || seen["default"]) {
		return fmt.Errorf("required contradicts optional and default")
	}
	return nil
}

func (f *fieldPlan) applyItem(it tagItem, maybeAbsent bool) (err error) {
	switch it.key {
	case "required", "optional", "uniqueItems":
		if it.hasValue && it.value != "true" {
			return fmt.Errorf("%s: takes no value", it.key)
		}
	default:
		if !it.hasValue {
			return fmt.Errorf("%s: has no value", it.key)
		}
	}
	switch it.key {
	case "required":
		if maybeAbsent {
			return fmt.Errorf("required contradicts omitempty and omitzero")
		}
		if len(f.hops) > 0 {
			return fmt.Errorf("required: the field is absent when its embedded pointer is nil")
		}
		f.required = true
	case "optional":
		f.required = false
	case "title":
		f.keywords = append(f.keywords, keyword{name: "title", value: string(jsonwire.AppendQuote(nil, it.value))})
	case "default":
		if f.defaultValue, err = f.node.defaultText(it.value); err != nil {
			return fmt.Errorf("default: %w", err)
		}
		f.required = false
		f.keywords = append(f.keywords, keyword{name: "default", value: string(f.defaultValue)})
	default:
		f.node, err = f.node.constrain(it)
	}
	return err
}

// omission returns the test for leaving a field out of the output.
func omission(sf structField) func(address) bool {
	t := sf.Type
	var zero, empty func(address) bool
	if sf.omitZero {
		zero = zeroTest(t)
	}
	if sf.omitEmpty {
		empty = emptyTest(t)
	}
	switch {
	case zero == nil:
		return empty
	case empty == nil:
		return zero
	}
	return func(a address) bool { return zero(a) || empty(a) }
}

func zeroTest(t reflect.Type) func(address) bool {
	type zeroer interface{ IsZero() bool }
	typeZeroer := reflect.TypeFor[zeroer]()
	switch {
	case t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface:
		// A nil one is zero, and must not be asked.
		return func(a address) bool {
			v := a.value(t)
			if v.IsNil() {
				return true
			}
			z, ok := v.Interface().(zeroer)
			return ok && t.Implements(typeZeroer) && z.IsZero()
		}
	case reflect.PointerTo(t).Implements(typeZeroer):
		return func(a address) bool { return a.pointer(t).(zeroer).IsZero() }
	}
	return func(a address) bool { return a.value(t).IsZero() }
}

// emptyTest is what omitempty asks: false, 0, "", nil and what has no elements.
func emptyTest(t reflect.Type) func(address) bool {
	switch t.Kind() {
	case reflect.String:
		return func(a address) bool { return *as[string](a) == "" }
	case reflect.Bool:
		return func(a address) bool { return !*as[bool](a) }
	case reflect.Slice, reflect.Map, reflect.Array:
		return func(a address) bool { return a.value(t).Len() == 0 }
	case reflect.Struct:
		return nil
	}
	return func(a address) bool { return a.value(t).IsZero() }
}

// defName makes a type's name fit for a JSON pointer and a URI fragment.
func defName(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
}
