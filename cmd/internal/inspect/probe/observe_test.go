package probe

import (
	"testing"
)

func TestSpread(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lines []string
		want  bool
	}{
		{"none", nil, false},
		{"invalid JSON", []string{"hello"}, false},
		{"indented", []string{"{", `  "jsonrpc": "2.0"`, "}"}, true},
		{"cut off", []string{"{", `  "jsonrpc": "2.0",`}, true},
		{"an object and text", []string{"{", "hello"}, false},
		{"a log", []string{`{"level":"info"`, `more`}, false},
	} {
		var lines [][]byte
		for _, l := range tt.lines {
			lines = append(lines, []byte(l))
		}
		if got := formOneMessage(lines); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
