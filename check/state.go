package check

import "reflect"

// A states holds what rules remember of a session, a call or an exchange: one value for each type, so that the rules of one role need not know those of another. The
// zero value is empty.
type states map[reflect.Type]any

// stateOf returns the value of type T in s, a new one if there is none yet. What is in it must be bounded.
func stateOf[T any](s *states) *T {
	t := reflect.TypeFor[T]()
	if v, ok := (*s)[t]; ok {
		return v.(*T)
	}
	if *s == nil {
		*s = states{}
	}
	v := new(T)
	(*s)[t] = v
	return v
}
