package textlines

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
)

// TestLines shows that text is recorded by line, however it is split into writes.
func TestLines(t *testing.T) {
	text := "one\ntwo\r\n\n" + strings.Repeat("x", 150<<10) + "\nlast"
	var want []string
	for size := range 3 {
		var buf bytes.Buffer
		w := capture.NewWriter(&buf, &capture.Options{Redact: &capture.Redaction{Off: true}})
		lines := New(w.Record, capture.Event{Kind: capture.KindStderr, Session: 3})
		step := []int{1, 7, len(text)}[size]
		for i := 0; i < len(text); i += step {
			if _, err := io.WriteString(lines, text[i:min(i+step, len(text))]); err != nil {
				t.Fatal(err)
			}
		}
		lines.Close()
		w.Close()
		var got []string
		for e, err := range capture.NewReader(&buf, nil).Events() {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == capture.KindStderr && e.Session == 3 {
				got = append(got, string(rune('0'+e.Part))+" "+string(e.Data))
			}
		}
		if want = []string{"0 one", "0 two\r", "0 ", "1 " + strings.Repeat("x", 64<<10), "2 " + strings.Repeat("x", 64<<10), "3 " + strings.Repeat("x", 22<<10), "0 last"}; !cmp.Equal(want, got) {
			t.Errorf("steps of %d: %d lines: %.200q", step, len(got), got)
		}
	}
}

// TestLinesRedact shows that a secret that is split between two writes is redacted.
func TestLinesRedact(t *testing.T) {
	secret := "ghp" + "_" + "16C7e42F292c6912E7710c838347Ae178B4a"
	var buf bytes.Buffer
	w := capture.NewWriter(&buf, nil)
	lines := New(w.Record, capture.Event{Kind: capture.KindStderr})
	io.WriteString(lines, "using "+secret[:12])
	io.WriteString(lines, secret[12:]+"\n")
	io.WriteString(lines, strings.Repeat("x", 64<<10-6)+secret)
	lines.Close()
	w.Close()
	for _, part := range []string{secret[:12], secret[12:]} {
		if strings.Contains(buf.String(), part) {
			t.Errorf("%q is in the capture", part)
		}
	}
}
