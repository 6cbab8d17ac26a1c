package era

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/rpc/rpcbatch"
	"mcpwire/jsonrpc"
)

func TestCheckForwarded(t *testing.T) {
	for _, test := range []struct {
		text string
		want string // the error; "" means no error
	}{
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"a":{"name":1}},"_meta":{}}}`, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","x":{"a":1},"y":{"a":1}}`, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"safe","name":"danger"}}`, `invalid params: member "name" appears more than once`},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"safe","n\u0061me":"danger"}}`, `invalid params: member "name" appears more than once`},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"safe","NAME":"danger"}}`, `invalid params: member "NAME" appears more than once`},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"Name":"danger"}}`, `invalid params: member "Name" must be spelled "name"`},
		{`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"\u0055RI":"danger"}}`, `invalid params: member "URI" must be spelled "uri"`},
		{`{"jsonrpc":"2.0","id":1,"method":"x/y","params":{"Name":"fine"}}`, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":[{"y":1,"y":2}]}}}`, `invalid params: member "y" appears more than once`},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"y":1,"Y":2}}}`, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{"progressToken":1,"progressToken":2}}}`, `invalid params: member "progressToken" appears more than once`},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","x":1,"x":2}`, `invalid request: member "x" appears more than once`},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call"}`, `invalid request: member "Method" appears more than once`},
		{`{"jsonrpc":"2.0","method":"notifications/x","Id":1}`, `invalid request: member "Id" must be spelled "id"`},
		{`{"jsonrpc":"2.0","method":"notifications/x","param` + "\u017f" + `":{}}`, "invalid request: member \"param\u017f\" must be spelled \"params\""},
		{`{"jsonrpc":"2.0","method":"notifications/x","params":{"a":1,"a":2}}`, `invalid params: member "a" appears more than once`},
		{`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"a"}}`, `invalid request: tools/call is a request and needs an id`},
		{`{"jsonrpc":"2.0","id":1,"result":{"action":"accept","action":"decline"}}`, `invalid request: member "action" appears more than once`},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"","data":{"a":0,"a":0}}}`, `invalid request: member "a" appears more than once`},
	} {
		var m jsonrpc.Message
		if err := jsonrpc.Parse([]byte(test.text), &m, 0); err != nil {
			t.Fatalf("%s: %v", test.text, err)
		}
		if diff := cmp.Diff(test.want, messageOf(t, CheckForwarded([]byte(test.text), &m))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.text, diff)
		}
	}
}

// TestCheckForwardedOfBatch shows that the parts of a message of a batch that are forwarded are
// checked.
func TestCheckForwardedOfBatch(t *testing.T) {
	entries, err := rpcbatch.Parse([]byte(`[
		{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}},
		{"jsonrpc":"2.0","id":2,"result":{"a":{"b":0,"b":0}}},
		{"jsonrpc":"2.0","id":3,"method":"ping"}]`), 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range entries {
		got = append(got, messageOf(t, CheckForwarded(nil, &entries[i].Message)))
	}
	want := []string{`invalid params: member "name" appears more than once`, `invalid request: member "b" appears more than once`, ""}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// messageOf returns the text of an error, which must say that the form is wrong and have the code
// that belongs to the text.
func messageOf(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	if _, ok := errors.AsType[*FormError](err); !ok {
		t.Errorf("got a %T, want a *FormError", err)
	}
	e := jsonrpc.ErrorOf(err)
	want := jsonrpc.Code(jsonrpc.CodeInvalidRequest)
	if len(e.Message) > 14 && e.Message[:14] == "invalid params" {
		want = jsonrpc.CodeInvalidParams
	}
	if e.Code != want {
		t.Errorf("code %d, want %d: %s", e.Code, want, e.Message)
	}
	return e.Message
}
