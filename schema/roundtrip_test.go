package schema_test

import (
	"bytes"
	"encoding/json"
	"math"
	"math/big"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/schema"
)

const everythingText = `{"bool":true,"int8":-8,"int":9007199254740993,"uint16":65535,"uint64":18446744073709551615,"float32":0.1,"float64":1e+21,` +
	`"string":"a\"b\\\n<>&é😀","bytes":"aGVsbG8=","time":"2026-02-03T04:05:06.7+01:00","raw":{"a":[1,null]},"any":[1.5,"x",{"k":true}],` +
	`"number":1.50,"big":123456789012345678901234567890,"ints":[1,-2],"pair":["p","q"],"map":{"a":1,"b":2},"byInt":{"-1":"m","7":"s"},` +
	`"byAddr":{"0xff":true},"point":{"x":1,"y":2},"ptr":null,"addr":"10.0.0.1","color":"#010203","level":"high","weight":500,"strs":{"k":"v"},"Plain":3}`

func TestRoundTrip(t *testing.T) {
	typed := of[everything](t, nil)
	var v everything
	if err := typed.Decode([]byte(everythingText), &v); err != nil {
		t.Fatal(err)
	}
	out, err := typed.Append([]byte("before "), &v)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("before "+everythingText, string(out)); diff != "" {
		t.Error(diff)
	}
	checker, err := schema.Compile(typed.JSON(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := checker.Validate([]byte(everythingText)); err != nil {
		t.Error(err)
	}
}

// agreeing is the part of everything that encoding/json and this package treat alike by design.
// They differ in nil slices and maps, for example.
type agreeing struct {
	Bool   bool            `json:"bool,omitempty"`
	Int8   int8            `json:"int8,omitempty"`
	Int    int             `json:"int,omitzero"`
	Uint64 uint64          `json:"uint64,omitempty"`
	F32    float32         `json:"f32,omitempty"`
	F64    float64         `json:"f64,omitempty"`
	String string          `json:"string,omitempty"`
	Bytes  []byte          `json:"bytes,omitempty"`
	Number json.Number     `json:"number,omitempty"`
	Big    *big.Int        `json:"big"`
	Ints   []int           `json:"ints,omitempty"`
	Pair   *[2]string      `json:"pair"`
	Map    map[string]int  `json:"map,omitempty"`
	ByInt  map[int8]string `json:"byInt,omitempty"`
	Ptr    **point         `json:"ptr"`
	Next   *agreeing       `json:"next,omitempty"`
	List   []agreeing      `json:"list,omitempty"`
	Raw    json.RawMessage `json:"raw,omitempty"`
	Any    any             `json:"any,omitempty"`
	Paint  *paint          `json:"color"`
	Hex    hex             `json:"hex,omitempty"`
	base
	*Opts
}

// FuzzDecode compares Decode with encoding/json. Values that both accept must be equal, and texts
// that only encoding/json accepts must have a known reason. It also compares Decode with the schema
// that it implements, and with the encoding of its result.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		everythingText, `{}`, `{"id":1,"name":"n"}`, `{"id":1,"name":"n","next":{"id":2,"name":""},"list":[{"id":3,"name":"x","deep":false}]}`,
		`{"id":1e2,"name":"\ud83d\ude00","int8":127,"uint64":18446744073709551615,"f32":3.4e38,"f64":-1e-9,"bytes":"aGk=","number":1.50}`,
		`{"id":1,"name":"n","big":12345678901234567890123,"ints":[1,2,3],"pair":["a","b"],"map":{"k":1},"byInt":{"-5":"x"},"ptr":{"x":1,"y":2}}`,
		`{"id":1,"name":"n","raw":{"a":[1,2,{"b":null}]},"any":{"a":[1.5,"x",null,9007199254740993]},"color":"#0a0b0c","hex":"0x1f"}`,
		`{"id":1,"name":"n","pair":["a"],"ptr":null,"big":null,"int":-9223372036854775808,"bool":true}`,
	} {
		f.Add([]byte(s))
	}
	typed := of[agreeing](f, nil)
	checker, err := schema.Compile(typed.JSON(), nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !validJSON(text) {
			return
		}
		var got, want agreeing
		err := typed.Decode(text, &got)
		if valid := checker.Validate(text); (err == nil) != (valid == nil) && !beyondSchema(err) {
			t.Fatalf("%s\nDecode: %v\nValidate: %v", text, err, valid)
		}
		if err != nil {
			return
		}
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&want); err != nil {
			if !strings.Contains(err.Error(), "number") { // 1.0 and 1e2 as integers
				t.Fatalf("%s\nencoding/json: %v", text, err)
			}
			return
		}
		sameNumbers(&got)
		sameNumbers(&want)
		if diff := cmp.Diff(want, got, compareAll, cmp.AllowUnexported(agreeing{})); diff != "" {
			t.Fatalf("%s\n-encoding/json +got:\n%s", text, diff)
		}
		checkAppend(t, typed, &got)
	})
}

