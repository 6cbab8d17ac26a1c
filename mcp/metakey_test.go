package mcp_test

import (
	"strings"
	"testing"

	"mcpwire/mcp"
)

// Spec: S20 S21 S22 S37
func TestMetaKeys(t *testing.T) {
	for _, tt := range []struct {
		key       string
		meta, ext string // what is wrong with it; "" is nothing
	}{
		{"a", "", "prefix"},
		{"A", "", "prefix"},
		{"progressToken", "", "prefix"},
		{"a.b_c-d", "", "prefix"},
		{"9", "", "prefix"},
		{"com.example/name", "", ""},
		{"example/n", "", ""},
		{"a-b.c9/n", "", ""},
		{"io.modelcontextprotocol/related-task", "", ""},
		{"com.example/", "", "name"},
		{"", "empty", "prefix"},
		{"_a", "name", "prefix"},
		{"a_", "name", "prefix"},
		{".a", "name", "prefix"},
		{"a b", "name", "prefix"},
		{"ä", "name", "prefix"},
		{"a/b/c", "name", "name"},
		{"/n", "label", "label"},
		{"/", "label", "name"},
		{"com..example/n", "label", "label"},
		{".com/n", "label", "label"},
		{"com./n", "label", "label"},
		{"9com/n", "label", "label"},
		{"-com/n", "label", "label"},
		{"com-/n", "label", "label"},
		{"co_m/n", "label", "label"},
		{"com.9x/n", "label", "label"},
		{"com.example/_n", "name", "name"},
		{"com.example/n!", "name", "name"},
	} {
		for _, check := range []struct {
			what string
			err  error
			want string
		}{
			{"CheckMetaKey", mcp.CheckMetaKey(tt.key), tt.meta},
			{"CheckExtensionID", mcp.CheckExtensionID(tt.key), tt.ext},
		} {
			switch {
			case check.err == nil && check.want != "":
				t.Errorf("%s(%q): no error, want one about the %s", check.what, tt.key, check.want)
			case check.err != nil && (check.want == "" || !strings.Contains(check.err.Error(), check.want)):
				t.Errorf("%s(%q): %v, want one about %q", check.what, tt.key, check.err, check.want)
			}
		}
	}
}

// TestCheckMeta: metadata of others passes through whatever its keys are, or a bridge would lose
// the tools of servers that break the rules.
func TestCheckMeta(t *testing.T) {
	for _, tt := range []struct {
		meta string
		ok   bool
	}{
		{`{}`, true},
		{`{"a":1,"com.example/b":{"_any":2}}`, true},
		{`{"_fastmcp":{"tags":[]},"9.com/b":2,"":3}`, true},
		{` { } `, true},
		{``, false},
		{`null`, false},
		{`[]`, false},
		{`{"a":}`, false},
	} {
		if err := mcp.CheckMeta([]byte(tt.meta)); (err == nil) != tt.ok {
			t.Errorf("CheckMeta(%s): %v, want ok %v", tt.meta, err, tt.ok)
		}
	}
	if err := mcp.CheckMeta(nil); err != nil {
		t.Errorf("CheckMeta(nil): %v", err)
	}
}
