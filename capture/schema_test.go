package capture_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"mcpwire/capture"
	"mcpwire/schema"
)

// formatSchema is the schema of the documentation.
func formatSchema(t *testing.T) (*schema.Validator, []byte) {
	t.Helper()
	text, err := os.ReadFile("../doc/capture-format.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	v, err := schema.Compile(text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return v, text
}

// TestSchema holds everything that is written against the documented schema, and each member of it must be named there.
func TestSchema(t *testing.T) {
	v, text := formatSchema(t)
	secret, _ := planted()
	seen := map[string]bool{}
	check := func(text []byte) {
		for line := range strings.Lines(string(text)) {
			if err := v.Validate([]byte(line)); err != nil {
				t.Errorf("%v: %.300s", err, line)
			}
			var members map[string]json.RawMessage
			if err := json.Unmarshal([]byte(line), &members); err != nil {
				t.Fatal(err)
			}
			for name := range members {
				seen[name] = true
			}
		}
	}
	check(record(t, &capture.Options{Tool: "t", Transport: "http", Name: "n", URL: "https://example.com/mcp", Unredacted: true}, everyKind()...))
	check(record(t, nil, everyKind()...))
	check(record(t, nil, secret...))
	check(record(t, &capture.Options{MaxQueue: 1}, everyKind()...)) // with gaps
	many := capture.Event{Kind: capture.KindMessage, Data: []byte(`[` + strings.Repeat(`{"password":"x"},`, 100) + `1]`)}
	check(record(t, nil, many))
	if !seen["redmore"] || !seen["lost"] {
		t.Errorf("the events do not have what they are there for: %v", seen)
	}
	for name := range seen {
		if !strings.Contains(string(text), `"`+name+`": {`) {
			t.Errorf("member %s is not in the schema", name)
		}
	}
}

// TestSchemaRefuses shows that the schema says something.
func TestSchemaRefuses(t *testing.T) {
	v, _ := formatSchema(t)
	for _, line := range []string{
		`{}`, `[]`, `{"k":""}`, `{"k":"eof","dir":"c2s"}`, `{"k":"eof","n":1,"t":0}`, `{"k":"eof","n":0,"t":0,"dir":"c2s"}`, `{"k":"eof","n":1,"t":-1,"dir":"c2s"}`,
		`{"k":"head","v":1,"id":"a","at":"2026-11-20T12:00:00+01:00","redact":"off"}`, `{"k":"head","v":2,"id":"a","at":"2026-11-20T12:00:00Z","redact":"off"}`, `{"k":"head"}`,
		`{"k":"msg","n":1,"t":0,"len":1}`, `{"k":"msg","n":1,"t":0,"msg":{}}`, `{"k":"msg","n":1,"t":0,"len":1,"msg":1,"raw":"1"}`, `{"k":"msg","n":1,"t":0,"len":1,"b64":"*"}`,
		`{"k":"bad","n":1,"t":0,"len":1,"why":"not-json","msg":1}`, `{"k":"bad","n":1,"t":0,"len":1,"raw":"x"}`, `{"k":"exit","n":1,"t":0}`, `{"k":"req","n":1,"t":0,"req":{}}`,
		`{"k":"res","n":1,"t":0,"res":{"status":200,"headers":[["a"]]}}`, `{"k":"gap","n":1,"t":0,"lost":1}`, `{"k":"tail","n":1,"t":0}`, `{"k":"xlate","n":1,"t":0,"of":1}`, `{"k":"sse","n":1,"t":0}`,
		`{"k":"start","n":1,"t":0,"cmd":[1]}`, `{"k":"eof","n":1,"t":0,"dir":"up"}`, `{"k":"eof","n":1,"t":0,"dir":"c2s","red":["x"]}`,
	} {
		if v.Validate([]byte(line)) == nil {
			t.Errorf("accepted: %s", line)
		}
	}
	for _, line := range []string{`{"k":"novel","n":1,"t":0,"zzz":{}}`, headLine[:len(headLine)-2] + `,"redact":"off"}`} {
		if err := v.Validate([]byte(line)); err != nil {
			t.Errorf("refused: %s: %v", line, err)
		}
	}
}

// The example in the documentation is one.
func TestDocExample(t *testing.T) {
	v, _ := formatSchema(t)
	text, err := os.ReadFile("../doc/capture-format.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```jsonc\n")
	example, _, ok := strings.Cut(rest, "```")
	if !ok || strings.Count(example, "\n") != 11 {
		t.Fatalf("the example is not found: %s", example)
	}
	for line := range strings.Lines(example) {
		if err := v.Validate([]byte(line)); err != nil {
			t.Errorf("%v: %s", err, line)
		}
	}
	for _, e := range read(t, []byte(example), nil) {
		if e.N == 0 && e.Kind != capture.KindHead {
			t.Errorf("%+v", e)
		}
	}
	for _, kind := range []capture.Kind{
		capture.KindHead, capture.KindStart, capture.KindMessage, capture.KindInvalid, capture.KindStderr, capture.KindEOF, capture.KindExit, capture.KindRequest, capture.KindResponse,
		capture.KindBody, capture.KindSSE, capture.KindEnd, capture.KindTranslate, capture.KindNote, capture.KindGap, capture.KindTail,
	} {
		if !strings.Contains(string(text), "\n| `"+string(kind)+"` |") {
			t.Errorf("kind %s is not documented", kind)
		}
	}
}
