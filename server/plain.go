package server

import "reflect"

// methodFree reports whether nothing in values of the type has methods. Only what decodes and encodes such values sees where they are in memory; methods could keep that.
func methodFree(t reflect.Type) bool { return allMethodFree(t, make(map[reflect.Type]bool)) }

func allMethodFree(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] {
		return true
	}
	seen[t] = true
	if t.Kind() == reflect.Interface {
		return true // what is in it is elsewhere
	}
	if reflect.PointerTo(t).NumMethod() > 0 {
		return false
	}
	switch t.Kind() {
	case reflect.Map:
		return allMethodFree(t.Key(), seen) && allMethodFree(t.Elem(), seen)
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return allMethodFree(t.Elem(), seen)
	case reflect.Struct:
		for field := range t.Fields() {
			if !allMethodFree(field.Type, seen) {
				return false
			}
		}
	}
	return true
}
