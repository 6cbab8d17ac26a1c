package translate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/base/seal"
	"mcpwire/internal/proxy/translate"
	"mcpwire/jsonrpc"
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
	} {
		var m jsonrpc.Message
		if err := jsonrpc.Parse([]byte(text), &m, 0); err != nil {
			t.Fatal(err)
		}
		if got, ok := translate.Route(&m); got != want || ok != (want != 0) {
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
			t.Errorf("ClientKey(%s) = %q; equal to %q: want %t", text, got, a, same)
		}
	}
	if a == "" || translate.ClientKey([]byte(`{"jsonrpc":"2.0","id":1,"method":"x"}`)) != "" {
		t.Errorf("got %q", a)
	}
}

// TestCauses checks that each output names the messages that caused it.
func TestCauses(t *testing.T) {
	now := time.Unix(0, 0)
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{}}}`
	tr := translate.NewModernToLegacy(nil)
	var state string
	step := func(mark uint64, upstream bool, text string, want ...[]uint64) {
		t.Helper()
		tr.SetCause(mark)
		var outs []translate.Out
		switch {
		case text == "":
			now = now.Add(time.Second)
			outs = tr.Tick(now)
		case upstream:
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
	step(6, false, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","requestState":"STATE",`+meta+`}}`, nil, nil, []uint64{5}) // the input requests are obsolete
}

// TestCanceledWithoutServer checks that requests that a client makes and cancels while there is no
// server are not kept.
func TestCanceledWithoutServer(t *testing.T) {
	now := time.Unix(0, 0)
	for _, modern := range []bool{false, true} {
		p := new(player)
		kind := ""
		if modern {
			kind = "@modern"
		}
		p.play([]string{kind, `@handshake 2025-11-25 {"extensions":{"$/tasks":{}}} {"tools":{},"tasks":{"requests":{"tools":{"call":{}}}},"extensions":{"$/tasks":{}}}`, "@lost"})
		for i := range 20_000 {
			method, more := "tools/call", `"name":"t"`
			if modern && i%2 == 0 {
				method, more = "tasks/update", `"taskId":"T","inputResponses":{}`
			}
			p.t.FromDownstream(now, []byte(lengthen.Replace(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{%s,"_meta":{$V:{"extensions":{"$/tasks":{}}}}}}`, i, method, more))), 0)
			p.t.FromDownstream(now, fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, i), 0)
		}
		if n := translate.Waiting(p.t); n > 100 {
			t.Errorf("modern %t: got %d queued requests, want the canceled ones released", modern, n)
		}
		p.t.Close(now, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "closed"})
		if leaks := translate.Leaks(p.t); leaks != "" {
			t.Errorf("modern %t: %s", modern, leaks)
		}
	}
}

// TestResourceLimit checks the limit on the size of subscriptions, and that duplicate resources do
// not count.
func TestResourceLimit(t *testing.T) {
	p := new(player)
	p.play([]string{"@modern", "@limit bytes=100000", `@handshake 2025-11-25 {} {"resources":{"subscribe":true}}`})
	listen := func(id, uris string) []translate.Out {
		return p.t.FromDownstream(p.now, []byte(lengthen.Replace(`{"jsonrpc":"2.0","id":`+id+`,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":[`+uris+`]},"_meta":{$V:{}}}}`)), 0)
	}
	var same strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&same, `"x:%d",`, i)
	}
	if outs := listen("1", same.String()+strings.Repeat(`"x:1",`, 1_000_000)+`"x:1"`); len(outs) != 1000 {
		t.Errorf("got %d messages for 1000 resources, want 1000", len(outs))
	}
	big := `"x:` + strings.Repeat("y", 60_000) + `"`
	outs := listen("2", big+","+strings.Replace(big, "x:", "z:", 1))
	if len(outs) != 1 || !strings.Contains(string(outs[0].Message), "too many requests in flight") {
		t.Errorf("above the limit: got %d messages, want one error", len(outs))
	}
}

// TestStateOfAnotherSession checks that a session rejects the state of another session with the
// same keys, and that the call of that state continues.
func TestStateOfAnotherSession(t *testing.T) {
	ring := new(seal.Ring)
	now := time.Unix(1e9, 0)
	var sessions [2]*translate.ModernToLegacy
	call := func(i int, id, more string) []translate.Out {
		return sessions[i].FromDownstream(now, []byte(lengthen.Replace(`{"jsonrpc":"2.0","id":`+id+`,"method":"tools/call","params":{"name":"t"`+more+`,"_meta":{$V:{"roots":{}}}}}`)), 0)
	}
	var states [2]string
	for i := range sessions {
		sessions[i] = translate.NewModernToLegacy(&translate.Options{Ring: ring})
		call(i, "1", "")
		sessions[i].FromUpstream(now, []byte(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"2"}}}`), 0)
		sessions[i].FromUpstream(now, []byte(`{"jsonrpc":"2.0","id":9,"method":"roots/list"}`), 2)
		for _, o := range sessions[i].Tick(now.Add(10 * time.Millisecond)) {
			if _, rest, ok := strings.Cut(string(o.Message), `"requestState":"`); ok {
				states[i], _, _ = strings.Cut(rest, `"`)
			}
		}
		if states[i] == "" {
			t.Fatal("the session has no request state")
		}
	}
	retry := func(state string) string {
		return `,"inputResponses":{"input-1":{"roots":[]}},"requestState":"` + state + `"`
	}
	forged := "A" + states[0][1:len(states[0])-1]
	for _, state := range []string{states[1], forged, states[0] + "A", "", strings.ToLower(states[0]), strings.Repeat("A", 1<<20)} {
		outs := call(0, "2", retry(state))
		if len(outs) != 1 || outs[0].To != translate.Downstream || !strings.Contains(string(outs[0].Message), `"error":{"code":-32602`) {
			t.Errorf("invalid state: got %v", outs)
		}
	}
	outs := call(0, "3", `,"arguments":{"other":true}`+retry(states[0]))
	if len(outs) != 1 || !strings.Contains(string(outs[0].Message), `"error":{"code":-32602`) {
		t.Errorf("state with other params: got %v", outs)
	}
	for i := range sessions {
		if outs := call(i, "4", retry(states[i])); len(outs) != 1 || outs[0].To != translate.Upstream {
			t.Errorf("valid state: got %v", outs)
		}
		if outs := call(i, "5", retry(states[i])); len(outs) != 1 || !strings.Contains(string(outs[0].Message), `"error":{"code":-32602`) {
			t.Errorf("used state: got %v", outs)
		}
	}
}
