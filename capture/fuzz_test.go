package capture_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"mcpwire/capture"
)

// FuzzReader shows that every file is read to its end, and that its events can be written.
func FuzzReader(f *testing.F) {
	// Each event is a separate seed, so that the fuzzer executes and minimizes only small ones.
	for _, e := range everyKind() {
		e.Data = e.Data[:min(len(e.Data), 100)]
		var buf bytes.Buffer
		enc := capture.NewEncoder(&buf, &capture.Redaction{Off: true})
		enc.Encode(&e)
		enc.Flush()
		f.Add(buf.Bytes())
	}
	f.Add([]byte(headLine + `{"n":1,"t":0.5,"k":"no`))
	f.Add([]byte("\xef\xbb\xbf{\"k\":\"msg\",\"n\":1,\"t\":1e9,\"b64\":\"Pz8\\/\",\"red\":[\"/a\"]}"))
	f.Fuzz(func(t *testing.T, in []byte) {
		enc := capture.NewEncoder(new(bytes.Buffer), nil)
		for e, err := range capture.NewReader(bytes.NewReader(in), &capture.ReaderOptions{MaxLine: 1 << 20}).Events() {
			if err != nil {
				return
			}
			if e.Kind == "" {
				t.Fatalf("an event without a kind: %+v", e)
			}
			if err := enc.Encode(e); err != nil {
				t.Fatal(err)
			}
		}
		for x := range capture.Pairs(capture.NewReader(bytes.NewReader(in), nil).Events()) {
			if x.Call != nil && x.Request == nil {
				t.Fatalf("no request: %+v", x)
			}
		}
	})
}

// FuzzRoundTrip shows that any bytes are read as they were written, in an event of any kind.
func FuzzRoundTrip(f *testing.F) {
	for i, e := range everyKind() {
		f.Add(e.Data, uint8(i), e.Prefix, int64(12345))
	}
	kinds := []capture.Kind{capture.KindMessage, capture.KindStderr, capture.KindBody, capture.KindSSE, capture.KindNote, capture.KindEnd}
	f.Fuzz(func(t *testing.T, data []byte, kind uint8, text string, ns int64) {
		in := capture.Event{
			Kind: kinds[int(kind)%len(kinds)], N: 7, T: time.Duration(ns) & (1<<62 - 1), Dir: capture.ToClient, Data: data, Prefix: strings.ToValidUTF8(text, "?"),
			SSE: &capture.SSE{ID: strings.ToValidUTF8(text, "?"), HasID: true},
		}
		var buf bytes.Buffer
		enc := capture.NewEncoder(&buf, &capture.Redaction{Off: true})
		enc.Encode(&in)
		enc.Flush()
		if bytes.Count(buf.Bytes(), []byte("\n")) != 1 {
			t.Fatalf("not one line: %q", buf.Bytes())
		}
		got := read(t, buf.Bytes(), nil)
		if len(got) != 1 || !bytes.Equal(got[0].Data, data) || got[0].Len != int64(len(data)) || got[0].T != in.T || got[0].Prefix != in.Prefix || got[0].SSE.ID != in.SSE.ID {
			t.Fatalf("%+v became %+v\n%s", in, got[0], buf.Bytes())
		}
	})
}

// FuzzRedact checks that a secret in a known place is redacted, whatever surrounds it, that JSON
// stays JSON with the same shape, and that redaction is idempotent.
func FuzzRedact(f *testing.F) {
	f.Add(`{"a":1}`, "x")
	f.Add(`{"name":"password","value":"y"}`, `\"token\":`)
	f.Add("-----BEGIN PRIVATE KEY-----", "Bearer ")
	f.Add(`{"inputSchema":{"properties":{"password":{"default":"x"}}}}`, "https://a:b@c")
	f.Fuzz(func(t *testing.T, around, text string) {
		const secret = "Zq9vXw3kTtPlanted"
		around, text = strings.ToValidUTF8(around, "?"), strings.ToValidUTF8(text, "?")
		value, _ := json.Marshal(text + " ghp_" + secret + " " + text)
		nested, _ := json.Marshal(`{"password":"` + secret + `"}`)
		inner, _ := json.Marshal(around)
		if json.Valid([]byte(around)) {
			inner = []byte(around)
		}
		msg := []byte(`{"around":` + string(inner) + `,"apiKey":"` + secret + `","list":[{"token":{"deep":["` + secret + `"]}}],"text":` + string(value) +
			`,"nested":` + string(nested) + `,"url":"https://h/?access_token=` + secret + `&x=y","header":"Authorization: Bearer ` + secret + `"}`)
		for _, in := range [][]byte{msg, msg[:len(msg)-1], append([]byte("stray "), msg...)} {
			r := capture.NewRedactor(nil)
			out, _ := r.Message(nil, in)
			if bytes.Contains(out, []byte(secret)) && !strings.Contains(around+text, secret) {
				t.Fatalf("the secret came through:\n%s\n%s", in, out)
			}
			if json.Valid(in) != json.Valid(out) {
				t.Fatalf("JSON before %v, and then %v:\n%s\n%s", json.Valid(in), json.Valid(out), in, out)
			}
		}
	})
}
