package jsonedit

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSplice(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		path       []string
		value      string
		want       string
	}{
		{"id", `{"jsonrpc":"2.0", "id" : 7 ,"method":"x"}`, []string{"id"}, `"q"`, `{"jsonrpc":"2.0", "id" : "q" ,"method":"x"}`},
		{"escaped name", `{"i\u0064":7}`, []string{"id"}, `8`, `{"i\u0064":8}`},
		{"deep", `{"a":[1,{"b":2}],"b":{"c":{"d":"x"},"d":1}}`, []string{"b", "c", "d"}, `null`, `{"a":[1,{"b":2}],"b":{"c":{"d":null},"d":1}}`},
		{"elements", `{"a":[ 1 , [2,{"b":3}]]}`, []string{"a", "1", "1", "b"}, `4`, `{"a":[ 1 , [2,{"b":4}]]}`},
		{"first of duplicate names", `{"id":1,"id":2}`, []string{"id"}, `3`, `{"id":3,"id":2}`},
		{"case", `{"ID":1,"id":2}`, []string{"id"}, `3`, `{"ID":1,"id":3}`},
		{"big numbers are not rounded", `{"n":123456789012345678901234567890.0e0,"id":1}`, []string{"id"}, `2`, `{"n":123456789012345678901234567890.0e0,"id":2}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at := Locate([]byte(tt.text), tt.path...)
			if !at.Found() {
				t.Fatal("not found")
			}
			if diff := cmp.Diff(tt.want, string(Splice([]byte(tt.text), at, []byte(tt.value)))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestLocateNothing(t *testing.T) {
	for _, tt := range []struct {
		text string
		path []string
	}{
		{`{}`, []string{"id"}},
		{`{"a":1}`, []string{"a", "b"}},
		{`{"a":["b"]}`, []string{"a", "b"}},
		{`[]`, []string{"id"}},
		{`[1,2]`, []string{"2"}},
		{`[1,2]`, []string{"01"}},
		{`{"a":{"b":{}}}`, []string{"a", "b", "c"}},
	} {
		if at := Locate([]byte(tt.text), tt.path...); at.Found() {
			t.Errorf("Locate(%s, %q) = %v, want nothing", tt.text, tt.path, at)
		}
	}
}
