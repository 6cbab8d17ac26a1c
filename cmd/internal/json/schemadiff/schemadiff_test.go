package schemadiff_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/cmd/internal/json/schemadiff"
)

func TestCompare(t *testing.T) {
	for _, tt := range []struct {
		name, before, after string
		input, output       string // lines of pointer, impact and reason
	}{
		{"equal", `{"type":"object"}`, `{ "type": "object" }`, "", ""},
		{"words", `{"title":"a"}`, `{"title":"b","description":"c"}`, "/description words the description changed\n/title words the title changed", "/description words the description changed\n/title words the title changed"},
		{"required argument", `{"properties":{"a":{}}}`, `{"properties":{"a":{},"b":{}},"required":["b"]}`, `/required breaking "b" is required now`, `/required compatible "b" is required now`},
		{"optional argument", `{"properties":{"a":{}}}`, `{"properties":{"a":{},"b":{}}}`, `/properties/b compatible "b" was added, and is optional`, `/properties/b compatible "b" was added, and is optional`},
		{"optional, additional properties rejected before", `{"properties":{},"additionalProperties":false}`, `{"properties":{"b":{}},"additionalProperties":false}`, `/properties/b compatible "b" is allowed now`, `/properties/b breaking "b" is allowed now`},
		{"not required", `{"required":["a"]}`, `{}`, `/required compatible "a" is optional now`, `/required breaking "a" is optional now`},
		{"dropped", `{"properties":{"a":{}}}`, `{"properties":{}}`, `/properties/a unclear "a" was removed`, `/properties/a unclear "a" was removed`},
		{"dropped, closed", `{"properties":{"a":{}},"additionalProperties":false}`, `{"additionalProperties":false}`, `/properties/a breaking "a" is no longer allowed`, `/properties/a compatible "a" is no longer allowed`},
		{"additional properties rejected now", `{}`, `{"additionalProperties":false}`, `/additionalProperties breaking other properties are no longer allowed`, `/additionalProperties compatible other properties are no longer allowed`},
		{"type", `{"properties":{"a":{"type":"string"}}}`, `{"properties":{"a":{"type":["string","null"]}}}`, `/properties/a/type compatible null is allowed now`, `/properties/a/type breaking null is allowed now`},
		{"integer", `{"type":"number"}`, `{"type":"integer"}`, `/type breaking number is no longer allowed`, `/type compatible number is no longer allowed`},
		{"enum", `{"enum":["a","b"]}`, `{"enum":["b","c"]}`, "/enum breaking \"a\" is no longer allowed\n/enum compatible \"c\" is allowed now", "/enum breaking \"c\" is allowed now\n/enum compatible \"a\" is no longer allowed"},
		{"const", `{"const":1}`, `{"enum":[1]}`, "", ""},
		{"bounds", `{"minimum":1,"maxLength":10}`, `{"minimum":2,"maxLength":20}`, "/minimum breaking minimum was 1 and is 2\n/maxLength compatible maxLength was 10 and is 20", "/maxLength breaking maxLength was 10 and is 20\n/minimum compatible minimum was 1 and is 2"},
		{"same bound", `{"minimum":1}`, `{"minimum":1.0}`, "", ""},
		{"pattern", `{"pattern":"^a"}`, `{"pattern":"^b"}`, `/pattern unclear pattern was "^a" and is "^b"`, `/pattern unclear pattern was "^a" and is "^b"`},
		{"items", `{"items":{"type":"string"}}`, `{"items":{"type":"number"}}`, "/items/type breaking string is no longer allowed\n/items/type compatible number, integer is allowed now", "/items/type breaking number, integer is allowed now\n/items/type compatible string is no longer allowed"},
		{"anyOf", `{"anyOf":[{}]}`, `{"anyOf":[{},{}]}`, `/anyOf unclear the keyword "anyOf" differs`, `/anyOf unclear the keyword "anyOf" differs`},
		{"reference", `{"properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"type":"string"}}}`, `{"properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"type":"string","maxLength":3}}}`, "/properties/a/maxLength breaking maxLength is 3 now", "/properties/a/maxLength compatible maxLength is 3 now"},
		{"nothing", `{}`, `false`, " breaking no value is allowed now", " compatible no value is allowed now"},
		{"no schema", `{}`, `7`, " unclear one of the two is not a schema, or nested too deeply", " unclear one of the two is not a schema, or nested too deeply"},
		{"odd name", `{"properties":{"a/b~":{"type":"string"}}}`, `{"properties":{"a/b~":{"type":"null"}}}`, "/properties/a~1b~0/type breaking string is no longer allowed\n/properties/a~1b~0/type compatible null is allowed now", "/properties/a~1b~0/type breaking null is allowed now\n/properties/a~1b~0/type compatible string is no longer allowed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for side, want := range map[schemadiff.Direction]string{schemadiff.Input: tt.input, schemadiff.Output: tt.output} {
				var got []string
				for _, c := range schemadiff.Compare([]byte(tt.before), []byte(tt.after), side) {
					got = append(got, fmt.Sprint(c.Pointer, " ", c.Impact, " ", c.Why))
				}
				if diff := cmp.Diff(want, strings.Join(got, "\n")); diff != "" {
					t.Errorf("output %v (-want +got):\n%s", side, diff)
				}
			}
		})
	}
}

