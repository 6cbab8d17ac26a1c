package server

import "reflect"

// plain reports whether nothing in values of the type has methods. Only what decodes and encodes such values sees where they are in memory; methods could keep that.
func plain(t reflect.Type) bool { return allPlain(t, make(map[reflect.Type]bool)) }

func allPlain(t reflect.Type, seen map[reflect.Type]bool) bool {
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
		return allPlain(t.Key(), seen) && allPlain(t.Elem(), seen)
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return allPlain(t.Elem(), seen)
	case reflect.Struct:
		for field := range t.Fields() {
			if !allPlain(field.Type, seen) {
				return false
			}
		}
	}
	return true
}
