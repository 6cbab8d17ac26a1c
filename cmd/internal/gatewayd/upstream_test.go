package gatewayd

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestStderrLog checks that lines are logged whole, however they were written, and that blank ones
// and the rest of long ones are not.
func TestStderrLog(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	for _, tt := range []struct {
		name   string
		writes []string
		want   []string
	}{
		{"lines", []string{"a\nb\n"}, []string{"a", "b"}},
		{"parts", []string{"a", "b", "\nc"}, []string{"ab"}},
		{"blank", []string{"\n \r\na\r\n"}, []string{"a"}},
		{"escapes", []string{"\x1b[31mred\n"}, []string{`\x1b[31mred`}},
		{"long", []string{long, long + "\n", "a\n"}, []string{long[:maxStderrLine], "a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key != "line" {
					return slog.Attr{}
				}
				return slog.String("line", "("+strings.ReplaceAll(a.Value.String(), " ", "_")+")")
			}}))
			w := stderrLog(log, "up")
			for _, text := range tt.writes {
				if n, err := w.Write([]byte(text)); n != len(text) || err != nil {
					t.Fatalf("got %d, %v", n, err)
				}
			}
			var got []string
			for line := range strings.Lines(out.String()) {
				_, text, _ := strings.Cut(strings.TrimSpace(line), "(")
				text, _, _ = strings.Cut(text, ")")
				got = append(got, strings.ReplaceAll(text, `\\`, `\`))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
}
