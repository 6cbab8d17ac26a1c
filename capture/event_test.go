package capture_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"mcpwire/capture"
	"mcpwire/schema"
)

// everyKind returns events of each kind, in all variants of their encoding. None has a secret.
func everyKind() []capture.Event {
	return []capture.Event{
		{Kind: capture.KindStart, Start: &capture.Start{Command: []string{"node", "server.js"}, Dir: "/srv", Env: []string{"HOME", "PATH"}, PID: 4711}},
		{Kind: capture.KindMessage, Dir: capture.ToServer, Framing: capture.FramingLF, Data: []byte(`{"jsonrpc":"2.0","id":1.50e1,"method":"a\u0062"}`)},
		{Kind: capture.KindMessage, Dir: capture.ToClient, Framing: capture.FramingHeader, Prefix: "Content-Length: 2\r\n\r\n", Data: []byte(`{}`)},
		{Kind: capture.KindMessage, Dir: capture.ToClient, Framing: capture.FramingCRLF, Data: []byte(`{"a":1,"\u0061":2}`), Why: "duplicate"},
		{Kind: capture.KindMessage, Dir: capture.ToClient, Data: []byte("{\"a\":\n1}"), Why: "newline"},
		{Kind: capture.KindMessage, Dir: capture.ToClient, Data: []byte(` {"a":1}`), Why: "space"},
		{Kind: capture.KindMessage, Dir: capture.ToClient, Data: []byte(strings.Repeat("[", 600) + strings.Repeat("]", 600)), Why: "depth"},
		{Kind: capture.KindMessage, Dir: capture.ToClient, Data: []byte(`{"a":`), Len: 1 << 30, Cut: true, Why: "cut"},
		{Kind: capture.KindInvalid, Dir: capture.ToClient, Framing: capture.FramingNone, Data: []byte("hello from console.log\x1b[0m\u2028"), Why: "not-json"},
		{Kind: capture.KindInvalid, Dir: capture.ToClient, Framing: capture.FramingLF, Data: []byte("caf\xe9"), Why: "utf8"},
		{Kind: capture.KindInvalid, Dir: capture.ToClient, Framing: capture.FramingLF, Data: []byte{}, Why: "empty"},
		{Kind: capture.KindStderr, Data: []byte("server starting")},
		{Kind: capture.KindStderr, Data: []byte("a part"), Part: 2},
		{Kind: capture.KindEOF, Dir: capture.ToServer},
		{Kind: capture.KindExit, Exit: &capture.Exit{Code: 7}},
		{Kind: capture.KindExit, Exit: &capture.Exit{Code: 0xC0000005}}, // Windows: access violation
		{Kind: capture.KindExit, Exit: &capture.Exit{Code: -1, Signal: "killed"}},
		{Kind: capture.KindRequest, Dir: capture.ToServer, Session: 1, Exchange: 4, Request: &capture.Request{
			Method: "POST", URL: "/mcp?a=b", Proto: "HTTP/1.1", Remote: "127.0.0.1:5000",
			Headers: []capture.Header{{Name: "mCP-method", Value: "tools/call"}, {Name: "Accept", Value: "a"}, {Name: "Accept", Value: "b"}},
		}},
		{Kind: capture.KindResponse, Dir: capture.ToClient, Exchange: 4, Response: &capture.Response{
			Status: 200, Proto: "HTTP/2.0", Headers: []capture.Header{{Name: "Content-Type", Value: "text/html; charset=\xff"}},
		}},
		{Kind: capture.KindBody, Dir: capture.ToClient, Exchange: 4, Data: []byte("<html>")},
		{Kind: capture.KindBody, Dir: capture.ToClient, Exchange: 4, Data: []byte(`{"issuer":"https://as.example"}`)},
		{Kind: capture.KindBody, Dir: capture.ToClient, Exchange: 4, Data: []byte("\x1f\x8b"), Encoding: "gzip"},
		{Kind: capture.KindSSE, Dir: capture.ToClient, Exchange: 4, Data: []byte{}, SSE: &capture.SSE{Event: "message", ID: "1", HasID: true, Retry: 3 * time.Second, HasRetry: true, HasData: true}},
		{Kind: capture.KindSSE, Dir: capture.ToClient, Exchange: 4, SSE: &capture.SSE{Comment: "keepalive", HasComment: true}},
		{Kind: capture.KindMessage, Dir: capture.ToClient, Exchange: 4, Data: []byte(`{"jsonrpc":"2.0","id":1,"result":{}}`), SSE: &capture.SSE{ID: "", HasID: true}},
		{Kind: capture.KindEnd, Exchange: 4, Data: []byte("client closed")},
		{Kind: capture.KindEnd, Exchange: 5},
		{Kind: capture.KindMessage, Dir: capture.ToServer, Side: capture.Downstream, Session: 1, Data: []byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)},
		{Kind: capture.KindMessage, Dir: capture.ToServer, Side: capture.Upstream, Session: 2, Data: []byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)},
		{Kind: capture.KindTranslate, Translation: &capture.Translation{Of: 14, To: []uint64{16, 17}, Rule: "mrtr→elicitation/create"}},
		{Kind: capture.KindNote, Data: []byte("asked for identity encoding")},
		{Kind: "novel", Dir: capture.ToClient},
	}
}

