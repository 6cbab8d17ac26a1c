package schema_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"mcpwire/schema"
)

// nest wraps text in n copies of before and after.
func nest(n int, before, text, after string) string {
	return strings.Repeat(before, n) + text + strings.Repeat(after, n)
}

// exponential returns a schema in which every level evaluates the next one twice.
func exponential(levels int) string {
	var b strings.Builder
	b.WriteString(`{"$ref":"#/$defs/l0","$defs":{`)
	for i := range levels {
		fmt.Fprintf(&b, `"l%d":{"anyOf":[{"$ref":"#/$defs/l%d"},{"$ref":"#/$defs/l%d"}]},`, i, i+1, i+1)
	}
	fmt.Fprintf(&b, `"l%d":{"type":"null"}}}`, levels)
	return b.String()
}

// TestHostile validates pairs that would take endless time or all memory without limits. They must
// end soon or with ErrLimit.
func TestHostile(t *testing.T) {
	many := func(n int, each string) string { return "[" + strings.Repeat(each+",", n-1) + each + "]" }
	numbers := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, ",%d", i)
		}
		return "[" + b.String()[1:] + "]"
	}
	for _, c := range []struct {
		name, schema, in string
		limit            bool // whether to expect ErrLimit, else the instance is valid
	}{
		{"exponential anyOf", exponential(40), `1`, true},
		{"exponential oneOf", strings.ReplaceAll(exponential(40), "anyOf", "oneOf"), `null`, true},
		{"exponential allOf", strings.ReplaceAll(exponential(40), "anyOf", "allOf"), `null`, true},
		{"exponential not", strings.ReplaceAll(strings.ReplaceAll(exponential(40), `"anyOf":[`, `"not":{"allOf":[`), `]}`, `]}}`), `1`, true},
		{"exponential over the instance", `{"anyOf":[{"items":{"$ref":"#"},"minItems":9},{"items":{"$ref":"#"},"minItems":9}],"type":"array"}`, nest(60, "[", "", "]"), true},
		{"propertyNames with many errors", `{"propertyNames":{"anyOf":[` + strings.Repeat(`{"pattern":"(a*)*b"},`, 50) + `false]}}`, `{"` + strings.Repeat("a", 100_000) + `":1}`, true},
		{"deep instance", `{"items":{"$ref":"#"}}`, nest(500, "[", "", "]"), false},
		{"unique numbers", `{"uniqueItems":true}`, numbers(100_000), false},
		{"unique nested", `{"uniqueItems":true,"items":{"$ref":"#"}}`, nest(200, "[", numbers(20_000), "]"), true},
		{"unique objects", `{"uniqueItems":true}`, `[` + strings.Repeat(`{"a":1,"b":[1,2]},`, 1) + numbers(50_000)[1:], false},
		{"enum of many", `{"items":{"enum":` + numbers(5000) + `}}`, many(20_000, "4999"), false},
		{"huge exponent", `{"multipleOf":0.01,"minimum":-1e1000000000,"maximum":1e1000000001,"type":"integer","not":{"const":5}}`, `1e1000000000`, false},
		{"huge negative exponent", `{"multipleOf":1e-1000000001,"exclusiveMinimum":0}`, `1e-1000000000`, false},
		{"exponent beyond int64", `{"minimum":1}`, `1e99999999999999999999999999999`, false},
		{"many digits", `{"multipleOf":7}`, strings.Repeat("7", 1_000_000), false},
		{"many digits, big divisor", `{"multipleOf":1111111111111111111111111111}`, strings.Repeat("1", 28*20_000), false},
		{"pattern", `{"items":{"pattern":"^(a|a)*$"}}`, many(100, `"`+strings.Repeat("a", 10_000)+`"`), false},
		{"slow patterns", `{"allOf":[` + strings.Repeat(`{"pattern":"^(a|b|[a-z]{1,300})*x$"},`, 100) + `true]}`, `"` + strings.Repeat("a", 100_000) + `"`, true},
		{"long value, many schemas", `{"allOf":[` + strings.Repeat(`{"required":["a"]},`, 400) + `true]}`, `{"a":"` + strings.Repeat("x", 1_000_000) + `"}`, false},
		{"ref chain", chain(3000), `1`, false},
		{"ref chain too long", chain(5000), `1`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !validJSON([]byte(c.in)) {
				t.Fatal("not JSON")
			}
			v, err := schema.Compile([]byte(c.schema), nil)
			if err != nil {
				t.Fatal(err)
			}
			err = v.Validate([]byte(c.in))
			if c.limit != errors.Is(err, schema.ErrLimit) || !c.limit && err != nil {
				t.Errorf("got %v, want limit %v", err, c.limit)
			}
		})
	}
}

