package schema_test

import (
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"mcpwire/schema"
)

// appended returns the encoding of v, or the error's text.
func appended[T any](t testing.TB, v T, opts *schema.Options) string {
	t.Helper()
	out, err := of[T](t, opts).Append([]byte("x"), &v)
	if err != nil {
		if string(out) != "x" {
			t.Errorf("dst is %q after an error", out)
		}
		return "error: " + err.Error()
	}
	return strings.TrimPrefix(string(out), "x")
}

type (
	// failing cannot be encoded.
	failing struct{}
	// multiline has a method that returns JSON with line breaks, or invalid JSON.
	multiline struct{ bad bool }
	never     struct{}
	someZero  struct{ n int }
	zeroes    struct {
		A someZero   `json:"a,omitzero"`
		B *someZero  `json:"b,omitzero"`
		C time.Time  `json:"c,omitzero"`
		D any        `json:"d,omitzero"`
		E [2]int     `json:"e,omitzero"`
		F point      `json:"f,omitzero"`
		G [0]int     `json:"g,omitempty"`
		H *int       `json:"h,omitempty"`
		I any        `json:"i,omitempty"`
		J point      `json:"j,omitempty"`
		K []int      `json:"k,omitzero"`
		L []int      `json:"l,omitempty,omitzero"`
		M float64    `json:"m,omitempty"`
		N complexish `json:"n,omitempty"`
	}
	complexish uint8
	onlyOut    struct{ C int }
)

func (failing) MarshalText() ([]byte, error) { return nil, errors.New("no text") }
func (*failing) UnmarshalText([]byte) error  { return nil }
func (m multiline) MarshalJSON() ([]byte, error) {
	if m.bad {
		return []byte("{"), nil
	}
	return []byte("{\n  \"a\": [ 1,\n 2 ]\n}\n"), nil
}
func (never) UnmarshalText([]byte) error { return nil }
func (s someZero) IsZero() bool          { return s.n == 7 }
func (s someZero) MarshalText() ([]byte, error) {
	return []byte(strings.Repeat("i", s.n)), nil
}
func (s *someZero) UnmarshalText(b []byte) error { s.n = len(b); return nil }
func (onlyOut) MarshalText() ([]byte, error)     { return []byte("out"), nil }

