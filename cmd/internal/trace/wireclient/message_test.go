package wireclient

import "testing"

func TestPending(t *testing.T) {
	const message = `[{"jsonrpc":"2.0","id":1,"method":"m"},{"jsonrpc":"2.0","method":"n"},{"jsonrpc":"2.0","id":"a","method":"m"},{"jsonrpc":"2.0","id":2,"method":"subscriptions/listen"}]`
	for _, tt := range []struct {
		answer string
		lone   bool
		want   bool
		left   int
	}{
		{`{"jsonrpc":"2.0","id":1,"result":{}}`, false, true, 1},
		{`{"jsonrpc":"2.0","id":"\u0061","error":{"code":1,"message":"m"}}`, false, true, 1},
		{`[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":"a","result":{}}]`, false, true, 0},
		{`{"jsonrpc":"2.0","id":3,"result":{}}`, true, false, 2},
		{`{"jsonrpc":"2.0","id":1,"method":"m"}`, true, false, 2},
		{`{"jsonrpc":"2.0","error":{"code":1,"message":"m"}}`, false, false, 2},
		{`{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}`, true, true, 0},
		{`{"jsonrpc":`, true, false, 2},
	} {
		p := PendingOf([]byte(message))
		if got := p.Resolve(Messages([]byte(tt.answer)), tt.lone); got != tt.want || len(p) != tt.left {
			t.Errorf("%s: %v, %d left, want %v, %d", tt.answer, got, len(p), tt.want, tt.left)
		}
	}
}