// read returns all events of a capture.
func read(t *testing.T, text []byte, opts *capture.ReaderOptions) []*capture.Event {
	t.Helper()
	var events []*capture.Event
	for e, err := range capture.NewReader(bytes.NewReader(text), opts).Events() {
		if err != nil {
			t.Fatalf("reading: %v", err)
		}
		events = append(events, e.Clone())
	}
	return events
}

// record returns a capture of the events.
func record(t *testing.T, opts *capture.Options, events ...capture.Event) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := capture.NewWriter(&buf, opts)
	for i := range events {
		if n := w.Record(&events[i]); n != uint64(i)+1 {
			t.Errorf("event %d has number %d", i, n)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	return buf.Bytes()
}

func TestRoundTrip(t *testing.T) {
	for redact, redaction := range map[capture.RedactionMode]*capture.Redaction{capture.RedactionOff: {Off: true}, "default": nil} {
		want := everyKind()
		text := record(t, &capture.Options{Tool: "test 1", Transport: "stdio", Name: "fs", URL: "https://example.com/mcp?a=b", Redact: redaction}, want...)
		got := read(t, text, nil)
		if len(got) != len(want)+2 {
			t.Fatalf("%d events, want %d:\n%s", len(got), len(want)+2, text)
		}
		wantHead := &capture.Head{Version: 1, ID: got[0].Capture, At: got[0].At, Tool: "test 1", Transport: "stdio", Name: "fs", URL: "https://example.com/mcp?a=b", Redact: redact}
		if diff := cmp.Diff(wantHead, got[0].Head); diff != "" {
			t.Errorf("head (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(&capture.Tail{Events: uint64(len(want))}, got[len(got)-1].Tail); diff != "" {
			t.Errorf("tail (-want +got):\n%s", diff)
		}
		for i := range want {
			w, g := want[i], got[i+1]
			w.N, w.T, w.At, w.Capture = uint64(i)+1, g.T, got[0].At.Add(g.T), got[0].Capture
			if w.Data != nil {
				w.Len = max(w.Len, int64(len(w.Data)))
			}
			if redaction == nil && (w.Part > 0 || w.Encoding != "" || w.Cut || w.Response != nil) {
				continue // a payload that cannot be checked is redacted, see TestRedactLearns
			}
			if diff := cmp.Diff(&w, g, cmpopts.IgnoreUnexported(capture.Event{})); diff != "" {
				t.Errorf("event %d, redaction %s (-want +got):\n%s", i+1, redact, diff)
			}
		}
	}
}

// TestEncoderIsIdempotent shows that conversions keep numbers and times, and that redacting a
// redacted capture changes nothing.
func TestEncoderIsIdempotent(t *testing.T) {
	text := record(t, &capture.Options{Redact: &capture.Redaction{Secrets: []string{"swordfish"}}}, append(everyKind(),
		capture.Event{Kind: capture.KindMessage, Data: []byte(`{"params":{"arguments":{"password":"hunter2","pin":1234,"note":"swordfish"}}}`)},
		capture.Event{Kind: capture.KindRequest, Request: &capture.Request{Method: "GET", URL: "/a?token=abcdefghijkl", Headers: []capture.Header{{Name: "Authorization", Value: "Bearer abcdef"}, {Name: "Cookie", Value: "a=b; c=d"}}}},
	)...)
	strip := func(text []byte) string {
		_, rest, _ := strings.Cut(string(text), "\n") // the head names the redaction
		return rest
	}
	var again bytes.Buffer
	enc := capture.NewEncoder(&again, nil)
	for e, err := range capture.NewReader(bytes.NewReader(text), nil).Events() {
		if err != nil {
			t.Fatal(err)
		}
		if err := enc.Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := enc.Flush(); err != nil {
		t.Fatal(err)
	}
	first := read(t, text, nil)
	second := read(t, again.Bytes(), nil)
	ignore := cmpopts.IgnoreFields(capture.Event{}, "Head")
	sorted := cmpopts.SortSlices(func(a, b string) bool { return a < b })
	if diff := cmp.Diff(first, second, ignore, sorted, cmpopts.IgnoreUnexported(capture.Event{})); diff != "" {
		t.Errorf("(-first +second):\n%s\n%s\n%s", diff, strip(text), strip(again.Bytes()))
	}
}

func TestFlush(t *testing.T) {
	var buf bytes.Buffer
	w := capture.NewWriter(&buf, nil)
	w.Record(&capture.Event{Kind: capture.KindNote, Data: []byte("here")})
	if err := w.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(buf.String(), "here") {
		t.Errorf("not written after Flush: %q", buf.String())
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(context.Background()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Flush after Close: %v", err)
	}
	if n := w.Record(&capture.Event{Kind: capture.KindNote}); n != 0 {
		t.Errorf("Record after Close: number %d", n)
	}
}

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

// TestSchema validates all written events against the documented schema, which must name each
// member.
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
	check(record(t, &capture.Options{Tool: "t", Transport: "http", Name: "n", URL: "https://example.com/mcp", Redact: &capture.Redaction{Off: true}}, everyKind()...))
	check(record(t, nil, everyKind()...))
	check(record(t, nil, secret...))
	check(record(t, &capture.Options{MaxQueue: 1}, everyKind()...)) // with gaps
	many := capture.Event{Kind: capture.KindMessage, Data: []byte(`[` + strings.Repeat(`{"password":"x"},`, 100) + `1]`)}
	check(record(t, nil, many))
	if !seen["redmore"] || !seen["lost"] {
		t.Errorf("the events lack members: %v", seen)
	}
	for name := range seen {
		if !strings.Contains(string(text), `"`+name+`": {`) {
			t.Errorf("member %s is not in the schema", name)
		}
	}
}

// TestSchemaRejects shows that the schema rejects invalid events.
func TestSchemaRejects(t *testing.T) {
	v, _ := formatSchema(t)
	for _, line := range []string{
		`{}`, `[]`, `{"k":""}`, `{"k":"eof","dir":"c2s"}`, `{"k":"eof","n":1,"t":0}`, `{"k":"eof","n":0,"t":0,"dir":"c2s"}`, `{"k":"eof","n":1,"t":-1,"dir":"c2s"}`,
		`{"k":"head","v":1,"id":"a","at":"2026-11-20T12:00:00+01:00","redact":"off"}`, `{"k":"head","v":2,"id":"a","at":"2026-11-20T12:00:00Z","redact":"off"}`, `{"k":"head"}`,
		`{"k":"msg","n":1,"t":0,"len":1}`, `{"k":"msg","n":1,"t":0,"msg":{}}`, `{"k":"msg","n":1,"t":0,"len":1,"msg":1,"raw":"1"}`, `{"k":"msg","n":1,"t":0,"len":1,"b64":"*"}`,
		`{"k":"invalid","n":1,"t":0,"len":1,"why":"not-json","msg":1}`, `{"k":"invalid","n":1,"t":0,"len":1,"raw":"x"}`, `{"k":"exit","n":1,"t":0}`, `{"k":"req","n":1,"t":0,"req":{}}`,
		`{"k":"res","n":1,"t":0,"res":{"status":200,"headers":[["a"]]}}`, `{"k":"gap","n":1,"t":0,"lost":1}`, `{"k":"tail","n":1,"t":0}`, `{"k":"translate","n":1,"t":0,"of":1}`, `{"k":"sse","n":1,"t":0}`,
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

// TestDocExample checks that the example in the documentation is a valid capture.
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
