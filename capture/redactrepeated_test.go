package capture

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestRedactRepeated checks that a text that had no secret is examined again after a part of it has
// become known as one.
func TestRedactRepeated(t *testing.T) {
	const secret = "swordfish-and-more"
	tests := []struct {
		name string
		// redact returns a text that contains the secret, as r shows it.
		redact func(r *Redactor) string
	}{
		{"text", func(r *Redactor) string { return r.Text("the word is " + secret) }},
		{"message", func(r *Redactor) string {
			out, _ := r.Message(nil, []byte(`{"jsonrpc":"2.0","method":"m","params":{"a":"the word is `+secret+`"}}`))
			return string(out)
		}},
		{"member", func(r *Redactor) string {
			out, _ := r.Message(nil, []byte(`{"jsonrpc":"2.0","method":"m","params":{"a":{"b":"the word is `+secret+`"}}}`))
			return string(out)
		}},
		{"header", func(r *Redactor) string {
			var out bytes.Buffer
			enc := &Encoder{out: sink{w: &out}, red: r}
			enc.Encode(&Event{Kind: KindResponse, Response: &Response{Headers: []Header{{"User-Agent", "a " + secret}}}})
			enc.Flush()
			return out.String()
		}},
		{"URL", func(r *Redactor) string {
			e := &Event{Kind: KindRequest, Request: &Request{URL: "/a/" + secret}}
			r.redactFields(e, new(pointers))
			return e.Request.URL
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := NewRedactor(nil)
			for range 2 {
				if got := tt.redact(r); !strings.Contains(got, secret) {
					t.Fatalf("got %q, want the text itself", got)
				}
			}
			r.Header("Authorization", "Bearer "+secret)
			for range 2 {
				if got := tt.redact(r); strings.Contains(got, secret) {
					t.Errorf("got %q after the secret was known", got)
				}
			}
		})
	}
}

// TestCleanTextsLimits checks that long texts are not remembered.
func TestCleanTextsLimits(t *testing.T) {
	r := NewRedactor(nil)
	long := strings.Repeat("word ", maxClean/4)
	for i := range 1000 {
		r.Text(fmt.Sprint(long, i))
		r.Message(nil, fmt.Appendf(nil, `{"params":{"text":"%s%d"}}`, long, i))
		r.redactHeader(Header{"User-Agent", fmt.Sprint(long, i)}, "", 0, new(pointers))
	}
	for _, texts := range []*cleanTexts{&r.cleanFields, &r.cleanStrings} {
		for _, text := range texts {
			if len(text) > maxClean {
				t.Errorf("got a text of %d bytes", len(text))
			}
		}
	}
}

// FuzzRedactRepeated checks that a Redactor that has seen other messages redacts as a new one does.
func FuzzRedactRepeated(f *testing.F) {
	f.Add(`{"a":"b"}`, `{"a":"b","password":"hunter2"}`, "arguments")
	f.Add(`[{"name":"password"}]`, `["--token","abc"]`, "tools")
	f.Add(`{"a":{"a":1,"a":2}}`, `{"a":"swordfish-and-more"}`, "password")
	f.Add(`[1]`, `[1`, "env")
	f.Add("{\"a\":\"b\"}\n", `{"a":"x"}  `, `\u0061`)
	f.Fuzz(func(t *testing.T, a, b, member string) {
		redaction := &Redaction{Key: make([]byte, 16), Names: []string{"custom"}}
		used := NewRedactor(redaction)
		var headers []string
		check := func(msg string) {
			fresh := NewRedactor(redaction)
			for _, h := range headers {
				fresh.Header("Authorization", h)
			}
			got, gotHidden := used.Message(nil, []byte(msg))
			want, wantHidden := fresh.Message(nil, []byte(msg))
			if string(got) != string(want) || !slices.Equal(gotHidden, wantHidden) {
				t.Fatalf("%s became\n%s, hidden %q, but a new Redactor makes\n%s, hidden %q", msg, got, gotHidden, want, wantHidden)
			}
		}
		for range 2 {
			for _, outer := range []string{"params", "result", "password"} {
				check(`{"` + outer + `":{"` + member + `":` + a + `,"_meta":` + b + `}}`)
				check(`{"` + outer + `":{"_meta":` + a + `,"` + member + `":` + b + `},"id":1}`)
				check(`{"` + outer + `":{"_meta":` + a + `,"_meta":` + a + b + `}}`)
				check(`[{"` + outer + `":{"_meta":` + b + `}}]`)
			}
			headers = append(headers, "Bearer swordfish-and-more", "Bearer "+a)
			for _, h := range headers {
				used.Header("Authorization", h)
			}
		}
	})
}
