package schema_test

import (
	"testing"

	"mcpwire/schema"
)

// TestAllocs limits the allocations of the hot path.
func TestAllocs(t *testing.T) {
	measure := func(name string, want float64, f func() error) {
		t.Helper()
		if err := f(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := testing.AllocsPerRun(200, func() { _ = f() }); got > want {
			t.Errorf("%s: %v allocations, want at most %v", name, got, want)
		}
	}
	echoIn, searchIn := []byte(echoText), []byte(searchText)
	var echo echoArgs
	echoType := of[echoArgs](t, nil)
	measure("decode one string", 1, func() error { return echoType.Decode(echoIn, &echo) })

	var search searchArgs
	searchType := of[searchArgs](t, nil)
	// The query, the slice of tags and three tags; sort is a constant of the enum.
	measure("decode five fields", 5, func() error { return searchType.Decode(searchIn, &search) })

	type flat struct {
		A int64
		B uint8
		C float64
		D bool
		E level
		F [2]int
		G *int `json:",omitempty"`
	}
	var v flat
	flatType := of[flat](t, nil)
	flatText := []byte(`{"A":-5,"B":255,"C":1.5e10,"D":true,"E":"high","F":[1,2]}`)
	measure("decode scalars", 0, func() error { return flatType.Decode(flatText, &v) })

	buf := make([]byte, 0, 4096)
	measure("append scalars", 0, func() error { _, err := flatType.Append(buf, &v); return err })
	measure("append strings and slices", 0, func() error { _, err := searchType.Append(buf, &search); return err })

	for _, c := range []struct{ schema, in string }{
		{string(echoType.JSON()), echoText},
		{string(searchType.JSON()), searchText},
		{`{"type":"object","properties":{"n":{"type":"number","minimum":0.5,"multipleOf":0.1},"k":{"anyOf":[{"type":"null"},{"enum":["a","b"]}]}},"patternProperties":{"^x":{"maxLength":3}}}`,
			`{"n":1.5,"k":"b","x1":"abc"}`},
	} {
		validator, err := schema.Compile([]byte(c.schema), nil)
		if err != nil {
			t.Fatal(err)
		}
		in := []byte(c.in)
		measure("validate "+c.in, 0, func() error { return validator.Validate(in) })
	}
}
