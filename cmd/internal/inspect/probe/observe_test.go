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

func TestSameID(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"1", "1", true}, {"1", `"1"`, false}, {`"ab"`, `"a\u0062"`, true}, {"", "", false}, {"", "1", false},
		{"9007199254740993", "9007199254740992", false}, {"null", "null", true},
	} {
		if got := sameID([]byte(tt.a), []byte(tt.b)); got != tt.want {
			t.Errorf("sameID(%s, %s) = %v, want %v", tt.a, tt.b, got, tt.want)
		}
	}
}
