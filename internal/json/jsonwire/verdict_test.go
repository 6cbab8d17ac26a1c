package jsonwire

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

// nested returns open n times, then closing n times.
func nested(n int, open, closing string) []byte {
	return append(bytes.Repeat([]byte(open), n), bytes.Repeat([]byte(closing), n)...)
}

// results are texts with the position of their error, or valid.
var results = []struct {
	name string
	text string
	at   int // byte offset of the error, or valid
}{
	{"number", `0`, valid},
	{"negative zero", `-0`, valid},
	{"zero with exponent", `0e+1`, valid},
	{"negative fraction with exponent", `-12.50E-07`, valid},
	{"huge exponent", `1e999999`, valid},
	{"beyond 2^64", `18446744073709551616`, valid},
	{"long number", strings.Repeat("9", 400) + "." + strings.Repeat("9", 400), valid},
	{"true", `true`, valid},
	{"false", `false`, valid},
	{"null", `null`, valid},
	{"empty string", `""`, valid},
	{"empty array", `[]`, valid},
	{"empty object", `{}`, valid},
	{"white space around", " \t\r\n{} \t\r\n", valid},
	{"white space inside", "[ \n1\t,\r{ \"a\" : [ ] } ]", valid},
	{"much white space", "[" + strings.Repeat(" ", 100) + "\n" + strings.Repeat("\t", 100) + "]", valid},
	{"array of all kinds", `[null,true,false,0,"",[],{}]`, valid},
	{"object in object", `{"a":{"b":{"c":{}}}}`, valid},
	{"empty name", `{"":0}`, valid},
	{"duplicate names", `{"a":1,"a":2}`, valid},
	{"escaped name", `{"\u0061\"":1}`, valid},
	{"all short escapes", `"\"\\\/\b\f\n\r\t"`, valid},
	{"escaped NUL", `"\u0000"`, valid},
	{"hex of both cases", `"\uabCD\uEF09"`, valid},
	{"surrogate pair", `"\ud83d\ude00"`, valid},
	{"lone high surrogate", `"\ud83d"`, valid},
	{"lone low surrogate", `"\ude00"`, valid},
	{"swapped surrogates", `"\ude00\ud83d"`, valid},
	{"high surrogate before text", `"\ud83dabc"`, valid},
	{"DEL", "\"\x7f\"", valid},
	{"U+0080", "\"\u0080\"", valid},
	{"NEL, LS, PS", "\"\u0085 \u2028 \u2029\"", valid},
	{"zero width no-break space inside", "\"\ufeff\"", valid},
	{"noncharacters", "\"\ufffe\uffff\U0010ffff\"", valid},
	{"first and last of each length", "\"\u007f\u0080\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff\"", valid},
	{"closing brackets in a string", `{"a":"]}"}`, valid},
	{"slashes before a quote", `"\\\\\"\\"`, valid},
	{"512 arrays", string(nested(512, "[", "]")), valid},
	{"512 objects and arrays", string(nested(256, `{"a":[`, `]}`)), valid},
	{"512 arrays twice", "[" + string(nested(511, "[", "]")) + "," + string(nested(511, "[", "]")) + "]", valid},

	{"nothing", ``, 0},
	{"only white space", " \n ", 3},
	{"BOM", "\xef\xbb\xbf{}", 0},
	{"BOM behind", "{}\xef\xbb\xbf", 2},
	{"UTF-16", "{\x00}\x00", 1},
	{"NUL", "\x00", 0},
	{"NUL behind", "{}\x00", 2},
	{"NUL inside", "[\x00]", 1},
	{"NUL in a string", "\"\x00\"", 1},
	{"NUL in a number", "1\x00", 1},
	{"form feed", "[\f]", 1},
	{"vertical tab", "\v1", 0},
	{"no-break space", "\u00a01", 0},
	{"NEL outside", "[\u0085]", 1},
	{"lone CR in a string", "\"\r\"", 1},
	{"LF in a string", "\"a\nb\"", 2},
	{"tab in a string", "\"ab\tc\"", 3},
	{"U+001F in a string", "\"\x1f\"", 1},
	{"two values", `1 2`, 2},
	{"value after an object", `{}{}`, 2},
	{"bracket after an object", `[]]`, 2},
	{"comma after an object", `[],`, 2},
	{"comment after an object", `{}//`, 2},
	{"comment before", `/**/{}`, 0},
	{"semicolon after an object", `1;`, 1},

	{"unknown word", `nil`, 1},
	{"capital", `True`, 0},
	{"upper case", `nULL`, 1},
	{"letter after a word", `nulls`, 4},
	{"words without separator", `[truefalse]`, 5},
	{"NaN", `NaN`, 0},
	{"Infinity", `-Infinity`, 1},
	{"undefined", `[undefined]`, 1},
	{"only minus", `-`, 1},
	{"minus before a word", `-true`, 1},
	{"two minuses", `--1`, 1},
	{"plus", `+1`, 0},
	{"leading zero", `012`, 1},
	{"negative leading zero", `-01`, 2},
	{"hexadecimal", `0x10`, 1},
	{"decimal point first", `.5`, 0},
	{"minus and decimal point", `-.5`, 1},
	{"decimal point last", `1.`, 2},
	{"decimal point before exponent", `1.e1`, 2},
	{"two decimal points", `1.2.3`, 3},
	{"exponent without digits", `1e`, 2},
	{"signed exponent without digits", `1e+`, 3},
	{"two exponents", `1e2e3`, 3},
	{"exponent with fraction", `1e2.5`, 3},
	{"underscore", `1_000`, 1},
	{"big integer suffix", `1n`, 1},
	{"full width digit", "\uff11", 0},
	{"space in a number", `[1 2]`, 3},

	{"no closing quote", `"abc`, 4},
	{"only a quote", `"`, 1},
	{"single quotes", `'a'`, 0},
	{"smart quotes", "\u201ca\u201d", 0},
	{"escape at the end", `"\`, 1},
	{"escaped closing quote", `"\"`, 3},
	{"unknown escape", `"\a"`, 1},
	{"hexadecimal escape", `"\x41"`, 1},
	{"capital U", `"\U0041"`, 1},
	{"escaped apostrophe", `"\'"`, 1},
	{"escaped newline", "\"\\\n\"", 1},
	{"escaped NUL byte", "\"\\\x00\"", 1},
	{"escaped non-ASCII", "\"\\é\"", 1},
	{"octal escape", `"\012"`, 1},
	{"short unicode escape", `"\u12"`, 1},
	{"unicode escape at the end", `"\u123`, 1},
	{"bad hex digit", `"\u12g4"`, 1},
	{"signed hex", `"\u+123"`, 1},
	{"bad second escape of a pair", `"\ud83d\uzzzz"`, 7},
	{"half of a second escape", `"\ud83d\"`, 9},

	{"continuation byte alone", "\"\x80\"", 1},
	{"continuation byte after text", "\"é\xbf\"", 3},
	{"lead byte alone", "\"\xc3\"", 1},
	{"lead byte before ASCII", "\"\xc3a\"", 1},
	{"overlong NUL", "\"\xc0\x80\"", 1},
	{"overlong slash", "\"\xc1\xaf\"", 1},
	{"overlong of three", "\"\xe0\x9f\xbf\"", 1},
	{"overlong of four", "\"\xf0\x8f\xbf\xbf\"", 1},
	{"first surrogate encoded", "\"\xed\xa0\x80\"", 1},
	{"last surrogate encoded", "\"\xed\xbf\xbf\"", 1},
	{"pair of surrogates encoded", "\"\xed\xa0\xbd\xed\xb8\x80\"", 1},
	{"above U+10FFFF", "\"\xf4\x90\x80\x80\"", 1},
	{"lead byte f5", "\"\xf5\x80\x80\x80\"", 1},
	{"five bytes", "\"\xf8\x88\x80\x80\x80\"", 1},
	{"six bytes", "\"\xfc\x84\x80\x80\x80\x80\"", 1},
	{"fe and ff", "\"\xfe\xff\"", 1},
	{"three bytes cut", "\"\xe2\x82\"", 1},
	{"four bytes cut", "\"\xf0\x9f\x98\"", 1},
	{"cut by the end", "\"\xf0\x9f\x98", 1},
	{"Latin-1", "\"caf\xe9\"", 4},
	{"invalid UTF-8 after valid", "\"汉字汉字\xe6\xb1\"", 13},
	{"second of two sequences invalid", "\"汉\xed\xa0\x80汉\"", 4},
	{"second of two sequences overlong", "\"汉\xe0\x80\x80汉\"", 4},
	{"invalid UTF-8 in a name", "{\"\xff\":1}", 2},
	{"invalid UTF-8 after long ASCII", `"` + strings.Repeat("a", 500) + "\xff\"", 501},
	{"control after long ASCII", `"` + strings.Repeat("a", 500) + "\n\"", 501},
	{"escape after long ASCII", `"` + strings.Repeat("a", 500) + `\q"`, 501},
	{"end after long ASCII", `"` + strings.Repeat("a", 500), 501},
	{"non-ASCII outside", `{"a":é}`, 5},

	{"open array", `[`, 1},
	{"open array with value", `[1`, 2},
	{"open array with comma", `[1,`, 3},
	{"array comma last", `[1,]`, 3},
	{"array comma first", `[,1]`, 1},
	{"array two commas", `[1,,2]`, 3},
	{"only a comma", `[,]`, 1},
	{"array no comma", `[1 true]`, 3},
	{"array colon", `["a":1]`, 4},
	{"array closed as object", `[1}`, 2},
	{"empty array closed as object", `[}`, 1},
	{"only closing", `]`, 0},
	{"open object", `{`, 1},
	{"open name", `{"a`, 3},
	{"name only", `{"a"`, 4},
	{"name only, closed", `{"a"}`, 4},
	{"colon only", `{"a":`, 5},
	{"colon only, closed", `{"a":}`, 5},
	{"two colons", `{"a"::1}`, 5},
	{"comma for colon", `{"a",1}`, 4},
	{"equals sign", `{"a"=1}`, 4},
	{"object comma last", `{"a":1,}`, 7},
	{"object comma first", `{,"a":1}`, 1},
	{"object two commas", `{"a":1,,"b":2}`, 7},
	{"object no comma", `{"a":1 "b":2}`, 7},
	{"object open after comma", `{"a":1,`, 7},
	{"object open after value", `{"a":1`, 6},
	{"object closed as array", `{"a":1]`, 6},
	{"empty object closed as array", `{]`, 1},
	{"name without quotes", `{a:1}`, 1},
	{"name in single quotes", `{'a':1}`, 1},
	{"number as name", `{1:1}`, 1},
	{"null as name", `{null:1}`, 1},
	{"array as name", `{[]:1}`, 1},
	{"value only", `{1}`, 1},
	{"wrong order of closing", `[{"a":1]}`, 7},
	{"too deep", string(nested(513, "[", "]")), 512},
	{"objects too deep", string(nested(513, `{"a":`, "}")), 512 * 5},
	{"empty object too deep", strings.Repeat("[", 512) + "{}" + strings.Repeat("]", 512), 512},
}

const valid = -1

func TestReferenceResults(t *testing.T) {
	for _, v := range results {
		t.Run(v.name, func(t *testing.T) {
			want := v.at
			data := []byte(v.text)
			err := Valid(data, 0)
			if got := offset(err); got != want {
				t.Fatalf("Valid: %v, want error at %d\n%q", err, want, data)
			}
			checkDrive(t, data, 0, err)
			if openAtLimit := isDepth(err); !openAtLimit && (want == valid) != (json.Valid(data) && utf8.Valid(data)) {
				t.Fatal("encoding/json and unicode/utf8 disagree with the table")
			}
			if want == valid {
				checkTrusted(t, data)
			} else {
				walkGarbage(data)
			}
			// The text inside other texts, and in a longer buffer.
			for _, frame := range [][2]string{{`{"params":`, `}`}, {`[0,`, ` ]`}, {`{"a":[`, `],"b":""}`}} {
				whole := []byte(frame[0] + v.text + frame[1])
				err := Valid(whole, 10000)
				if got := err == nil; got != (json.Valid(whole) && utf8.Valid(whole)) {
					t.Errorf("in %q: %v", frame, err)
				}
				checkDrive(t, whole, 10000, err)
			}
			if inner := append(bytes.Clone(data), "\"}]\x00"...)[:len(data)]; offset(Valid(inner, 0)) != want {
				t.Errorf("read beyond the end: %v", Valid(inner, 0))
			}
		})
	}
}

// offset returns the position of err in the text, or valid.
func offset(err error) int {
	var se *SyntaxError
	if errors.As(err, &se) {
		return se.Offset
	}
	return valid
}

func isDepth(err error) bool {
	var se *SyntaxError
	return errors.As(err, &se) && se.Depth
}

// TestTruncated shows that every proper prefix of a valid text is invalid, with the error at its
// end. The texts contain no number at the top level, since a prefix of a number may be valid.
func TestTruncated(t *testing.T) {
	texts := []string{
		callText,
		indented(callText),
		`{"a":[1.5e-3,-0,true,false,null,"\u00e9\n",{}],"б":"汉字😀","long":"` + strings.Repeat("0123456789", 30) + `\t` + strings.Repeat("ж", 100) + `"}`,
	}
	for _, text := range texts {
		for n := range len(text) {
			data := []byte(text[:n])
			err := Valid(data, 0)
			var se *SyntaxError
			if !errors.As(err, &se) {
				t.Fatalf("%q is valid", data)
			}
			// The error of a truncated escape or UTF-8 sequence is at its start.
			if se.Offset < n-5 || se.Offset > n {
				t.Errorf("%v, want it at %d\n%q", err, n, data)
			}
			checkDrive(t, data, 0, err)
			walkGarbage(data)
		}
	}
}

// TestMutated replaces each byte of a text by every other byte, and compares the result with
// encoding/json.
func TestMutated(t *testing.T) {
	text := []byte(`{"k\n":[-1.5e+3,tru` + `e,"é汉😀\u00ff"],"` + strings.Repeat("x", 20) + `":{}}`)
	if err := Valid(text, 0); err != nil {
		t.Fatal(err)
	}
	data := bytes.Clone(text)
	for i := range data {
		for c := range 256 {
			data[i] = byte(c)
			err := Valid(data, 0)
			if got, want := err == nil, json.Valid(data) && utf8.Valid(data); got != want {
				t.Errorf("%v, want valid %v: %q", err, want, data)
			}
			checkDrive(t, data, 0, err)
		}
		data[i] = text[i]
	}
}

func TestDeep(t *testing.T) {
	for _, open := range []string{"[", `{"":`, `[{"a":[],"b":`, " [ "} {
		data := bytes.Repeat([]byte(open), 10<<20/len(open))
		if err := Valid(data, 0); !isDepth(err) {
			t.Errorf("%q...: %v, want a depth error", open, err)
		}
		// Without a limit, the text is invalid only at its end, and needs no stack.
		if err := Valid(data, 1<<30); isDepth(err) || offset(err) != len(data) {
			t.Errorf("%q... without limit: %v", open, err)
		}
	}
	for _, n := range []int{1, 2, 63, 64, 65, 127, 128, 129, 511, 512, 513, 575, 576, 577, 640, 5000} {
		for _, data := range [][]byte{nested(n, "[", "]"), nested(n, `{"a":`, "}"), nested(n, "[{\"\":0},", "0]")} {
			if err := Valid(data, n); (err == nil) != (json.Valid(data)) && data[1] != '{' {
				t.Errorf("depth %d of %d: %v", n, n, err)
			}
			if err := Valid(data, n-1); n > 1 && !isDepth(err) {
				t.Errorf("depth %d of %d: %v", n, n-1, err)
			}
		}
	}
}

// TestBracketsMatch shows that a wrong closing bracket is found at every depth.
func TestBracketsMatch(t *testing.T) {
	for n := 1; n < 700; n = n*5/4 + 1 {
		data := make([]byte, 0, 8*n)
		var closing []byte
		for i := range n {
			if i%3 == 0 || i%7 == 0 {
				data = append(data, `{"a":`...)
				closing = append(closing, '}')
			} else {
				data = append(data, '[')
				closing = append(closing, ']')
			}
		}
		data = append(data, '0')
		for i := range closing {
			data = append(data, closing[len(closing)-1-i])
		}
		if err := Valid(data, n); err != nil {
			t.Fatalf("depth %d: %v", n, err)
		}
		for i := len(data) - n; i < len(data); i++ {
			data[i] ^= ']' ^ '}'
			if err := Valid(data, n); offset(err) != i {
				t.Fatalf("depth %d: %v, want it at %d", n, err, i)
			}
			data[i] ^= ']' ^ '}'
		}
	}
}

// indented returns s with white space between its tokens.
func indented(s string) string {
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(s), "", "  "); err != nil {
		panic(err)
	}
	return b.String()
}