// TestHostile shows that the comparison ends for recursive and for deep schemas.
func TestHostile(t *testing.T) {
	loop := `{"$ref":"#"}`
	schemadiff.Compare([]byte(loop), []byte(`{"$ref":"#/a","a":{"$ref":"#/a"}}`), schemadiff.Input)
	tree := `{"properties":{"a":{"$ref":"#"}}}`
	if got := schemadiff.Compare([]byte(tree), []byte(tree), schemadiff.Input); len(got) != 0 {
		t.Errorf("changes between equal recursive schemas: %v", got)
	}
	deep := strings.Repeat(`{"items":`, 5000) + `{}` + strings.Repeat(`}`, 5000)
	deeper := strings.Repeat(`{"items":`, 5000) + `{"type":"string"}` + strings.Repeat(`}`, 5000)
	if got := schemadiff.Compare([]byte(deep), []byte(deeper), schemadiff.Input); len(got) == 0 || got[0].Impact != schemadiff.Unclear {
		t.Errorf("deep schemas: got %v, want an unclear change first", got)
	}
	wide := `{"properties":{"a":{"$ref":"#"},"b":{"$ref":"#"},"c":{"$ref":"#"}}}`
	if got := schemadiff.Compare([]byte(wide), []byte(wide), schemadiff.Input); len(got) != 0 {
		t.Errorf("changes between equal schemas with three self-references: %v", got)
	}
}

// TestPairs compares two cycles of references of different lengths, which give very many pairs.
func TestPairs(t *testing.T) {
	circle := func(n int, leaf string) []byte {
		var b strings.Builder
		b.WriteString(`{"properties":{"x":{"$ref":"#/$defs/n0"}},"$defs":{`)
		for i := range n {
			fmt.Fprintf(&b, `"n%d":{"description":"%s","properties":{"a":{"$ref":"#/$defs/n%d"},"b":{"$ref":"#/$defs/n%d"}}},`, i, leaf, (i+1)%n, (2*i+1)%n)
		}
		return []byte(b.String() + `"last":{}}}`)
	}
	got := schemadiff.Compare(circle(401, "old"), circle(397, "new"), schemadiff.Input)
	if len(got) == 0 || len(got) > 1000 {
		t.Fatalf("%d changes, want 1 to 1000", len(got))
	}
	if worst := got[0].Impact; worst != schemadiff.Annotations && worst != schemadiff.Unclear {
		t.Errorf("the worst change is %q", worst)
	}
}

func ExampleCompare() {
	before := `{"properties":{"q":{"type":"string"}}}`
	after := `{"properties":{"q":{"type":"string","maxLength":100},"limit":{"type":"integer"}}}`
	for _, c := range schemadiff.Compare([]byte(before), []byte(after), schemadiff.Input) {
		fmt.Println(c.Impact, c.Pointer, c.Why)
	}
	// Output:
	// breaking /properties/q/maxLength maxLength is 100 now
	// compatible /properties/limit "limit" was added, and is optional
}
