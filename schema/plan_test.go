package schema

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// TestManyFields checks a struct with more fields than the bit sets on the stack hold.
func TestManyFields(t *testing.T) {
	const n = 300
	var fields []reflect.StructField
	var members []string
	for i := range n {
		f := reflect.StructField{Name: fmt.Sprintf("F%d", i), Type: reflect.TypeFor[int]()}
		if i == 7 || i == 290 {
			f.Tag = `schema:"default=5"`
		} else {
			members = append(members, fmt.Sprintf(`"F%d":%d`, i, i))
		}
		fields = append(fields, f)
	}
	typ := reflect.StructOf(fields)
	p, err := newPlan(typ, nil)
	if err != nil {
		t.Fatal(err)
	}
	decode := func(text string) (reflect.Value, []finding) {
		v := newAddress(typ)
		d := decoder{cursor: cursor{b: []byte(text)}, plan: p}
		d.value(p.root, v)
		return v.value(typ), d.found
	}
	v, found := decode("{" + strings.Join(members, ",") + "}")
	for i := range n {
		want := int64(i)
		if i == 7 || i == 290 {
			want = 5
		}
		if got := v.Field(i).Int(); got != want {
			t.Errorf("F%d: got %d, want %d", i, got, want)
		}
	}
	if len(found) > 0 {
		t.Error(found)
	}
	_, found = decode("{" + strings.Join(members[:len(members)-1], ",") + `,"F7":1,"F7":2}`)
	if len(found) != 2 || found[0].msg != `duplicate property "F7"` || found[1].msg != `missing required property "F299"` {
		t.Error(found)
	}
}

// TestNames checks unusual names in tags.
func TestNames(t *testing.T) {
	field := func(name string, tag reflect.StructTag) reflect.StructField {
		return reflect.StructField{Name: name, Type: reflect.TypeFor[bool](), Tag: tag}
	}
	p, err := newPlan(reflect.StructOf([]reflect.StructField{
		field("A", `json:"-"`), field("B", `json:"-,"`), field("C", `json:",omitempty"`), field("D", `json:"a/b~c"`),
		field("E", `json:"bad\"name"`), field("F", `json:"é €5"`), field("G", `json:"x"`), field("H", `json:"x"`),
	}), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(p.root.fields.names, "|"), `-|C|a/b~c|E|F`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
