package gateway

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/jsonrpc"
)

// FuzzRewrite checks that rewriting keeps messages valid, and that a message without a known task,
// state or URI does not change.
func FuzzRewrite(f *testing.F) {
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"resource_link","uri":"x:a","name":"a"}]}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"contents":[{"uri" : "x:a", "text":"t"}],"taskId":"t","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"q"}}}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"y:b"}}}],"requestState":"s"}}`,
		`{"jsonrpc":"2.0","id":"q","result":{"resultType":"task","taskId":"\u00e9","task":{"taskId":1}}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"content":[[{"uri":"x:a"}],{"uri":{}},null],"result":{"content":{"uri":"x:a"}}}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"_meta":{"ui":{"resourceUri":"ui://b/x"},"ui/resourceUri":"ui:x"},"inputRequests":{"s":{"method":"m","params":{"messages":[{"content":{"resource":{"uri":""}}}]}}}}}`,
		`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:a"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\u0061","n":1e400}}`,
	} {
		f.Add([]byte(text))
	}
	g, err := New(&Options{Upstreams: []Upstream{streamUpstream("one", nil), streamUpstream("two", nil)}})
	if err != nil {
		f.Fatal(err)
	}
	defer g.Close()
	be, err := g.state.Load().byName["two"].acquire(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m := new(jsonrpc.Message)
		if jsonrpc.Parse(text, m, 0) != nil {
			return
		}
		s := g.scope(t.Context(), be, bridge.EraModern)
		for _, method := range []string{"tools/call", "tasks/get", "resources/read"} {
			out := s.response(method, text)
			if err := jsonwire.Valid(out, 0); err != nil {
				t.Fatalf("%s is invalid: %v", out, err)
			}
			for _, name := range []string{`"uri"`, `esourceUri"`, `"taskId"`, `"requestState"`} {
				if bytes.Contains(text, []byte(name)) {
					return
				}
			}
			if !bytes.Equal(out, text) {
				t.Fatalf("got %s, want the same as %s", out, text)
			}
		}
		out := s.message(text, m)
		if err := jsonwire.Valid(out, 0); err != nil {
			t.Fatalf("%s is invalid: %v", out, err)
		}
		if name, ok := textParam(m, "name"); ok {
			renamed := replaceText(text, to("own"), "params", "name")
			back := replaceText(renamed, to(name), "params", "name")
			var a, b any
			if json.Unmarshal(text, &a) == nil && json.Unmarshal(back, &b) == nil && !reflect.DeepEqual(a, b) && name != "" {
				t.Fatalf("got %s, want the same as %s", back, text)
			}
		}
	})
}
