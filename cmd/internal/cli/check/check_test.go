package check

import "testing"

func TestNearestRules(t *testing.T) {
	for _, tt := range []struct{ id, want string }{
		{"id-nul", "jsonrpc/id-null"},
		{"jsonrpc/idnull", "jsonrpc/id-null"},
		{"stray-output", "stdio/stray-output"},
		{"STDIO/STRAY-OUTPUT", "stdio/stray-output"},
		{"no match", ""},
		{"", ""},
	} {
		got := ""
		if similar := nearestRules(tt.id); len(similar) > 0 {
			got = similar[0]
		}
		if got != tt.want {
			t.Errorf("nearestRules(%q) begins with %q, want %q", tt.id, got, tt.want)
		}
	}
}