// beyondSchema reports whether an error is about a rule that no schema expresses.
func beyondSchema(err error) bool {
	if err == nil {
		return false
	}
	for _, known := range []string{"of base64", "between -9223372036854775808", "between 0 and 18446744073709551615", "-bit float", "invalid value",
		"invalid string", "digits", "8 bits", "duplicate property"} {
		if strings.Contains(err.Error(), known) {
			return true
		}
	}
	return false
}

// sameNumbers removes a difference by design in values of type any: exact integers.
func sameNumbers(v *agreeing) {
	v.Any = plainNumbers(v.Any)
	if v.Next != nil {
		sameNumbers(v.Next)
	}
	for i := range v.List {
		sameNumbers(&v.List[i])
	}
}

func plainNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		f, _ := v.Float64()
		return f
	case []any:
		for i := range v {
			v[i] = plainNumbers(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = plainNumbers(v[k])
		}
	}
	return v
}

// checkAppend compares Append with encoding/json by value, and checks that its output decodes to
// the same value.
func checkAppend[T any](t *testing.T, typed *schema.Typed[T], v *T) {
	t.Helper()
	out, err := typed.Append(nil, v)
	if err != nil {
		t.Fatalf("Append: %v", err)
	}
	if !validJSON(out) || bytes.ContainsAny(out, "\n\r") {
		t.Fatalf("Append: %q", out)
	}
	var compact bytes.Buffer
	if json.Compact(&compact, out) != nil || !bytes.Equal(compact.Bytes(), out) {
		t.Fatalf("Append is not compact: %q", out)
	}
	std, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := generic(out), generic(std); !reflect.DeepEqual(got, want) {
		t.Fatalf("Append: %s\nencoding/json: %s", out, std)
	}
	var again T
	if err := typed.Decode(out, &again); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	second, err := typed.Append(nil, &again)
	if err != nil || !bytes.Equal(out, second) {
		t.Fatalf("not stable: %s then %s", out, second)
	}
}

func generic(text []byte) (v any) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return err
	}
	return v
}

// FuzzAppend compares Append with encoding/json for values that decoding does not produce.
func FuzzAppend(f *testing.F) {
	f.Add("a<b>&\u2028\xff\x00", int64(-5), uint64(7), 1.5, float32(1e-7), []byte{0, 255}, true)
	f.Add("", int64(math.MinInt64), uint64(math.MaxUint64), 1e21, float32(3.4e38), []byte{}, false)
	f.Add("\xed\xa0\x80é", int64(0), uint64(0), math.Copysign(0, -1), float32(1e21), []byte("x"), true)
	type value struct {
		S string             `json:"s"`
		M map[string]string  `json:"m"`
		I int64              `json:"i,omitempty"`
		J int8               `json:"j"`
		U uint64             `json:"u"`
		F float64            `json:"f"`
		G float32            `json:"g,omitzero"`
		B []byte             `json:"b"`
		T bool               `json:"t"`
		A any                `json:"a"`
		L []map[int8]float64 `json:"l"`
		P *string            `json:"p"`
	}
	typed := of[value](f, nil)
	f.Fuzz(func(t *testing.T, s string, i int64, u uint64, x float64, y float32, b []byte, flag bool) {
		v := value{S: s, M: map[string]string{s: s, "k": ""}, I: i, J: int8(i), U: u, F: x, G: y, B: append([]byte{}, b...), T: flag,
			A: []any{s, i, u, x, flag, nil, map[string]any{"s": s}, []string{s}}, L: []map[int8]float64{{int8(i): x}, {}}}
		if flag {
			v.P = &s
		}
		if math.IsNaN(x) || math.IsInf(x, 0) || math.IsNaN(float64(y)) || math.IsInf(float64(y), 0) {
			if _, err := typed.Append(nil, &v); err == nil {
				t.Fatal("no error for an invalid number")
			}
			return
		}
		checkAppend(t, typed, &v)
	})
}
