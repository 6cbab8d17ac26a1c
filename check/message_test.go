package check

import (
	"bytes"
	"testing"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
)

// FuzzMessageOf shows that the lenient parser finds the same parts of a message as jsonrpc.Parse.
func FuzzMessageOf(f *testing.F) {
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1}}`, `{"id":"a","params":null,"method":"m","jsonrpc":"2.0"}`, `{"jsonrpc":"2.0","method":"n"}`,
		`{"jsonrpc":"2.0","method":"\u006e","params":[1],"x":{}}`, `{"jsonrpc":"2.0","id":-0,"result":null}`, `{"jsonrpc":"2.0","id":null,"error":{"code":1}}`,
		`{"jsonrpc":"2.0","error":{}}`, ` { "\u006asonrpc" : "2\u002e0" , "id":1, "result":{},"params":{}} `, `{"jsonrpc":"2.0","id":1,"result":{},"params":null}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		text = trim(text)
		var parsed jsonrpc.Message
		if jsonrpc.Parse(text, &parsed, 0) != nil {
			return
		}
		got, want := messageOf(&parsed, text), parseMessage(text)
		if want.is(kindResponse) && isNull(want.params) {
			want.params = nil // no rule looks at the params of a response
		}
		same := got.kind == want.kind && got.method == want.method && got.duplicate == want.duplicate && jsonwire.Text(got.version) == jsonwire.Text(want.version)
		for _, pair := range [][2][]byte{{got.raw, want.raw}, {got.id, want.id}, {got.params, want.params}, {got.result, want.result}, {got.err, want.err}, {got.badMethod, want.badMethod}} {
			same = same && bytes.Equal(pair[0], pair[1]) && (pair[0] == nil) == (pair[1] == nil)
		}
		if !same {
			t.Errorf("%s: got %+v, want %+v", text, got, want)
		}
	})
}

// FuzzIndex shows that an index finds the members that a search finds.
func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"a":1,"\u0062":2,"a":3,"c":{"a":4}}`), "b")
	f.Add([]byte(`{}`), "a")
	f.Add([]byte(`[1]`), "a")
	f.Add([]byte(`{`+string(bytes.Repeat([]byte(`"x":0,`), 2*maxIndexed))+`"a":1}`), "a")
	f.Fuzz(func(t *testing.T, text []byte, name string) {
		text = validated(text)
		var x index
		for range 2 {
			for _, name := range []string{name, "a", ""} {
				if got, want := x.member(text, name), jsonwire.Lookup(text, name); !bytes.Equal(got, want) || (got == nil) != (want == nil) {
					t.Errorf("%s: %q is %q, want %q", text, name, got, want)
				}
			}
			x.reset()
		}
	})
}
