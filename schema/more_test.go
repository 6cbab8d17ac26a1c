package schema_test

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/schema"
	"mcpwire/schema/fullschema"
)

// sealed gives a schema that only a full engine can hold.
type sealed struct {
	A int `json:"a,omitempty"`
	B int `json:"b,omitempty"`
}

func (sealed) JSONSchema() []byte {
	return []byte(`{"type":"object","allOf":[{"properties":{"a":{"type":"integer"}}}],"unevaluatedProperties":false}`)
}

// letter has more values than are compared one by one.
type letter string

func (letter) JSONSchemaEnum() []string { return strings.Split("abcdefghijklmnopqrstuvwxyz", "") }

// mood embeds an enum, and is none.
type mood struct {
	level
	Text string `json:"text"`
}

func TestEngineOption(t *testing.T) {
	if got, want := schemaOf[sealed](nil), `error: schema: type schema_test.sealed: JSONSchema: schema: #: unevaluatedProperties: this keyword is not compiled here; `+
		`compile with a full engine (package schema/fullschema) or write the schema without it`; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	opts := &schema.Options{Engine: fullschema.Engine}
	if diff := cmp.Diff([]sealed{{A: 1}}, decode[[]sealed](t, `[{"a":1}]`, opts)); diff != "" {
		t.Error(diff)
	}
	if got, want := decode[[]sealed](t, `[{"b":1}]`, opts), any(`arguments[0]: .b: false schema`); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := appended(t, sealed{B: 1}, opts), `error: result: .b: false schema`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestManyValues(t *testing.T) {
	if got, want := decode[[]letter](t, `["z","\u0061"]`, nil), any([]letter{"z", "a"}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	list := `"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t", ... (26 in all)`
	if got, want := decode[letter](t, `"aa"`, nil), any(`arguments: expected one of `+list+`, got string "aa"`); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := appended(t, letter("m"), nil), `"m"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := appended(t, letter(""), nil), `error: result: expected one of `+list+`, got string ""`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestEmbeddedEnum(t *testing.T) {
	if got, want := decode[mood](t, `{"text":"x"}`, nil), any(mood{Text: "x"}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestManyMembers covers more members than fit the sets on the stack.
func TestManyMembers(t *testing.T) {
	const n = 300
	var members, props []string
	for i := range n {
		members = append(members, fmt.Sprintf(`"F%d":%d`, n-1-i, n-1-i))
		props = append(props, fmt.Sprintf(`"F%d":{"type":"integer"}`, i))
	}
	v, err := schema.Compile([]byte(`{"properties":{`+strings.Join(props, ",")+`},"required":["F299","F0"],"additionalProperties":false}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Validate([]byte("{" + strings.Join(members, ",") + "}")); err != nil {
		t.Error(err)
	}
	if got, want := errText(v.Validate([]byte("{"+strings.Join(members[1:], ",")+"}"))), `arguments: missing required property "F299"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestConcurrent uses one plan from several goroutines, also for types that it
// learns of only while encoding.
func TestConcurrent(t *testing.T) {
	typed := of[any](t, nil)
	v, err := schema.Compile([]byte(`{"items":{"properties":{"x":{"pattern":"^1"},"y":{"enum":[1,2]}},"uniqueItems":true}}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				in := any([]any{point{1, 2}, &node{Value: 3}, []level{"low"}, map[hex]any{1: point{}}})
				out, err := typed.Append(nil, &in)
				if err == nil {
					err = v.Validate(out)
				}
				var back any
				if err == nil {
					err = typed.Decode(out, &back)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