// chain returns a schema of n consecutive references.
func chain(n int) string {
	var b strings.Builder
	b.WriteString(`{"$ref":"#/$defs/0","$defs":{`)
	for i := range n {
		fmt.Fprintf(&b, `"%d":{"$ref":"#/$defs/%d"},`, i, i+1)
	}
	fmt.Fprintf(&b, `"%d":true}}`, n)
	return b.String()
}

func TestLimits(t *testing.T) {
	v, err := schema.Compile([]byte(`{"items":{"type":"integer"}}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	in := []byte(`[1,2,3,4,5,6,7,8,9]`)
	if err := v.Validate(in); err != nil {
		t.Error(err)
	}
	err = v.WithLimits(schema.Limits{MaxSteps: 5}).Validate(in)
	if got, want := errText(err), `arguments: checking this value would take more than 5 steps`; got != want || !errors.Is(err, schema.ErrLimit) {
		t.Errorf("got %s, want %s", got, want)
	}
	tree, err := schema.Compile([]byte(`{"items":{"$ref":"#"}}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	err = tree.WithLimits(schema.Limits{MaxDepth: 5}).Validate([]byte(`[[[[[[[]]]]]]]`))
	if got, want := errText(err), `arguments: nested more than 5 levels deep`; got != want || !errors.Is(err, schema.ErrLimit) {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestDecodeHostile does the same for the decoder.
func TestDecodeHostile(t *testing.T) {
	type args struct {
		M map[string]int `json:"m"`
		L []any          `json:"l" schema:"uniqueItems"`
		N *node          `json:"n"`
	}
	typed := of[args](t, nil)
	var b strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&b, `,"k%d":%d`, i, i)
	}
	members := b.String()[1:]
	deep := nest(400, `{"value":1,"next":`, `{"value":2}`, `}`)
	for _, c := range []struct{ text, want string }{
		{`{"m":{` + members + `},"l":[{` + members + `},{}],"n":` + deep + `}`, "valid"},
		{`{"m":{` + members + `,"k7":1},"l":[]}`, `arguments.m: duplicate property "k7"`},
		{`{` + members + `}`, `arguments: unknown property "k0"; allowed: "m", "l", "n"; arguments: unknown property "k1"; allowed: "m", "l", "n"; ` +
			`arguments: unknown property "k2"; allowed: "m", "l", "n"; arguments: unknown property "k3"; allowed: "m", "l", "n"; arguments: unknown property "k4"; allowed: "m", "l", "n"; ` +
			`arguments: unknown property "k5"; allowed: "m", "l", "n"; arguments: unknown property "k6"; allowed: "m", "l", "n"; arguments: unknown property "k7"; allowed: "m", "l", "n"; there may be more`},
	} {
		var v args
		if got := errText(typed.Decode([]byte(c.text), &v)); got != c.want {
			t.Errorf("got %.300s, want %s", got, c.want)
		}
	}
	var v args
	err := typed.Decode([]byte(`{"m":{},"l":`+nest(600, "[", "", "]")+`}`), &v)
	if !errors.Is(err, schema.ErrLimit) || len(err.Error()) > 300 {
		t.Errorf("got %v", err)
	}
	long := strings.Repeat("é", 100_000)
	err = typed.Decode([]byte(`{"`+long+`":1,"m":{"`+long+`":"`+long+`"}}`), &v)
	if err == nil || len(err.Error()) > 1500 {
		t.Errorf("got %d bytes of error", len(errText(err)))
	}
}

// TestManyPatterns checks many small patterns that take much memory for their length.
func TestManyPatterns(t *testing.T) {
	properties := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`"%dx{900}":{}`, i))
		}
		return `{"patternProperties":{` + strings.Join(all, ",") + `}}`
	}
	if _, err := schema.Compile([]byte(properties(200)), nil); err != nil {
		t.Error(err)
	}
	if _, err := schema.Compile([]byte(properties(1000)), nil); err == nil || !strings.Contains(err.Error(), "too large together") {
		t.Errorf("got %v, want a limit error for all patterns together", err)
	}
}
