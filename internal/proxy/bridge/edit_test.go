package bridge

import (
	"testing"

	"mcpwire/jsonrpc"
)

func TestIDKey(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{`"a\u0062"`, `"ab"`, true},
		{`1`, `"1"`, false},
		{`1`, `1`, true},
		{`"s1"`, `"1"`, false},
	} {
		if got := jsonrpc.ID(tt.a).Key() == jsonrpc.ID(tt.b).Key(); got != tt.want {
			t.Errorf("%s and %s have the same key: got %v, want %v", tt.a, tt.b, got, tt.want)
		}
	}
}