func TestAppend(t *testing.T) {
	loopMap := map[string]any{}
	loopMap["a"] = []any{loopMap}
	var loopPtr any
	loopPtr = &loopPtr
	loopNode := &node{}
	loopNode.Next = loopNode
	for _, c := range []struct{ name, got, want string }{
		{"string", appended(t, "a\"\\\n\x01<>&\u2028é\xffz", nil), "\"a\\\"\\\\\\n\\u0001<>&\u2028é\ufffdz\""},
		{"ints", appended(t, []int64{math.MinInt64, 0, math.MaxInt64}, nil), `[-9223372036854775808,0,9223372036854775807]`},
		{"small ints", appended(t, struct {
			A int8
			B int16
			C int32
			D uint8
			E uint32
		}{-128, -32768, math.MinInt32, 255, math.MaxUint32}, nil), `{"A":-128,"B":-32768,"C":-2147483648,"D":255,"E":4294967295}`},
		{"uint64", appended(t, uint64(math.MaxUint64), nil), `18446744073709551615`},
		{"floats", appended(t, []float64{0, math.Copysign(0, -1), 1, 0.1, 1e20, 1e21, 1e-6, 1e-7, 1.5e-9, 5e-324, 1e100}, nil), `[0,-0,1,0.1,100000000000000000000,1e+21,0.000001,1e-7,1.5e-9,5e-324,1e+100]`},
		{"float32", appended(t, []float32{0.1, 1e21, 16777216, 1e-7}, nil), `[0.1,1e+21,16777216,1e-7]`},
		{"nil slice", appended(t, []int(nil), nil), `[]`},
		{"nil map", appended(t, map[string]int(nil), nil), `{}`},
		{"nil bytes", appended(t, []byte(nil), nil), `""`},
		{"nil any", appended(t, any(nil), nil), `null`},
		{"nil raw", appended(t, json.RawMessage(nil), nil), `null`},
		{"nil pointers", appended(t, []*point{nil, {1, 2}}, nil), `[null,{"x":1,"y":2}]`},
		{"empty struct", appended(t, struct{}{}, nil), `{}`},
		{"raw", appended(t, json.RawMessage("{ \"a\" :\n1 }"), nil), `{"a":1}`},
		{"empty number", appended(t, json.Number(""), nil), `0`},
		{"big", appended(t, []any{new(big.Int).Lsh(big.NewInt(1), 100)}, nil), `[1267650600228229401496703205376]`},
		{"time", appended(t, time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC), nil), `"2026-01-02T03:04:05.0000006Z"`},
		{"map sorted", appended(t, map[int]bool{10: true, 9: false, -1: true}, nil), `{"-1":true,"10":true,"9":false}`},
		{"map by text", appended(t, map[hex]int{255: 1, 16: 2}, nil), `{"0x10":2,"0xff":1}`},
		{"marshaler", appended(t, []multiline{{}}, nil), `[{"a":[1,2]}]`},
		{"pointer receiver in a map", appended(t, map[string]celsius{"a": 3.5}, nil), `{"a":3.5}`},
		{"text", appended(t, hex(31), nil), `"0x1f"`},
		{"encodes but does not decode", appended(t, onlyOut{}, nil), `"out"`},
		{"embedded nil", appended(t, derived{base: base{1, "hidden"}, Name: "n"}, nil), `{"id":1,"name":"n"}`},
		{"embedded", appended(t, derived{Opts: &Opts{true}}, nil), `{"id":0,"deep":true,"name":""}`},
		{"omit all", appended(t, zeroes{A: someZero{7}, G: [0]int{}}, nil), `{"j":{"x":0,"y":0}}`},
		{"omit none", appended(t, zeroes{B: &someZero{1}, C: time.Unix(0, 0).UTC(), D: 0, E: [2]int{1}, F: point{1, 0}, H: ptr(0), I: "", K: []int{}, L: []int{1}, M: 1, N: 1}, nil),
			`{"a":"","b":"i","c":"1970-01-01T00:00:00Z","d":0,"e":[1,0],"f":{"x":1,"y":0},"h":0,"i":"","j":{"x":0,"y":0},"k":[],"l":[1],"m":1,"n":1}`},
		{"any of structs", appended(t, []any{point{1, 2}, &point{3, 4}, map[string]any{"b": level("x"), "a": uint8(3)}, []level{"low"}, json.RawMessage(" 1"), (*int)(nil)}[:2:2], nil), `[{"x":1,"y":2},{"x":3,"y":4}]`},
		{"any of more", appended(t, []any{map[string]any{"b": int8(1), "a": float32(0.5)}, []string{"s"}, json.RawMessage(" 1 "), (*int)(nil), json.Number("1.50"), true}, nil),
			`[{"a":0.5,"b":1},["s"],1,null,1.50,true]`},
		{"own", appended(t, nameRange{1, 2}, nil), `{"from":1,"to":2}`},

		{"NaN", appended(t, []float64{1, math.NaN()}, nil), `error: result[1]: expected a finite number, got NaN, which JSON cannot express`},
		{"Inf", appended(t, map[string]any{"a": math.Inf(-1)}, nil), `error: result.a: expected a finite number, got -Inf, which JSON cannot express`},
		{"bad number", appended(t, struct{ N json.Number }{"1x"}, nil), `error: result.N: expected a number in the json.Number, got "1x"`},
		{"bad raw", appended(t, struct{ R json.RawMessage }{json.RawMessage("{")}, nil), `error: schema: result.R: text of json.RawMessage: invalid JSON at byte 1: unexpected end of text, want a member name in quotes`},
		{"bad marshaler", appended(t, map[string][]multiline{"k": {{}, {bad: true}}}, nil), `error: schema: result.k[1]: MarshalJSON of schema_test.multiline: invalid JSON at byte 1: unexpected end of text, want a member name in quotes`},
		{"failing", appended(t, failing{}, nil), `error: schema: result: MarshalText of schema_test.failing: no text`},
		{"never", appended(t, never{}, nil), `error: schema: values of type schema_test.never can only be received, not sent`},
		{"chan in any", appended(t, []any{make(chan int)}, nil), `error: schema: cannot encode a value of type chan int: type chan int has no JSON form`},
		{"constraints", appended(t, struct {
			A int      `json:"a" schema:"minimum=1"`
			B string   `json:"b" schema:"maxLength=2"`
			C level    `json:"c"`
			D []int    `json:"d" schema:"minItems=1,uniqueItems"`
			E weight   `json:"e"`
			F uint8    `json:"f" schema:"maximum=9"`
			G *float64 `json:"g" schema:"exclusiveMinimum=0"`
		}{0, "abc", "mid", []int{1, 1}, 3, 10, ptr(0.0)}, nil),
			`error: result.a: expected integer of at least 1, got 0; result.b: expected at most 2 characters, got 3; result.c: expected one of "low", "high", got string "mid"; ` +
				`result.d: expected unique items, but items 0 and 1 are equal; result.e: expected one of 1, 2, 500, got number 3; result.f: expected integer between 0 and 9, got 10; ` +
				`result.g: expected a number greater than 0, got 0`},
		{"value outside of its own schema", appended(t, []celsius{-300}, nil), `error: result[0]: expected a number of at least -273.15, got -300`},
		{"nil root", appended(t, (*point)(nil), nil), `error: result: expected a value, got a nil *schema_test.point`},
		{"equal member names", appended(t, map[string]int{"\xff": 1, "\xfe": 2}, nil), `error: result: duplicate property "` + "\ufffd" + `"`},
		{"year", appended(t, time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), nil), `error: schema: result: AppendText of time.Time: Time.AppendText: year outside of range [0,9999]`},
		{"cycle of maps", appended(t, loopMap, &schema.Options{MaxDepth: 4}), `error: result.a[0].a[0]: nested more than 4 levels deep`},
		{"cycle of nodes", appended(t, loopNode, &schema.Options{MaxDepth: 2}), `error: result.next.next: nested more than 2 levels deep`},
		{"cycle of interfaces", appended(t, loopPtr, nil), `error: result: nested more than 512 levels deep`},
	} {
		if c.got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, c.got, c.want)
		}
	}
}

func TestAppendErrors(t *testing.T) {
	_, err := of[failing](t, nil).Append(nil, &failing{})
	var bad *schema.Error
	if errors.As(err, &bad) {
		t.Error("a failing method is no *schema.Error")
	}
	loop := &node{}
	loop.Next = loop
	_, err = of[*node](t, nil).Append(nil, &loop)
	if !errors.As(err, &bad) || !errors.Is(err, schema.ErrLimit) {
		t.Errorf("got %v, want an ErrLimit", err)
	}
}
