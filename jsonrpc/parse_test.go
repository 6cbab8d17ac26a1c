package jsonrpc

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// An envelope has the parts of a parsed message that the tests compare.
type envelope struct {
	Kind                               Kind
	ID, Method, Params, Result, ErrObj string
}

func envelopeOf(m *Message) envelope {
	return envelope{m.Kind, string(m.ID), string(m.Method), string(m.Params), string(m.Result), string(m.Error)}
}

func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

// goodFrames are frames with a valid message.
var goodFrames = []struct {
	name  string
	frame string
	want  envelope
}{
	{"request", `{"jsonrpc":"2.0","id":1,"method":"m"}`, envelope{KindRequest, "1", "m", "", "", ""}},
	{"request with params", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[1]}}`, envelope{KindRequest, "1", "m", `{"a":[1]}`, "", ""}},
	{"any order, white space", " {\t\"params\" : [ 1 ] ,\r\n\"id\" : \"x\" , \"method\":\"m\",\"jsonrpc\":\"2.0\" } \r", envelope{KindRequest, `"x"`, "m", "[ 1 ]", "", ""}},
	{"notification", `{"jsonrpc":"2.0","method":"m","params":{}}`, envelope{KindNotification, "", "m", "{}", "", ""}},
	{"response", `{"jsonrpc":"2.0","id":7,"result":{"a":null}}`, envelope{KindResponse, "7", "", "", `{"a":null}`, ""}},
	{"response with result null", `{"jsonrpc":"2.0","id":7,"result":null}`, envelope{KindResponse, "7", "", "", "null", ""}},
	{"error", `{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"m"}}`, envelope{KindError, "7", "", "", "", `{"code":-1,"message":"m"}`}},
	{"error with id null", `{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"m"}}`, envelope{KindError, "null", "", "", "", `{"code":-1,"message":"m"}`}},
	{"error without id", `{"jsonrpc":"2.0","error":{"code":-1,"message":"m"}}`, envelope{KindError, "", "", "", "", `{"code":-1,"message":"m"}`}},
	{"space before the colon of params", `{"jsonrpc":"2.0","id":1,"method":"m","params" :{"a":1}}`, envelope{KindRequest, "1", "m", `{"a":1}`, "", ""}},
	{"params escaped", `{"jsonrpc":"2.0","id":1,"method":"m","p\u0061rams":{"a":1}}`, envelope{KindRequest, "1", "m", `{"a":1}`, "", ""}},
	{"params null, space before the colon", `{"jsonrpc":"2.0","id":1,"method":"m","params" :null}`, envelope{KindRequest, "1", "m", "", "", ""}},
	{"params null", `{"jsonrpc":"2.0","id":1,"method":"m","params":null}`, envelope{KindRequest, "1", "m", "", "", ""}},
	{"params array", `{"jsonrpc":"2.0","id":1,"method":"m","params":[1,2]}`, envelope{KindRequest, "1", "m", "[1,2]", "", ""}},
	{"unknown members", `{"x":1,"jsonrpc":"2.0","y":{"id":2},"id":1,"z":[],"method":"m"}`, envelope{KindRequest, "1", "m", "", "", ""}},
	{"duplicate unknown members", `{"x":1,"x":2,"jsonrpc":"2.0","method":"m"}`, envelope{KindNotification, "", "m", "", "", ""}},
	{"member names are case-sensitive", `{"Jsonrpc":"1.0","jsonrpc":"2.0","ID":1,"Method":"n","method":"m","PARAMS":{}}`, envelope{KindNotification, "", "m", "", "", ""}},
	{"long s (U+017F) in a name", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"param\u017f\":{}}", envelope{KindRequest, "1", "m", "", "", ""}},
	{"NUL at the end of a name", `{"jsonrpc":"2.0","method":"m","id\u0000":1}`, envelope{KindNotification, "", "m", "", "", ""}},
	{"escaped names", `{"json\u0072pc":"2.\u0030","\u0069d":1,"m\u0065thod":"\u006d"}`, envelope{KindRequest, "1", "m", "", "", ""}},
	{"escaped method", `{"jsonrpc":"2.0","id":1,"method":"tools\/\u0063all"}`, envelope{KindRequest, "1", "tools/call", "", "", ""}},
	{"empty method", `{"jsonrpc":"2.0","id":1,"method":""}`, envelope{KindRequest, "1", "", "", "", ""}},
	{"unpaired surrogate in a name", `{"jsonrpc":"2.0","method":"m","\ud800":1}`, envelope{KindNotification, "", "m", "", "", ""}},
	{"unpaired surrogate in the method", `{"jsonrpc":"2.0","method":"\udc00"}`, envelope{KindNotification, "", "\ufffd", "", "", ""}},
	{"unpaired surrogate in the id", `{"jsonrpc":"2.0","id":"\ud83d","method":"m"}`, envelope{KindRequest, `"\ud83d"`, "m", "", "", ""}},
	{"unpaired surrogate in params", `{"jsonrpc":"2.0","method":"m","params":["\ud83d"]}`, envelope{KindNotification, "", "m", `["\ud83d"]`, "", ""}},
	{"lone CR is white space", "{\"jsonrpc\":\"2.0\",\r\"method\":\"m\"}\r", envelope{KindNotification, "", "m", "", "", ""}},
	{"at the depth limit", `{"jsonrpc":"2.0","method":"m","params":` + nested(511) + `}`, envelope{KindNotification, "", "m", nested(511), "", ""}},

	{"id 2^53+1", `{"jsonrpc":"2.0","id":9007199254740993,"method":"m"}`, envelope{KindRequest, "9007199254740993", "m", "", "", ""}},
	{"id 2^63", `{"jsonrpc":"2.0","id":9223372036854775808,"method":"m"}`, envelope{KindRequest, "9223372036854775808", "m", "", "", ""}},
	{"id negative", `{"jsonrpc":"2.0","id":-5,"method":"m"}`, envelope{KindRequest, "-5", "m", "", "", ""}},
	{"id -0", `{"jsonrpc":"2.0","id":-0,"method":"m"}`, envelope{KindRequest, "-0", "m", "", "", ""}},
	{"id 0", `{"jsonrpc":"2.0","id":0,"method":"m"}`, envelope{KindRequest, "0", "m", "", "", ""}},
	{"id of 400 digits", `{"jsonrpc":"2.0","id":` + strings.Repeat("9", 400) + `,"method":"m"}`, envelope{KindRequest, strings.Repeat("9", 400), "m", "", "", ""}},
	{"id escaped", `{"jsonrpc":"2.0","id":"a\u0062","method":"m"}`, envelope{KindRequest, `"a\u0062"`, "m", "", "", ""}},
	{"id empty string", `{"jsonrpc":"2.0","id":"","method":"m"}`, envelope{KindRequest, `""`, "m", "", "", ""}},
	{"id string of a number", `{"jsonrpc":"2.0","id":"1","method":"m"}`, envelope{KindRequest, `"1"`, "m", "", "", ""}},

	// The caller that waits for a response checks its error object; see TestMessageErr.
	{"error null", `{"jsonrpc":"2.0","id":1,"error":null}`, envelope{KindError, "1", "", "", "", "null"}},
	{"error string", `{"jsonrpc":"2.0","id":1,"error":"x"}`, envelope{KindError, "1", "", "", "", `"x"`}},
	{"error empty", `{"jsonrpc":"2.0","id":1,"error":{}}`, envelope{KindError, "1", "", "", "", `{}`}},
}

// badFrames are valid JSON, but not a message.
var badFrames = []struct {
	name   string
	frame  string
	id     string // id of the error response
	kind   Kind   // KindInvalid gets an error response, a response does not
	reason string
}{
	{"number", `1`, "", KindInvalid, "not an object"},
	{"null", `null`, "", KindInvalid, "not an object"},
	{"string", `"x"`, "", KindInvalid, "not an object"},
	{"array", `[1]`, "", KindInvalid, "not an object"},
	{"empty object", `{}`, "", KindInvalid, "jsonrpc is missing"},
	{"jsonrpc missing", `{"id":1,"method":"m"}`, "1", KindInvalid, "jsonrpc is missing"},
	{"jsonrpc of the wrong case", `{"JSONRPC":"2.0","id":1,"method":"m"}`, "1", KindInvalid, "jsonrpc is missing"},
	{"jsonrpc 1.0", `{"jsonrpc":"1.0","id":1,"method":"m"}`, "1", KindInvalid, `jsonrpc must be "2.0"`},
	{"jsonrpc a number", `{"jsonrpc":2.0,"id":1,"method":"m"}`, "1", KindInvalid, `jsonrpc must be "2.0"`},
	{"jsonrpc null", `{"jsonrpc":null,"id":1,"method":"m"}`, "1", KindInvalid, `jsonrpc must be "2.0"`},
	{"jsonrpc with a space", `{"jsonrpc":"2.0 ","id":1,"method":"m"}`, "1", KindInvalid, `jsonrpc must be "2.0"`},
	{"method missing", `{"jsonrpc":"2.0","id":1}`, "1", KindInvalid, "method is missing"},
	{"method of the wrong case", `{"jsonrpc":"2.0","id":1,"Method":"m"}`, "1", KindInvalid, "method is missing"},
	{"method a number", `{"jsonrpc":"2.0","id":1,"method":1}`, "1", KindInvalid, "method must be a string"},
	{"method null", `{"jsonrpc":"2.0","id":1,"method":null}`, "1", KindInvalid, "method must be a string"},
	{"method an object", `{"jsonrpc":"2.0","id":"a","method":{}}`, `"a"`, KindInvalid, "method must be a string"},
	{"params a string", `{"jsonrpc":"2.0","id":1,"method":"m","params":"x"}`, "1", KindInvalid, "params must be"},
	{"params a number", `{"jsonrpc":"2.0","id":1,"method":"m","params":0}`, "1", KindInvalid, "params must be"},
	{"params a string, escaped", `{"jsonrpc":"2.0","id":1,"method":"m","par\u0061ms":"x"}`, "1", KindInvalid, "params must be"},
	{"params twice, escaped", `{"jsonrpc":"2.0","id":1,"method":"m","params":{},"par\u0061ms":{}}`, "1", KindInvalid, "params appears twice"},
	{"params true", `{"jsonrpc":"2.0","method":"m","params":true}`, "", KindInvalid, "params must be"},

	{"id null", `{"jsonrpc":"2.0","id":null,"method":"m"}`, "", KindInvalid, "not null"},
	{"id 1.0", `{"jsonrpc":"2.0","id":1.0,"method":"m"}`, "1.0", KindInvalid, "fraction"}, // to be answered
	{"id 1.5", `{"jsonrpc":"2.0","id":1.5,"method":"m"}`, "", KindInvalid, "fraction"},
	{"id 1e2", `{"jsonrpc":"2.0","id":1e2,"method":"m"}`, "", KindInvalid, "exponent"},
	{"id true", `{"jsonrpc":"2.0","id":true,"method":"m"}`, "", KindInvalid, "string or an integer"},
	{"id {}", `{"jsonrpc":"2.0","id":{},"method":"m"}`, "", KindInvalid, "string or an integer"},
	{"id []", `{"jsonrpc":"2.0","id":[1],"method":"m"}`, "", KindInvalid, "string or an integer"},
	{"id bad in a response", `{"jsonrpc":"2.0","id":1.5,"result":1}`, "", KindResponse, "fraction"},
	{"id null in a response", `{"jsonrpc":"2.0","id":null,"result":1}`, "", KindResponse, "not null"},
	{"result without id", `{"jsonrpc":"2.0","result":1}`, "", KindResponse, "result without an id"},

	{"result and error", `{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1,"message":""}}`, "1", KindError, "both a result and an error"},
	{"result and error null", `{"jsonrpc":"2.0","id":1,"result":1,"error":null}`, "1", KindError, "both a result and an error"},
	{"method and result", `{"jsonrpc":"2.0","id":1,"method":"m","result":1}`, "1", KindResponse, "both a method and a result"},
	{"method and error", `{"jsonrpc":"2.0","id":1,"method":"m","error":{}}`, "1", KindError, "both a method and a result"},
	{"response of another version", `{"jsonrpc":"1.0","id":1,"result":1}`, "1", KindResponse, `jsonrpc must be "2.0"`},

	{"jsonrpc twice", `{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"m"}`, "1", KindInvalid, "jsonrpc appears twice"},
	{"id twice", `{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}`, "", KindInvalid, "id appears twice"},
	{"id twice, second bad", `{"jsonrpc":"2.0","id":1,"id":true,"method":"m"}`, "", KindInvalid, "id appears twice"},
	{"id three times", `{"jsonrpc":"2.0","id":1,"id":2,"id":3,"method":"m"}`, "", KindInvalid, "id appears twice"},
	{"method twice", `{"jsonrpc":"2.0","id":1,"method":"m","method":"m"}`, "1", KindInvalid, "method appears twice"},
	{"params twice", `{"jsonrpc":"2.0","id":1,"method":"m","params":{},"params":{}}`, "1", KindInvalid, "params appears twice"},
	{"params null and object", `{"jsonrpc":"2.0","id":1,"method":"m","params":null,"params":{}}`, "1", KindInvalid, "params appears twice"},
	{"result twice", `{"jsonrpc":"2.0","id":1,"result":1,"result":1}`, "1", KindResponse, "result appears twice"},
	{"error twice", `{"jsonrpc":"2.0","id":1,"error":{},"error":{}}`, "1", KindError, "error appears twice"},
	{"method twice, escaped", `{"jsonrpc":"2.0","id":1,"method":"m","m\u0065thod":"n"}`, "1", KindInvalid, "method appears twice"},
	{"id twice, escaped", `{"jsonrpc":"2.0","\u0069\u0064":1,"method":"m","id":1}`, "", KindInvalid, "id appears twice"},
	{"jsonrpc twice, escaped", `{"jsonrpc":"2.0","json\u0072pc":"2.0","id":1,"method":"m"}`, "1", KindInvalid, "jsonrpc appears twice"},
}

// brokenFrames are not JSON.
var brokenFrames = []struct {
	name  string
	frame string
}{
	{"nothing", ""},
	{"white space", " \t\r\n"},
	{"text", "hello"},
	{"cut off", `{"jsonrpc":"2.0","id":1,"method":"m"`},
	{"cut off in a string", `{"jsonrpc":"2.0","id":1,"method":"m`},
	{"two messages", `{"jsonrpc":"2.0","method":"m"}{"jsonrpc":"2.0","method":"m"}`},
	{"members after an empty object", `{}"jsonrpc":"2.0",`},
	{"members after an empty object, with a brace", `{}"jsonrpc":"2.0","method":"m"}`},
	{"no member after the version", `{"jsonrpc":"2.0",}`},
	{"end after the version", `{"jsonrpc":"2.0",`},
	{"end after the name params", `{"jsonrpc":"2.0","params":`},
	{"no comma after params", `{"jsonrpc":"2.0","params":{}"method":"m"}`},
	{"no comma in params", `{"jsonrpc":"2.0","params":{"a":1 "b":2},"method":"m"}`},
	{"comma at the end of params", `{"jsonrpc":"2.0","params":{"a":1,},"method":"m"}`},
	{"params closed by a square bracket", `{"jsonrpc":"2.0","params":{"a":1],"method":"m"}`},
	{"trailing text", `{"jsonrpc":"2.0","method":"m"} x`},
	{"trailing NUL", "{\"jsonrpc\":\"2.0\",\"method\":\"m\"}\x00"},
	{"BOM", "\ufeff{\"jsonrpc\":\"2.0\",\"method\":\"m\"}"},
	{"NUL between", "{\"jsonrpc\":\"2.0\",\x00\"method\":\"m\"}"},
	{"NUL in a string", "{\"jsonrpc\":\"2.0\",\"method\":\"m\x00\"}"},
	{"CR in a string", "{\"jsonrpc\":\"2.0\",\"method\":\"m\r\"}"},
	{"invalid UTF-8", "{\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}"},
	{"invalid UTF-8 in a name", "{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"\xc0\xae\":1}"},
	{"UTF-16", "{\x00\"\x00j\x00"},
	{"single quotes", `{'jsonrpc':'2.0'}`},
	{"trailing comma", `{"jsonrpc":"2.0","method":"m",}`},
	{"comment", `{"jsonrpc":"2.0","method":"m"/**/}`},
	{"leading zero", `{"jsonrpc":"2.0","id":01,"method":"m"}`},
	{"NaN", `{"jsonrpc":"2.0","id":NaN,"method":"m"}`},
	{"bad escape", `{"jsonrpc":"2.0","method":"\x41"}`},
	{"too deep", `{"jsonrpc":"2.0","method":"m","params":` + nested(512) + `}`},
	{"invalid JSON after an invalid envelope", `{"jsonrpc":"1.0","id":true,"method":1,"params":1,}`},
	{"invalid params", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1,}}`},
	{"invalid name in params", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1,"\q":2}}`},
	{"invalid JSON after many params", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h"}}`},
	{"invalid result", `{"jsonrpc":"2.0","id":1,"result":tru}`},
	{"invalid error", `{"jsonrpc":"2.0","id":1,"error":{"code":}}`},
}

