package schema_test

import (
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"mcpwire/schema"
)

// decode returns the decoded value of text, or the error's text.
func decode[T any](t testing.TB, text string, opts *schema.Options) any {
	t.Helper()
	if !validJSON([]byte(text)) {
		t.Fatalf("%s is not JSON", text)
	}
	typed := of[T](t, opts)
	in := []byte(text)
	var v T
	err := typed.Decode(in, &v)
	for i := range in {
		in[i] = '#' // the value must not alias the text
	}
	if err != nil {
		return err.Error()
	}
	return v
}

var compareAll = cmp.Options{
	cmp.Comparer(func(a, b *big.Int) bool { return a == b || a != nil && b != nil && a.Cmp(b) == 0 }),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.AllowUnexported(paint{}, derived{}, everything{}),
	cmpopts.EquateNaNs(),
}

func ptr[T any](v T) *T { return &v }

func TestDecode(t *testing.T) {
	big30, _ := new(big.Int).SetString("123456789012345678901234567890", 10)
	when := time.Date(2026, 2, 3, 4, 5, 6, 700, time.UTC)
	for _, c := range []struct {
		name      string
		got, want any
	}{
		{"string", decode[string](t, `"a\u00e9\n\ud83d\ude00"`, nil), "aé\n😀"},
		{"lone surrogate", decode[string](t, `"a\ud83d!"`, nil), "a\ufffd!"},
		{"empty string", decode[string](t, `""`, nil), ""},
		{"long string", decode[string](t, `"`+strings.Repeat("0123456789", 50)+`\\"`, nil), strings.Repeat("0123456789", 50) + `\`},
		{"bool", decode[[]bool](t, `[true,false]`, nil), []bool{true, false}},
		{"int", decode[int](t, ` -42 `, nil), -42},
		{"int as 1.0", decode[int](t, `1.0`, nil), 1},
		{"int as 1e2", decode[[]int](t, `[1e2,1.5e1,-2E+1,100e-2,0e999999999999,-0]`, nil), []int{100, 15, -20, 1, 0, 0}},
		{"int64 ends", decode[[]int64](t, `[9007199254740993,9223372036854775807,-9223372036854775808,9223372036854775807.0,-9223372036854775808e0]`, nil),
			[]int64{9007199254740993, math.MaxInt64, math.MinInt64, math.MaxInt64, math.MinInt64}},
		{"uint64 end", decode[[]uint64](t, `[18446744073709551615,18446744073709551615.0,-0,0.0,9223372036854775808]`, nil), []uint64{math.MaxUint64, math.MaxUint64, 0, 0, 1 << 63}},
		{"int8 ends", decode[[]int8](t, `[-128,127,1.27e2]`, nil), []int8{-128, 127, 127}},
		{"uint16", decode[uint16](t, `65535`, nil), uint16(65535)},
		{"int32, uint32, uint8", decode[struct {
			A int32
			B uint32
			C uint8
			D uintptr
		}](t, `{"A":-2147483648,"B":4294967295,"C":255,"D":7}`, nil), struct {
			A int32
			B uint32
			C uint8
			D uintptr
		}{math.MinInt32, math.MaxUint32, 255, 7}},
		{"float64", decode[[]float64](t, `[0.1,1e308,-1.5,3,5e-324,1e-400]`, nil), []float64{0.1, 1e308, -1.5, 3, 5e-324, 0}},
		{"float32", decode[float32](t, `0.1`, nil), float32(0.1)},
		{"json.Number", decode[[]json.Number](t, `[1e400,123456789012345678901234567890,1.10]`, nil), []json.Number{"1e400", "123456789012345678901234567890", "1.10"}},
		{"big.Int", decode[[]*big.Int](t, `[123456789012345678901234567890,-1.0,1e3,null,0]`, nil), []*big.Int{big30, big.NewInt(-1), big.NewInt(1000), nil, new(big.Int)}},
		{"any", decode[any](t, `{"a":[1,2.5,"x",true,false,null,{}],"b":9007199254740993,"c":1e400,"d":-9007199254740992,"e":1e20,"f":123456789012345678901}`, nil),
			map[string]any{"a": []any{1.0, 2.5, "x", true, false, nil, map[string]any{}}, "b": json.Number("9007199254740993"), "c": json.Number("1e400"),
				"d": -9007199254740992.0, "e": 1e20, "f": json.Number("123456789012345678901")}},
		{"any with UseNumber", decode[any](t, `[1,2.50]`, &schema.Options{UseNumber: true}), []any{json.Number("1"), json.Number("2.50")}},
		{"raw", decode[json.RawMessage](t, ` {"a" : [1, 2]} `, nil), json.RawMessage(`{"a" : [1, 2]}`)},
		{"bytes", decode[[]byte](t, `"aGVs\u0062G8="`, nil), []byte("hello")},
		{"empty bytes", decode[[]byte](t, `""`, nil), []byte{}},
		{"time", decode[time.Time](t, `"2026-02-03T04:05:06.0000007Z"`, nil), when},
		{"empty slice", decode[[]int](t, `[]`, nil), []int{}},
		{"slice of slices", decode[[][]string](t, `[[],["a"],["b","c"]]`, nil), [][]string{{}, {"a"}, {"b", "c"}}},
		{"long slice", len(decode[[]*int](t, `[`+strings.Repeat("1,null,", 500)+`7]`, nil).([]*int)), 1001},
		{"array", decode[[3]int8](t, `[1,2,3]`, nil), [3]int8{1, 2, 3}},
		{"map", decode[map[string]int](t, `{"a":1,"\u0062":2}`, nil), map[string]int{"a": 1, "b": 2}},
		{"map of slices", decode[map[level][]int](t, `{"low":[1],"x":[]}`, nil), map[level][]int{"low": {1}, "x": {}}},
		{"map by int", decode[map[int8]string](t, `{"-128":"a","0":"b"}`, nil), map[int8]string{-128: "a", 0: "b"}},
		{"map by text", decode[map[hex]string](t, `{"0xff":"a"}`, nil), map[hex]string{255: "a"}},
		{"map of strings", decode[map[string]string](t, `{"a":"b"}`, nil), map[string]string{"a": "b"}},
		{"struct", decode[point](t, `{"y":2,"x":1}`, nil), point{1, 2}},
		{"white space", decode[point](t, "\n{ \"x\" : 1 ,\r\n\t\"y\" :2\n}\n", nil), point{1, 2}},
		{"escaped names", decode[point](t, `{"\u0078":1,"y":2}`, nil), point{1, 2}},
		{"pointer", decode[*point](t, `{"y":2,"x":1}`, nil), &point{1, 2}},
		{"null pointer", decode[struct{ P *int }](t, `{"P":null}`, nil), struct{ P *int }{}},
		{"pointer to pointer", decode[struct{ P **int }](t, `{"P":3}`, nil), struct{ P **int }{ptr(ptr(3))}},
		{"embedded", decode[derived](t, `{"id":1,"name":"n","deep":true}`, nil), derived{base: base{ID: 1}, Opts: &Opts{true}, Name: "n"}},
		{"embedded absent", decode[derived](t, `{"id":1,"name":"n"}`, nil), derived{base: base{ID: 1}, Name: "n"}},
		{"recursive", decode[node](t, `{"value":1,"kids":[{"value":2},null],"next":{"value":3}}`, nil), node{1, []*node{{Value: 2}, nil}, &node{Value: 3}}},
		{"recursive slice", decode[trees](t, `[{"kids":[]}]`, nil), trees{{Kids: trees{}}}},
		{"defaults", decode[struct {
			A int            `json:"a" schema:"default=7"`
			B string         `json:"b" schema:"default=x y"`
			C *bool          `json:"c" schema:"default=true"`
			D map[string]int `json:"d" schema:"default='{\"k\":1}'"`
			E []string       `json:"e" schema:"default='[\"p\",\"q\"]'"`
			F time.Time      `json:"f" schema:"default=2026-02-03T04:05:06.0000007Z"`
			G point          `json:"g" schema:"default='{\"x\":1,\"y\":2}'"`
			H string         `json:"h" schema:"default='it''s'"`
		}](t, `{"h":"given"}`, nil), struct {
			A int            `json:"a" schema:"default=7"`
			B string         `json:"b" schema:"default=x y"`
			C *bool          `json:"c" schema:"default=true"`
			D map[string]int `json:"d" schema:"default='{\"k\":1}'"`
			E []string       `json:"e" schema:"default='[\"p\",\"q\"]'"`
			F time.Time      `json:"f" schema:"default=2026-02-03T04:05:06.0000007Z"`
			G point          `json:"g" schema:"default='{\"x\":1,\"y\":2}'"`
			H string         `json:"h" schema:"default='it''s'"`
		}{7, "x y", ptr(true), map[string]int{"k": 1}, []string{"p", "q"}, when, point{1, 2}, "given"}},
		{"type of another package", decode[[]netip.Addr](t, `["192.0.2.1"]`, foreignTypes), []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
		{"known type, own schema", decode[time.Time](t, `"2026-01-02T03:04:05Z"`, &schema.Options{Types: map[reflect.Type]json.RawMessage{reflect.TypeFor[time.Time](): json.RawMessage(`{"maxLength":20}`)}}), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)},
		{"unknown allowed", decode[point](t, `{"x":1,"z":{"a":[1]},"y":2,"zz":null}`, &schema.Options{AllowUnknown: true}), point{1, 2}},
		{"enum", decode[[]level](t, `["low","h\u0069gh"]`, nil), []level{"low", "high"}},
		{"enum of numbers", decode[[]weight](t, `[1,5e2]`, nil), []weight{1, 500}},
		{"text", decode[netip.Addr](t, `"10.0.0.1"`, nil), netip.MustParseAddr("10.0.0.1")},
		{"json", decode[[]paint](t, `["#0102ff"]`, nil), []paint{{1, 2, 255}}},
		{"own", decode[celsius](t, `-273.15`, nil), celsius(-273.15)},
		{"own struct", decode[nameRange](t, `{"from":1,"other":[1]}`, nil), nameRange{From: 1}},
	} {
		if diff := cmp.Diff(c.want, c.got, compareAll); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

type wide struct {
	A, B, C, D, E, F, G, H, I, J string
	K                            int `json:"k,omitempty" schema:"minimum=1,maximum=10"`
}

func TestDecodeMessages(t *testing.T) {
	type args struct {
		Text  string   `json:"text"`
		Limit int      `json:"limit,omitempty" schema:"minimum=1,maximum=100"`
		Tags  []string `json:"tags,omitempty" schema:"maxItems=2,uniqueItems,items.minLength=1"`
	}
	for _, c := range []struct {
		got  any
		want string
	}{
		{decode[args](t, `{"text":"x","limit":"ten"}`, nil), `arguments.limit: expected integer, got string "ten"`},
		{decode[args](t, `{}`, nil), `arguments: missing required property "text"`},
		{decode[args](t, `{"text":"x","Limit":1}`, nil), `arguments: unknown property "Limit"; allowed: "text", "limit", "tags"`},
		{decode[args](t, `{"text":"x","limit":1.5}`, nil), `arguments.limit: expected integer, got number 1.5`},
		{decode[args](t, `{"text":"x","limit":101}`, nil), `arguments.limit: expected integer between 1 and 100, got 101`},
		{decode[args](t, `{"text":null}`, nil), `arguments.text: expected string, got null`},
		{decode[args](t, `{"text":["x"]}`, nil), `arguments.text: expected string, got array`},
		{decode[args](t, `{"text":"x","text":"y"}`, nil), `arguments: duplicate property "text"`},
		{decode[args](t, `{"text":"x","te\u0078t":"y"}`, nil), `arguments: duplicate property "text"`},
		{decode[args](t, `{"text":"x","tags":["a","","a"]}`, nil), `arguments.tags[1]: expected at least 1 character, got 0; arguments.tags: expected at most 2 items, got 3; arguments.tags: expected unique items, but items 0 and 2 are equal`},
		{decode[args](t, `{"text":"x","tags":["a","a"]}`, nil), `arguments.tags: expected unique items, but items 0 and 1 are equal`},
		{decode[args](t, `[]`, nil), `arguments: expected object, got array`},
		{decode[args](t, `{"limit":0,"tags":"a","x":1}`, nil),
			`arguments.limit: expected integer between 1 and 100, got 0; arguments.tags: expected array, got string "a"; arguments: unknown property "x"; allowed: "text", "limit", "tags"; arguments: missing required property "text"`},
		{decode[*args](t, `null`, nil), `arguments: expected object, got null`},
		{decode[int](t, `9223372036854775808`, nil), `arguments: expected integer between -9223372036854775808 and 9223372036854775807, got 9223372036854775808`},
		{decode[int](t, `1e400`, nil), `arguments: expected integer between -9223372036854775808 and 9223372036854775807, got 1e400`},
		{decode[int](t, `1e-1000000000`, nil), `arguments: expected integer, got number 1e-1000000000`},
		{decode[int8](t, `128`, nil), `arguments: expected integer between -128 and 127, got 128`},
		{decode[uint](t, `-1`, nil), `arguments: expected integer between 0 and 18446744073709551615, got -1`},
		{decode[uint64](t, `18446744073709551616`, nil), `arguments: expected integer between 0 and 18446744073709551615, got 18446744073709551616`},
		{decode[struct {
			N int `schema:"minimum=1"`
		}](t, `{"N":0}`, nil), `arguments.N: expected integer of at least 1, got 0`},
		{decode[struct {
			N int `schema:"exclusiveMaximum=10"`
		}](t, `{"N":10}`, nil), `arguments.N: expected integer of at most 9, got 10`},
		{decode[struct {
			N int `schema:"multipleOf=5"`
		}](t, `{"N":12}`, nil), `arguments.N: expected a multiple of 5, got 12`},
		{decode[struct {
			N int `schema:"minimum=0.5"`
		}](t, `{"N":0}`, nil), `arguments.N: expected a number of at least 0.5, got 0`},
		{decode[struct {
			F float64 `schema:"exclusiveMinimum=0"`
		}](t, `{"F":0.0}`, nil), `arguments.F: expected a number greater than 0, got 0.0`},
		{decode[float64](t, `1e400`, nil), `arguments: expected a number within the range of a 64-bit float, got 1e400`},
		{decode[float32](t, `1e39`, nil), `arguments: expected a number within the range of a 32-bit float, got 1e39`},
		{decode[float64](t, `"1"`, nil), `arguments: expected number, got string "1"`},
		{decode[bool](t, `"true"`, nil), `arguments: expected boolean, got string "true"`},
		{decode[big.Int](t, `1e1000000000`, nil), `arguments: expected integer of at most 10000 digits, got 1e1000000000`},
		{decode[big.Int](t, `0.5`, nil), `arguments: expected integer, got number 0.5`},
		{decode[level](t, `"lo"`, nil), `arguments: expected one of "low", "high", got string "lo"`},
		{decode[level](t, `1`, nil), `arguments: expected one of "low", "high", got number 1`},
		{decode[weight](t, `3`, nil), `arguments: expected one of 1, 2, 500, got number 3`},
		{decode[time.Time](t, `"yesterday"`, nil), `arguments: expected RFC 3339 date-time such as 2006-01-02T15:04:05Z, got string "yesterday"`},
		{decode[time.Time](t, `1700000000`, nil), `arguments: expected RFC 3339 date-time such as 2006-01-02T15:04:05Z, got number 1700000000`},
		{decode[[]byte](t, `"a!"`, nil), `arguments: expected string of base64, got string "a!"`},
		{decode[[]byte](t, `[1]`, nil), `arguments: expected string of base64, got array`},
		{decode[[2]int](t, `[1]`, nil), `arguments: expected exactly 2 items, got 1`},
		{decode[[2]int](t, `[1,2,3]`, nil), `arguments: expected exactly 2 items, got 3`},
		{decode[netip.Addr](t, `"x"`, nil), `arguments: invalid string "x": ParseAddr("x"): unable to parse IP`},
		{decode[netip.Addr](t, `{}`, nil), `arguments: expected string, got object`},
		{decode[paint](t, `{"a":1}`, nil), `arguments: invalid value: a color is a string`},
		{decode[[]paint](t, `[{"a":1,"a":2}]`, nil), `arguments[0]: duplicate property "a"`},
		{decode[struct{ R json.RawMessage }](t, `{"R":{"b":[{"a":1,"a":2}]}}`, nil), `arguments.R.b[0]: duplicate property "a"`},
		{decode[any](t, `{"b":[{"a":1,"a":2}]}`, nil), `arguments.b[0]: duplicate property "a"`},
		{decode[map[string]int](t, `{"a":1,"\u0061":2}`, nil), `arguments: duplicate property "a"`},
		{decode[map[string]int](t, `{"a b":"x"}`, nil), `arguments["a b"]: expected integer, got string "x"`},
		{decode[map[int8]int](t, `{"128":1,"01":1,"x":2}`, nil), `arguments: property name "128": expected an integer of 8 bits; arguments: property name "01": expected an integer of 8 bits; arguments: property name "x": expected an integer of 8 bits`},
		{decode[map[uint8]int](t, `{"-1":1}`, nil), `arguments: property name "-1": expected an integer of 8 bits without sign`},
		{decode[map[hex]int](t, `{"zz":1}`, nil), `arguments: property name "zz": input does not match format`},
		{decode[map[hex]int](t, `{"0xa":1,"0x0a":1}`, nil), `arguments: duplicate property "0x0a"`},
		{decode[struct {
			M map[string]int `schema:"minProperties=2"`
		}](t, `{"M":{"a":1}}`, nil), `arguments.M: expected at least 2 properties, got 1`},
		{decode[struct {
			S string `schema:"pattern=^a+$"`
		}](t, `{"S":"b\u0061"}`, nil), `arguments.S: expected a string matching the pattern ^a+$, got "ba"`},
		{decode[struct {
			A hex `schema:"pattern=^0x,maxLength=4"`
		}](t, `{"A":"12"}`, nil), `arguments.A: expected a string matching the pattern ^0x, got "12"`},
		{decode[celsius](t, `-300`, nil), `arguments: expected a number of at least -273.15, got -300`},
		{decode[[]nameRange](t, `[{"to":1}]`, nil), `arguments[0]: missing required property "from"`},
		{decode[wide](t, `{"K":1}`, nil), `arguments: unknown property "K"; allowed: "A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "k"; ` +
			`arguments: missing required property "A"; arguments: missing required property "B"; arguments: missing required property "C"; arguments: missing required property "D"; ` +
			`arguments: missing required property "E"; arguments: missing required property "F"; arguments: missing required property "G"; there may be more`},
		{decode[point](t, `{"x":1,"y":2,"z":1,"z":2}`, &schema.Options{AllowUnknown: true}), `arguments: duplicate property "z"`},
		{decode[point](t, `{"x":1,"y":2,"z":{"q":[{"r":1,"r":1}]}}`, &schema.Options{AllowUnknown: true}), `arguments.z.q[0]: duplicate property "r"`},
		{decode[node](t, `{"value":1,"kids":[{"value":2,"next":{"value":"x"}}]}`, nil), `arguments.kids[0].next.value: expected integer, got string "x"`},
		{decode[[][]int](t, `[[1,"a"],[null]]`, nil), `arguments[0][1]: expected integer, got string "a"; arguments[1][0]: expected integer, got null`},
		{decode[any](t, `[[[[1]]]]`, &schema.Options{MaxDepth: 3}), `arguments[0][0][0]: nested more than 3 levels deep`},
		{decode[node](t, `{"value":1,"next":{"value":1,"next":{"value":1}}}`, &schema.Options{MaxDepth: 2}), `arguments.next.next: nested more than 2 levels deep`},
	} {
		if c.got != any(c.want) {
			t.Errorf("\n got %v\nwant %s", c.got, c.want)
		}
	}
}

