package streamable

import (
	"strings"
	"testing"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// TestVersionOf shows that the version is found at any position and in any spelling.
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

// FuzzEnvelope shows that the transport reads a message as a JSON parser does, and that no value of
// it breaks out of a header.
func FuzzEnvelope(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"},"name":"a\r\nb","arguments":{"region":"\u0000","n":1e400}}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x","reason":"y"}}`,
		`{"jsonrpc":"2.0","id":"\u0041","result":{}}`,
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"=?base64?x?="}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		var m jsonrpc.Message
		if jsonrpc.Parse(msg, &m, 0) != nil || m.DuplicateParam() {
			return
		}
		e := readEnvelope(msg)
		kind := m.Kind
		if kind == jsonrpc.KindError {
			kind = jsonrpc.KindResponse
		}
		if e.method == "" && m.Method != nil {
			return // a method without a name
		}
		if e.kind != kind || string(e.id) != string(m.ID) || e.method != string(m.Method) {
			t.Fatalf("%s: kind %v, id %s, method %q; want %v, %s, %q", msg, e.kind, e.id, e.method, m.Kind, m.ID, m.Method)
		}
		c := NewTransport("http://x/", nil)
		c.tools.set(jsonwire.Text(e.name), []mcp.HeaderParam{{Header: "A", Path: []string{"region"}}, {Header: "B", Path: []string{"n"}}})
		h, _ := c.modernHeader(&e, versionValue(e.version))
		for name, values := range h {
			for _, v := range values {
				if strings.ContainsFunc(name+v, func(r rune) bool { return r < ' ' || r > '~' }) || strings.TrimSpace(v) != v {
					t.Fatalf("%s: header %q: %q", msg, name, v)
				}
			}
		}
	})
}
