package era

import (
	"strings"
	"testing"
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
			{"CheckMetaKey", CheckMetaKey(tt.key), tt.meta},
			{"CheckExtensionID", CheckExtensionID(tt.key), tt.ext},
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
