package specref

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"mcpwire/internal/shape"
	"mcpwire/mcp"
)

// namedTypes are types that are in many messages. They are named, not shown, unless they are asked for.
var namedTypes = map[string]bool{
	"Implementation": true, "ClientCapabilities": true, "ServerCapabilities": true, "Icon": true, "Annotations": true, "MetaObject": true,
	"ResultMetaObject": true, "NotificationMetaObject": true, "InputRequests": true, "InputResponses": true, "Error": true,
}

// maxDepth is how deep members are shown.
const maxDepth = 3

// shapeOf describes a type.
func shapeOf(rev mcp.Revision, t shape.Type) *Shape {
	s := &Shape{Revision: rev.String(), Type: t.String()}
	switch t.Kind() {
	case shape.KindObject:
		s.Members = members(t, 1, nil)
	case shape.KindUnion:
		for _, alt := range t.Alternatives() {
			s.OneOf = append(s.OneOf, alt.String())
		}
	case shape.KindEnum:
		for _, v := range t.Values() {
			s.OneOf = append(s.OneOf, strconv.Quote(v))
		}
	case shape.KindMap, shape.KindArray:
		if t.Name() != "" {
			s.OneOf = append(s.OneOf, t.Kind().String()+" of "+t.Elem().String())
		}
	}
	return s
}

// expand shows the objects that params, a result or an error's data may be.
func (s *Shape) expand(rev mcp.Revision, t shape.Type) *Shape {
	for _, alt := range t.Alternatives() {
		if alt.Kind() == shape.KindObject {
			s.Alternatives = append(s.Alternatives, shapeOf(rev, alt))
		}
	}
	return s
}

// members describes the members of an object. above are the types that it is part of.
func members(t shape.Type, depth int, above []string) []Member {
	var all []Member
	for _, f := range t.Fields() {
		m := Member{Name: f.Name, Required: f.Required, Type: f.Type.String(), Limits: limitsText(f.Type)}
		inner := f.Type
		for inner.Kind() == shape.KindArray || inner.Kind() == shape.KindMap {
			inner = inner.Elem()
		}
		name := inner.Name()
		if depth < maxDepth && inner.Kind() == shape.KindObject && !namedTypes[name] && !slices.Contains(above, name) {
			m.Members = members(inner, depth+1, append(slices.Clip(above), name))
		}
		// A type that has no name of its own, but that of its place, says nothing.
		m.Type = withoutInlineName(m.Type, inner)
		all = append(all, m)
	}
	return all
}

// withoutInlineName leaves out the name of a type that the specification defines in place.
func withoutInlineName(text string, inner shape.Type) string {
	if name := inner.Name(); strings.Contains(name, ".") {
		return strings.Replace(text, name, "object", 1)
	}
	return text
}

// limitsText says what values have to be like, beyond their type.
func limitsText(t shape.Type) string {
	least, greatest := t.Bounds()
	switch {
	case least != nil && greatest != nil:
		return fmt.Sprintf("%d to %d", *least, *greatest)
	case least != nil:
		return fmt.Sprintf("at least %d", *least)
	case t.MaxItems() > 0:
		return fmt.Sprintf("at most %d", t.MaxItems())
	case t.Name() != "" && t.Kind() == shape.KindEnum:
		return strings.Join(t.Values(), ", ")
	}
	return ""
}

// diffTypes lists what a type has in one revision and not in the one before: added, removed and changed members, below each type once.
func diffTypes(before, after shape.Type, where string, seen map[string]bool) []string {
	a, b := before.Kind(), after.Kind()
	if a != b {
		return nil // whoever has the member says so
	}
	if name := after.Name(); name != "" {
		if seen[name] {
			return nil
		}
		seen[name] = true
		where = name
	}
	switch b {
	case shape.KindArray, shape.KindMap:
		return diffTypes(before.Elem(), after.Elem(), where, seen)
	case shape.KindUnion:
		return diffUnion(before, after, where, seen)
	case shape.KindEnum:
		return compareLists(where, before.Values(), after.Values(), strconv.Quote)
	case shape.KindObject:
		return diffObject(before, after, where, seen)
	}
	return nil
}

func diffObject(before, after shape.Type, where string, seen map[string]bool) (all []string) {
	old := map[string]shape.Field{}
	for _, f := range before.Fields() {
		old[f.Name] = f
	}
	fields := after.Fields()
	for _, f := range fields {
		o, had := old[f.Name]
		name := where + "." + f.Name
		switch {
		case !had && f.Required:
			all = append(all, "+ "+name+", required")
		case !had:
			all = append(all, "+ "+name)
		default:
			if o.Required != f.Required {
				all = append(all, "~ "+name+map[bool]string{true: " is required", false: " is optional"}[f.Required])
			}
			if o.Type.Kind() != f.Type.Kind() {
				all = append(all, "~ "+name+": "+o.Type.String()+" becomes "+f.Type.String())
			}
			all = append(all, diffTypes(o.Type, f.Type, name, seen)...)
		}
	}
	for _, f := range before.Fields() {
		if !slices.ContainsFunc(fields, func(n shape.Field) bool { return n.Name == f.Name }) {
			all = append(all, "- "+where+"."+f.Name)
		}
	}
	return all
}

func diffUnion(before, after shape.Type, where string, seen map[string]bool) []string {
	texts := func(t shape.Type) (all []string) {
		for _, alt := range t.Alternatives() {
			all = append(all, alt.String())
		}
		return all
	}
	all := compareLists(where, texts(before), texts(after), func(s string) string { return s })
	for _, alt := range after.Alternatives() {
		for _, o := range before.Alternatives() {
			if alt.Name() != "" && alt.Name() == o.Name() {
				all = append(all, diffTypes(o, alt, where, seen)...)
			}
		}
	}
	return all
}

// compareLists lists what is in one list and not in the other.
func compareLists(where string, before, after []string, show func(string) string) (all []string) {
	for _, v := range after {
		if !slices.Contains(before, v) {
			all = append(all, "+ "+where+" may be "+show(v))
		}
	}
	for _, v := range before {
		if !slices.Contains(after, v) {
			all = append(all, "- "+where+" is no longer "+show(v))
		}
	}
	return all
}
