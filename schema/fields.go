package schema

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strings"
	"unicode"
)

// structField is a field that becomes a member, found by the rules of
// encoding/json: fields of embedded structs count as the outer struct's own,
// the shallowest field of a name wins, then the one with a tag, and if several
// are left none of them is used.
type structField struct {
	reflect.StructField
	name      string // of the member
	tagged    bool   // the name comes from the tag
	index     []int
	hops      []hop
	offset    uintptr // from the last hop
	omitEmpty bool
	omitZero  bool
}

// mayBeAbsent reports whether the field may be missing in the output.
func (f *structField) mayBeAbsent() bool { return f.omitEmpty || f.omitZero }

// embedded is a struct whose fields are yet to be collected.
type embedded struct {
	typ    reflect.Type
	index  []int
	hops   []hop
	offset uintptr
}

// structFields returns the members of struct type t in the order of the source.
func structFields(t reflect.Type) ([]structField, error) {
	var all []structField
	level := []embedded{{typ: t}}
	seen := map[reflect.Type]bool{}
	for len(level) > 0 {
		var next []embedded
		count := map[reflect.Type]int{}
		for _, e := range level {
			count[e.typ]++
		}
		for _, e := range level {
			if seen[e.typ] {
				continue
			}
			own, inner, err := e.fields()
			if err != nil {
				return nil, err
			}
			for _, f := range own {
				all = append(all, f)
				if count[e.typ] > 1 {
					all = append(all, f) // embedded twice: hides itself
				}
			}
			next = append(next, inner...)
			if count[e.typ] > 1 {
				seen[e.typ] = true
			}
		}
		for _, e := range level {
			seen[e.typ] = true
		}
		level = next
	}
	return dominant(all), nil
}

// fields returns the fields of one struct, and the structs embedded in it.
func (e embedded) fields() (own []structField, inner []embedded, err error) {
	for i := range e.typ.NumField() {
		sf := e.typ.Field(i)
		ft := sf.Type
		if sf.Anonymous && ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		if !sf.IsExported() && (!sf.Anonymous || ft.Kind() != reflect.Struct) {
			continue
		}
		tag := sf.Tag.Get("json")
		if tag == "-" {
			continue
		}
		index := append(slices.Clone(e.index), i)
		name, options, _ := strings.Cut(tag, ",")
		if !validName(name) {
			name = ""
		}
		if name == "" && sf.Anonymous && ft.Kind() == reflect.Struct {
			if _, ok := sf.Tag.Lookup("schema"); ok {
				return nil, nil, fmt.Errorf("field %s: a schema tag on an embedded struct applies to nothing", sf.Name)
			}
			in := embedded{typ: ft, index: index, hops: e.hops, offset: e.offset + sf.Offset}
			if sf.Type.Kind() == reflect.Pointer {
				if !sf.IsExported() {
					return nil, nil, fmt.Errorf("field %s: cannot fill an embedded pointer to the unexported struct %s", sf.Name, ft)
				}
				in.hops = append(slices.Clone(e.hops), hop{offset: in.offset, typ: ft})
				in.offset = 0
			}
			inner = append(inner, in)
			continue
		}
		f := structField{StructField: sf, name: name, tagged: name != "", index: index, hops: e.hops, offset: e.offset + sf.Offset}
		if name == "" {
			f.name = sf.Name
		}
		if err := f.setOptions(options); err != nil {
			return nil, nil, fmt.Errorf("field %s: %w", sf.Name, err)
		}
		own = append(own, f)
	}
	return own, inner, nil
}

func (f *structField) setOptions(options string) error {
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "omitempty":
			f.omitEmpty = true
		case "omitzero":
			f.omitZero = true
		case "string":
			return fmt.Errorf(`the json option "string" is not supported: the schema would ask for a string where models send a number`)
		}
	}
	return nil
}

// validName is what encoding/json accepts as a name in a tag.
func validName(s string) bool {
	for _, r := range s {
		if !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return false
		}
	}
	return s != ""
}

// dominant picks one field for each name and sorts them by position.
func dominant(all []structField) []structField {
	sort.SliceStable(all, func(i, j int) bool {
		a, b := &all[i], &all[j]
		return cmp.Or(
			strings.Compare(a.name, b.name),
			cmp.Compare(len(a.index), len(b.index)),
			-compareBool(a.tagged, b.tagged),
			slices.Compare(a.index, b.index)) < 0
	})
	var out []structField
	for i := 0; i < len(all); {
		n := i + 1
		for n < len(all) && all[n].name == all[i].name {
			n++
		}
		unique := n == i+1 || len(all[i].index) != len(all[i+1].index) || all[i].tagged != all[i+1].tagged
		if unique {
			out = append(out, all[i])
		}
		i = n
	}
	sort.Slice(out, func(i, j int) bool { return slices.Compare(out[i].index, out[j].index) < 0 })
	return out
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
