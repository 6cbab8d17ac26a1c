package streamable

import (
	"testing"

	"mcpwire/jsonrpc"
)

// The version is found wherever it stands and however it is spelled.
func TestVersionOf(t *testing.T) {
	const name = `"io.modelcontextprotocol/protocolVersion":`
	for _, tt := range []struct {
		meta, want string
		named      bool
	}{
		{`{` + name + `"2026-07-28"}`, "2026-07-28", true},
		{`{` + name + `"2026-07-28","a":1}`, "2026-07-28", true},
		{`{"a":1,` + name + `"2026-07-28"}`, "2026-07-28", true},
		{`{ ` + name + ` "2026-07-28"}`, "2026-07-28", true},
		{`{` + name + `""}`, "", true},
		{`{` + name + `"2026-07-2\u0038"}`, "2026-07-28", true},
		{`{` + name + `"\"2026"}`, `"2026`, true},
		{`{` + name + `"a version that is longer than any"}`, "a version that is longer than any", true},
		{`{` + name + `null}`, "", true},
		{`{"a":1}`, "", false},
		{`{}`, "", false},
		{`[]`, "", false},
	} {
		var m jsonrpc.Message
		if err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":`+tt.meta+`}}`), &m, 0); err != nil {
			t.Fatal(err)
		}
		if got, named := versionOf(&m); string(got) != tt.want || named != tt.named {
			t.Errorf("%s: %q, %v", tt.meta, got, named)
		}
	}
}
