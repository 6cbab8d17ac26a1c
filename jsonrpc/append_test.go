package jsonrpc

import "testing"

// Spec: S1 S7 S8 S10 S11 S25 S63 C7 C18 C37
func TestAppend(t *testing.T) {
	e := &Error{Code: CodeInvalidParams, Message: "no \"x\"\n", Data: []byte(`{"a":1}`)}
	tests := []struct {
		name string
		got  []byte
		want string
	}{
		{"request", AppendRequest(nil, IntID(1), "m", []byte(`{"a":1}`)), `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1}}`},
		{"request without params", AppendRequest(nil, ID(`"a\u0062"`), "m", nil), `{"jsonrpc":"2.0","id":"a\u0062","method":"m"}`},
		{"method to be quoted", AppendRequest(nil, IntID(1), "a\"\xff\n", nil), `{"jsonrpc":"2.0","id":1,"method":"a\"` + "\ufffd" + `\n"}`},
		{"behind other bytes", AppendRequest([]byte("x"), IntID(1), "", nil), `x{"jsonrpc":"2.0","id":1,"method":""}`},
		{"notification", AppendNotification(nil, "m", []byte(`[1]`)), `{"jsonrpc":"2.0","method":"m","params":[1]}`},
		{"notification without params", AppendNotification(nil, "m", nil), `{"jsonrpc":"2.0","method":"m"}`},
		{"result", AppendResult(nil, IntID(1), []byte(`null`)), `{"jsonrpc":"2.0","id":1,"result":null}`},
		{"error", AppendError(nil, IntID(1), e, false), `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no \"x\"\n","data":{"a":1}}}`},
		{"error without data", AppendError(nil, IntID(1), &Error{Code: 5}, false), `{"jsonrpc":"2.0","id":1,"error":{"code":5,"message":""}}`},
		{"error with id null", AppendError(nil, nil, &Error{Code: CodeParseError, Message: "x"}, true), `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}`},
		{"error without id", AppendError(nil, nil, &Error{Code: CodeParseError, Message: "x"}, false), `{"jsonrpc":"2.0","error":{"code":-32700,"message":"x"}}`},
		{"code 0 is never sent", AppendError(nil, IntID(1), &Error{Message: "x"}, false), `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"x"}}`},
		{"one line already", OneLine([]byte(`{"a": "\n" }`)), `{"a": "\n" }`},
		{"made one line", OneLine([]byte("{\r\n  \"a b\": \" \\n\"\n}")), `{"a b":" \n"}`},
		{"nothing to be made one line", OneLine(nil), ``},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if string(test.got) != test.want {
				t.Errorf("got  %s\nwant %s", test.got, test.want)
			}
		})
	}
}

func TestAppendAllocatesNothing(t *testing.T) {
	id, params := ID(`"abc"`), []byte(`{"a":[1,2,3]}`)
	e := &Error{Code: CodeInvalidParams, Message: "message \u00e9", Data: params}
	buf := make([]byte, 0, 1<<10)
	tests := map[string]func(){
		"AppendRequest":      func() { buf = AppendRequest(buf[:0], id, "tools/call", params) },
		"AppendNotification": func() { buf = AppendNotification(buf[:0], "tools/call", params) },
		"AppendResult":       func() { buf = AppendResult(buf[:0], id, params) },
		"AppendError":        func() { buf = AppendError(buf[:0], id, e, true) },
		"OneLine":            func() { OneLine(params) },
	}
	for name, f := range tests {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
