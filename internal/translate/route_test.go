package translate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/translate"
)

func TestRoute(t *testing.T) {
	for text, want := range map[string]int64{
		`{"jsonrpc":"2.0","id":7,"result":{}}`:                                                                                           7,
		`{"jsonrpc":"2.0","id":8,"error":{"code":1,"message":""}}`:                                                                       8,
		`{"jsonrpc":"2.0","id":"8","result":{}}`:                                                                                         0,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":9,"progress":1}}`:                                  9,
		`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":10}}}`: 10,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":11}}`:                                                 11,
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`:                                          0,
		`{"jsonrpc":"2.0","id":12,"method":"roots/list"}`:                                                                                0,
		`[{"jsonrpc":"2.0","id":12,"result":{}}]`:                                                                                        0,
		`{`: 0,
	} {
		if got, ok := translate.Route([]byte(text)); got != want || ok != (want != 0) {
			t.Errorf("%s: got %d, %t", text, got, ok)
		}
	}
}

func TestClientKey(t *testing.T) {
	const meta = `{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"io.modelcontextprotocol/clientCapabilities":`
	a := translate.ClientKey([]byte(meta + `{"roots":{}}}}}`))
	for text, same := range map[string]bool{
		meta + `{ "roots": {} },"progressToken":1}}}`: true,
		meta + `{}}}}`: false,
		meta + `{"roots":{}},"io.modelcontextprotocol/clientInfo":{"name":"c"}}}}`: false,
		`{"jsonrpc":"2.0","id":1,"method":"x"}`:                                    false,
		`{`:                                                                        false,
	} {
		if got := translate.ClientKey([]byte(text)); (got == a) != same {
			t.Errorf("%s: got %q, not told from %q: %t", text, got, a, !same)
		}
	}
	if a == "" || translate.ClientKey([]byte(`{"jsonrpc":"2.0","id":1,"method":"x"}`)) != "" {
		t.Errorf("got %q", a)
	}
}

// TestMarks: what is sent later says which earlier messages it is made of.
func TestMarks(t *testing.T) {
	now := time.Unix(0, 0)
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{}}}`
	tr := translate.NewModernToLegacy(nil)
	var state string
	step := func(mark uint64, far bool, text string, want ...[]uint64) {
		t.Helper()
		tr.SetCause(mark)
		var outs []translate.Out
		switch {
		case text == "":
			now = now.Add(time.Second)
			outs = tr.Tick(now)
		case far:
			outs = tr.FromUpstream(now, []byte(text), 0)
		default:
			outs = tr.FromDownstream(now, []byte(strings.ReplaceAll(text, "STATE", state)), mark)
		}
		var got [][]uint64
		for _, o := range outs {
			got = append(got, o.Causes)
			if _, rest, ok := strings.Cut(string(o.Message), `"requestState":"`); ok {
				state, _, _ = strings.Cut(rest, `"`)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	step(1, false, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t",`+meta+`}}`, nil)
	step(2, true, `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{}}}`, nil, []uint64{1})
	step(3, true, `{"jsonrpc":"2.0","id":1,"method":"roots/list"}`, nil)
	step(4, true, `{"jsonrpc":"2.0","id":2,"method":"roots/list"}`, nil)
	step(0, false, ``, []uint64{3, 4})
	step(5, true, `{"jsonrpc":"2.0","id":2,"result":{}}`, nil)
	step(6, false, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","requestState":"STATE",`+meta+`}}`, nil, nil, []uint64{5}) // the questions are moot
}
