package replay

import (
	"slices"
	"strconv"
	"strings"

	"mcpwire/internal/jsonwire"
)

// A namedList is a list in the results of two messages whose elements have names: it is compared by
// these, since servers may list in any order, and one element more moves all that follow.
type namedList struct {
	prefix string // of pointers into it
	// before and is are the names in the order of the first and the second message.
	before, after []string
}

// listKeys are the lists of results, and the member of an element that names it.
var listKeys = [][2]string{{"tools", "name"}, {"prompts", "name"}, {"resources", "uri"}, {"resourceTemplates", "uriTemplate"}}

// byName returns two messages with objects in the place of lists: the elements by their names. A
// list without such names, or with one twice, stays.
func byName(a, b []byte) (x, y []byte, lists []namedList) {
	x, y = a, b
	for _, k := range listKeys {
		was, ok := namesOf(jsonwire.Lookup(x, "result", k[0]), k[1])
		if !ok {
			continue
		}
		is, ok := namesOf(jsonwire.Lookup(y, "result", k[0]), k[1])
		if !ok {
			continue
		}
		lists = append(lists, namedList{"/result/" + k[0] + "/", was, is})
		x, y = withObject(x, k[0], was), withObject(y, k[0], is)
	}
	return x, y, lists
}

// namesOf returns the names of a list's elements; ok reports whether each has one that is no
// other's.
func namesOf(list []byte, key string) (names []string, ok bool) {
	if len(list) == 0 || list[0] != '[' {
		return nil, false
	}
	seen := map[string]bool{}
	for el := jsonwire.ArrayElements(list); el.Next(); {
		name := jsonwire.Lookup(el.Value(), key)
		if len(name) == 0 || name[0] != '"' || seen[jsonwire.Text(name)] {
			return nil, false
		}
		seen[jsonwire.Text(name)] = true
		names = append(names, jsonwire.Text(name))
	}
	return names, true
}

// withObject returns a message with an object in the place of a list of its result, which has such
// names.
func withObject(message []byte, list string, names []string) []byte {
	return withReplaced(message, "result", func(dst, result []byte) []byte {
		return append(dst, withReplaced(result, list, func(dst, value []byte) []byte {
			dst = append(dst, '{')
			elements := jsonwire.ArrayElements(value)
			for i := 0; elements.Next(); i++ {
				if i > 0 {
					dst = append(dst, ',')
				}
				dst = append(jsonwire.AppendQuote(dst, names[i]), ':')
				dst = append(dst, elements.Value()...)
			}
			return append(dst, '}')
		})...)
	})
}

// withReplaced returns an object with another value of the first member of a name, which add appends.
func withReplaced(object []byte, name string, add func(dst, value []byte) []byte) []byte {
	dst := append(make([]byte, 0, len(object)+len(object)/8), '{')
	members, done := jsonwire.ObjectMembers(object), false
	for i := 0; members.Next(); i++ {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, '"'), members.RawKey()...), '"', ':')
		if !done && members.KeyIs(name) {
			dst, done = add(dst, members.Value()), true
		} else {
			dst = append(dst, members.Value()...)
		}
	}
	return append(dst, '}')
}

// ignoredPointers returns patterns of places that are not compared, with names in the place of the indexes
// of recorded elements.
func ignoredPointers(patterns []string, lists []namedList) []string {
	if lists == nil {
		return patterns
	}
	out := slices.Clone(patterns)
	for i, p := range out {
		for _, l := range lists {
			rest, ok := strings.CutPrefix(p, l.prefix)
			if !ok {
				continue
			}
			part, below, deeper := strings.Cut(rest, "/")
			n, err := strconv.Atoi(part)
			if err != nil || n < 0 || n >= len(l.before) {
				continue
			}
			if out[i] = l.prefix + pointerEscapes.Replace(l.before[n]); deeper {
				out[i] += "/" + below
			}
		}
	}
	return out
}

// originalPointers returns pointers into the two messages themselves, the second of which has the place that
// pointer means and the first that of first, and the name of the element that both are in; "" if
// they are in none.
func originalPointers(first, pointer string, lists []namedList) (was, is, name string) {
	was, is = first, pointer
	for _, l := range lists {
		if rest, ok := strings.CutPrefix(first, l.prefix); ok {
			was, name = l.index(rest, l.before)
		}
		if rest, ok := strings.CutPrefix(pointer, l.prefix); ok {
			is, name = l.index(rest, l.after)
		}
	}
	return was, is, name
}

// index returns a pointer with an index in the place of the name that it begins with. What one of
// the messages does not have keeps its name.
func (l *namedList) index(rest string, names []string) (pointer, name string) {
	part, below, deeper := strings.Cut(rest, "/")
	name = pointerUnescapes.Replace(part)
	if i := slices.Index(names, name); i >= 0 {
		part = strconv.Itoa(i)
	}
	if pointer = l.prefix + part; deeper {
		pointer += "/" + below
	}
	return pointer, name
}
