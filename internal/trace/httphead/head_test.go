package httphead

import "testing"

func TestTargetURL(t *testing.T) {
	for _, tt := range []struct{ server, target, want string }{
		{"https://a.example/mcp", "/other?x=1", "https://a.example/other?x=1"},
		{"https://a.example/mcp", "/mcp?next=http://b.example/", "https://a.example/mcp?next=http://b.example/"},
		{"https://a.example/mcp", "http://b.example/x", "https://a.example/x"},
		{"https://a.example/mcp", "//b.example/x", "https://a.example/x"},
		{"https://a.example/mcp", "/a%2Fb", "https://a.example/a%2Fb"},
		{"https://a.example/mcp", "", "https://a.example/mcp"},
		{"https://a.example/mcp", "%", "https://a.example/mcp"},
		{"", "/mcp", ""},
	} {
		if got := TargetURL(tt.server, tt.target); got != tt.want {
			t.Errorf("%s to %s: got %s, want %s", tt.target, tt.server, got, tt.want)
		}
	}
}