func TestErrorProblems(t *testing.T) {
	var v struct {
		A map[string][]int `json:"a/b~c"`
	}
	err := of[struct {
		A map[string][]int `json:"a/b~c"`
	}](t, nil).Decode([]byte(`{"a/b~c":{"x":[1,true]}}`), &v)
	var got *schema.Error
	if !errors.As(err, &got) {
		t.Fatalf("got %T, want *schema.Error", err)
	}
	want := &schema.Error{Problems: []schema.Problem{{Pointer: "/a~1b~0c/x/1", Message: "expected integer, got boolean true"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	got.Root = "structuredContent"
	if got, want := err.Error(), `structuredContent["a/b~c"].x[1]: expected integer, got boolean true`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if errors.Is(err, schema.ErrLimit) {
		t.Error("is ErrLimit")
	}
}

// TestDecodeReuse shows that decoding replaces an earlier value completely.
func TestDecodeReuse(t *testing.T) {
	typed := of[everything](t, nil)
	v := everything{Plain: 3, Map: map[string]int{"old": 1}, Ptr: &point{9, 9}, Skip: 4, hidden: 5}
	typed.Decode([]byte(`{}`), &v)
	if diff := cmp.Diff(everything{}, v, compareAll); diff != "" {
		t.Error(diff)
	}
}

// FuzzDecodeBroken decodes invalid JSON, which callers must not pass: it must not panic.
func FuzzDecodeBroken(f *testing.F) {
	f.Add([]byte(everythingText))
	for _, s := range []string{``, `{`, `{"a"`, `{"a":`, `[`, `"`, `"\`, `"\u12`, `{"x":1,`, `[1,`, `[,]`, `{,}`, `}`, `]`, `-`, `{"any":{"a":[1,{`, `nul`, `{"raw":{"a":1,"a"`} {
		f.Add([]byte(s))
	}
	all, tree := of[everything](f, nil), of[node](f, nil)
	v, err := schema.Compile(all.JSON(), nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var a everything
		if err := all.Decode(text, &a); err != nil {
			_ = err.Error()
		}
		var n node
		_ = tree.Decode(text, &n)
		_ = v.Validate(text)
	})
}
