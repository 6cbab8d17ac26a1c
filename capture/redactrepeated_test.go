package capture

import (
	"fmt"
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
		{"header", func(r *Redactor) string {
			return r.redactHeaders([]Header{{"User-Agent", "a " + secret}}, "", new(pointers))[0].Value
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

// TestCleanTextsLimits checks that texts and headers that differ each time do not fill the memory.
func TestCleanTextsLimits(t *testing.T) {
	r := NewRedactor(nil)
	word := strings.Repeat("word ", 100)
	for i := range 5000 {
		r.Text(fmt.Sprint(word, i))
		r.redactHeaders([]Header{{"User-Agent", fmt.Sprint(word[:100], i)}}, "", new(pointers))
	}
	total := 0
	for _, m := range r.clean.texts {
		for text := range m {
			total += len(text) + cleanOverhead
		}
	}
	if total > maxCleanBytes || len(r.clean.headers) > maxCleanHeaders {
		t.Errorf("got %d bytes of texts and %d headers", total, len(r.clean.headers))
	}
}
