package jsonwire

// Lookup follows a path of member names from a valid JSON text, and returns the value there: the first of a name that stands twice, nil if there is none, or if something on the way is no
// object. It scans what is in front of the value each time: whoever needs many members walks them with [ObjectMembers].
func Lookup(value []byte, path ...string) []byte {
	for _, name := range path {
		if value = firstMember(value, name); value == nil {
			return nil
		}
	}
	return value
}

func firstMember(object []byte, name string) []byte {
	if len(object) == 0 || object[0] != '{' {
		return nil
	}
	for m := ObjectMembers(object); m.Next(); {
		if m.KeyIs(name) {
			return m.Value()
		}
	}
	return nil
}

// Text returns what a valid JSON text says if it is a string, and "" for anything else.
func Text(value []byte) string {
	if len(value) < 2 || value[0] != '"' {
		return ""
	}
	return UnquoteString(value[1 : len(value)-1])
}
