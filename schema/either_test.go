package schema_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/schema"
)

type nameOrNames = schema.Either[string, []string]

type endless struct {
	Next schema.Either[string, []endless]
}

type embedsEither struct {
	nameOrNames
	C int
}

func TestEither(t *testing.T) {
	const anyOf = `{"anyOf":[{"type":"string"},{"type":"array","items":{"type":"string"}}]}`
	type args struct {
		Names nameOrNames                                    `json:"names" jsonschema:"one or more"`
		More  *schema.Either[int8, point]                    `json:"more,omitempty"`
		Three schema.Either[int, schema.Either[bool, point]] `json:"three,omitzero"`
	}
	schemaText := string(of[args](t, nil).JSON())
	for _, want := range []string{`"names":{"allOf":[` + anyOf + `],"description":"one or more"}`, `"required":["names"]`} {
		if !strings.Contains(schemaText, want) {
			t.Errorf("schema: got %s, want %s in it", schemaText, want)
		}
	}
	for _, tt := range []struct {
		text string
		// want is the value, encoded again, or an error.
		want string
	}{
		{`{"names":"a"}`, ``},
		{`{"names":["a","b"]}`, ``},
		{`{"names":[]}`, ``},
		{`{"names":"a","more":5}`, ``},
		{`{"names":"a","more":{"x":1,"y":2}}`, ``},
		{`{"names":"a","more":null}`, `{"names":"a"}`},
		{`{"names":"a","three":1}`, ``},
		{`{"names":"a","three":true}`, ``},
		{`{"names":"a","three":{"x":1,"y":2}}`, ``},
		{`{}`, `arguments: missing required property "names"`},
		{`{"names":null}`, `arguments.names: matches none of the alternatives; 1: expected string`},
		{`{"names":5}`, `arguments.names: matches none of the alternatives; 1: expected string`},
		{`{"names":["a",5]}`, `arguments.names`},
		{`{"names":"a","more":1000}`, `arguments.more`},
		{`{"names":"a","more":{"x":1,"z":2}}`, `arguments.more`},
	} {
		typed := of[args](t, nil)
		var v args
		err := typed.Decode([]byte(tt.text), &v)
		got := ""
		if err != nil {
			got = err.Error()
		} else if text, err := typed.Append(nil, &v); err != nil {
			got = err.Error()
		} else {
			got = string(text)
		}
		if tt.want == "" {
			tt.want = tt.text
		}
		if !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: got %s, want %s", tt.text, got, tt.want)
		}
		if err == nil && v.More == nil && v.Three == (schema.Either[int, schema.Either[bool, point]]{}) {
			if text, err := json.Marshal(v.Names); err != nil || !strings.Contains(tt.want, string(text)) {
				t.Errorf("%s: encoding/json: got %s, %v", tt.text, text, err)
			}
		}
	}
	if got := decode[schema.Either[float64, int]](t, `5`, nil); !cmp.Equal(got, schema.Either[float64, int]{A: ptr(5.0)}) {
		t.Errorf("valid for both: got %v", got)
	}
	if got := decode[embedsEither](t, `{"A":"x","B":null,"C":1}`, nil); fmt.Sprintf("%T", got) != "schema_test.embedsEither" {
		t.Errorf("embedded: got %v", got)
	}
	if text, err := of[nameOrNames](t, nil).Append(nil, &nameOrNames{}); err == nil {
		t.Errorf("nothing is set: got %s", text)
	}
	for name, make := range map[string]func() error{
		"recursive":                   func() error { _, err := schema.Of[endless](nil); return err },
		"recursive in an alternative": func() error { _, err := schema.Of[schema.Either[eitherTree, string]](nil); return err },
		"no JSON form":                func() error { _, err := schema.Of[schema.Either[int, chan int]](nil); return err },
	} {
		if err := make(); err == nil || !strings.Contains(err.Error(), "schema.Either[") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestAllowQuoted(t *testing.T) {
	type args struct {
		I int8    `json:"i,omitempty" schema:"maximum=9"`
		U uint    `json:"u,omitempty"`
		F float32 `json:"f,omitempty"`
		B bool    `json:"b,omitempty"`
		S string  `json:"s,omitempty"`
		N []int   `json:"n,omitempty"`
	}
	allowed := &schema.Options{AllowQuoted: true}
	for _, tt := range []struct {
		text string
		want any
	}{
		{`{"i":"5"}`, args{I: 5}},
		{`{"i":5,"u":"7","f":"-1.5e1","b":"true","s":"5","n":["1",2]}`, args{I: 5, U: 7, F: -15, B: true, S: "5", N: []int{1, 2}}},
		{`{"b":"false","u":"1e2"}`, args{U: 100}},
		{`{"i":"10"}`, `arguments.i: expected integer of at most 9, got 10`},
		{`{"u":"-1"}`, `arguments.u: expected integer`},
		{`{"i":"1.5"}`, `arguments.i: expected integer, got number 1.5`},
		{`{"i":""}`, `arguments.i: expected integer, got string ""`},
		{`{"i":"five"}`, `arguments.i: expected integer, got string "five"`},
		{`{"i":"5 "}`, `arguments.i: expected integer, got string "5 "`},
		{`{"i":"05"}`, `arguments.i: expected integer, got string "05"`},
		{`{"i":"[5]"}`, `arguments.i: expected integer, got string "[5]"`},
		{`{"i":"true"}`, `arguments.i: expected integer, got string "true"`},
		{`{"b":"True"}`, `arguments.b: expected boolean, got string "True"`},
		{`{"b":"1"}`, `arguments.b: expected boolean, got string "1"`},
		{`{"s":5}`, `arguments.s: expected string, got number 5`},
		{`{"n":"[1]"}`, `arguments.n: expected array`},
	} {
		got := decode[args](t, tt.text, allowed)
		message, _ := tt.want.(string)
		if text, failed := got.(string); failed != (message != "") || failed && !strings.HasPrefix(text, message) || !failed && !cmp.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.text, got, tt.want)
		}
	}
	if got := decode[args](t, `{"i":"5"}`, nil); got != `arguments.i: expected integer, got string "5"` {
		t.Errorf("by default: got %v", got)
	}
	if got, want := string(of[args](t, allowed).JSON()), string(of[args](t, nil).JSON()); got != want {
		t.Errorf("schema: got %s, want %s", got, want)
	}
}

// An eitherTree contains itself.
type eitherTree struct {
	Children []eitherTree `json:"children"`
}