func TestParseGood(t *testing.T) {
	for _, test := range goodFrames {
		t.Run(test.name, func(t *testing.T) {
			var m Message
			if err := Parse([]byte(test.frame), &m, 0); err != nil {
				t.Fatalf("Parse: %v", err)
			}
			if diff := cmp.Diff(test.want, envelopeOf(&m)); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseBad(t *testing.T) {
	for _, test := range badFrames {
		t.Run(test.name, func(t *testing.T) {
			var m Message
			e := wireError(t, Parse([]byte(test.frame), &m, 0), CodeInvalidRequest)
			if !strings.Contains(e.Message, test.reason) {
				t.Errorf("message %q does not contain %q", e.Message, test.reason)
			}
			if string(m.ID) != test.id || m.Kind != test.kind {
				t.Errorf("got id %q, kind %v; want id %q, kind %v", m.ID, m.Kind, test.id, test.kind)
			}
		})
	}
}

func TestParseBroken(t *testing.T) {
	for _, test := range brokenFrames {
		t.Run(test.name, func(t *testing.T) {
			m := Message{Kind: KindRequest, ID: ID("1"), Method: []byte("left over")}
			wireError(t, Parse([]byte(test.frame), &m, 0), CodeParseError)
			if diff := cmp.Diff(envelope{}, envelopeOf(&m)); diff != "" {
				t.Errorf("message is not empty:\n%s", diff)
			}
		})
	}
}

// wireError checks that err is an *Error with the code.
func wireError(t *testing.T, err error, code Code) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("got error %v, want a *Error", err)
	}
	if e.Code != code {
		t.Fatalf("got code %d (%s), want %d", e.Code, e.Message, code)
	}
	return e
}

func TestParseDepth(t *testing.T) {
	frame := []byte(`{"jsonrpc":"2.0","method":"m","params":[[]]}`)
	var m Message
	if err := Parse(frame, &m, 3); err != nil {
		t.Errorf("3 levels: %v", err)
	}
	wireError(t, Parse(frame, &m, 2), CodeParseError)
}

func TestParseAllocatesNothing(t *testing.T) {
	var m Message
	for _, test := range goodFrames {
		if strings.Contains(test.frame, `\`) {
			continue // escaped names need memory for decoding
		}
		frame := []byte(test.frame)
		if n := testing.AllocsPerRun(100, func() {
			if err := Parse(frame, &m, 0); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", test.name, n)
		}
	}
}
