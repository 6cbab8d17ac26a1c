package resend_test

import (
	"testing"

	"mcpwire/cmd/internal/playback/resend"
	"mcpwire/jsonrpc"
)

func TestFreshID(t *testing.T) {
	for _, tt := range []struct{ name, message, used, want string }{
		{"free", `{"id":2,"jsonrpc":"2.0","method":"m"}`, `1`, `{"id":2,"jsonrpc":"2.0","method":"m"}`},
		{"another type", `{"id":"1","jsonrpc":"2.0","method":"m"}`, `1`, `{"id":"1","jsonrpc":"2.0","method":"m"}`},
		{"taken", `{"id": 1 ,"jsonrpc":"2.0","method":"m","params":{"id":1}}`, `1`, `{"id": 2 ,"jsonrpc":"2.0","method":"m","params":{"id":1}}`},
		{"at the end", `{"jsonrpc":"2.0","method":"m","id":"a\u0062"}`, `"ab"`, `{"jsonrpc":"2.0","method":"m","id":1}`},
		{"in a batch", `[{"jsonrpc":"2.0","id":1,"method":"m"},{"jsonrpc":"2.0","id":0,"method":"m"}]`, `0`, `[{"jsonrpc":"2.0","id":1,"method":"m"},{"jsonrpc":"2.0","id":2,"method":"m"}]`},
		{"notification", `{"jsonrpc":"2.0","method":"m"}`, `0`, `{"jsonrpc":"2.0","method":"m"}`},
		{"answer", `{"jsonrpc":"2.0","id":0,"result":{}}`, `0`, `{"jsonrpc":"2.0","id":0,"result":{}}`},
		{"rubbish", `{"id":0`, `0`, `{"id":0`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, room := range []int{0, 100} { // free space after the message
				message := append(make([]byte, 0, len(tt.message)+room), tt.message...)
				if got := string(resend.FreshID(message, jsonrpc.ID(tt.used))); got != tt.want {
					t.Errorf("freshID is %s, want %s", got, tt.want)
				}
			}
		})
	}
}

func TestDecline(t *testing.T) {
	m := &jsonrpc.Message{ID: jsonrpc.ID(`"a\u0062"`), Method: []byte("ping")}
	if got := string(resend.Decline(m)); got != `{"jsonrpc":"2.0","id":"a\u0062","result":{}}` {
		t.Errorf("Decline is %s", got)
	}
}
