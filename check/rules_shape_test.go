package check

import "testing"

// TestEntryName shows that a finding about an entry of a list names the entry.
func TestEntryName(t *testing.T) {
	const result = `{"tools":[{"name":"a"},{"name":"b"},{}],"contents":[{"uri":"x"}]}`
	for _, tt := range []struct{ pointer, want string }{
		{"/tools/1", `tool "b": `},
		{"/tools/0/inputSchema/type", `tool "a": `},
		{"/tools/2", ""},
		{"/tools/7", ""},
		{"/tools/x", ""},
		{"/contents/0/uri", ""},
		{"/tools", ""},
		{"", ""},
	} {
		if got := entryName([]byte(result), tt.pointer); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.pointer, got, tt.want)
		}
	}
}
