package rpc

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"mcpwire/internal/rpc/rpcbatch"
	"mcpwire/jsonrpc"
)

// Spec: S12 S13 C8 C9
func TestBatch(t *testing.T) {
	invalid := func(id any, what string) string {
		return failure(id, jsonrpc.CodeInvalidRequest, "invalid request: "+what, "")
	}
	many := func(n int, msg string) string { return "[" + strings.Repeat(msg+",", n-1) + msg + "]" }
	tests := []struct {
		name string
		send string
		want string // empty if no response is expected
	}{
		{"one", "[" + request(1, "ping!") + "]", "[" + result(1, "{}") + "]"},
		{"white space", " \t[ " + request(1, "ping!") + " ] ", "[" + result(1, "{}") + "]"},
		{"two", "[" + request(1, "ping!") + "," + request(`"\u0061"`, "ping!") + "]", "[" + result(1, "{}") + "," + result(`"\u0061"`, "{}") + "]"},
		{"empty", "[]", invalid("null", "empty batch")},
		{"notifications", "[" + notification("echo") + "," + notification("ping!") + "," + notification("no such") + "]", ""},
		{"responses", "[" + result(1, "{}") + "," + failure(2, 1, "x", "") + "]", ""},
		{"cancellations", "[" + cancelOf(1) + "]", ""},
		{"invalid responses", `[{"jsonrpc":"1.0","id":1,"result":1},{"jsonrpc":"2.0","result":1}]`, ""},
		{"invalid", "[1,{},[]]", "[" + invalid("null", "not an object") + "," + invalid("null", `member jsonrpc is missing; it must be "2.0"`) + "," + invalid("null", "not an object") + "]"},
		{"failing", "[" + request(1, "no such") + "," + request(2, "panic!") + "]", "[" + failure(1, jsonrpc.CodeMethodNotFound, "method not found: no such", "") + "," +
			failure(2, jsonrpc.CodeInternalError, "internal error", `{"exception":"panic"}`) + "]"},
		{"panic in Prepare", "[" + request(1, "panic in Prepare") + "," + notification("panic in Prepare") + "]", "[" + failure(1, jsonrpc.CodeInternalError, "internal error", `{"exception":"panic"}`) + "]"},
		{"mixed", "[" + strings.Join([]string{request(1, "ping!"), notification("ping!"), "5", result(9, "1"), `{"jsonrpc":"2.0","id":2}`, request("null", "ping!")}, ",") + "]",
			"[" + strings.Join([]string{result(1, "{}"), invalid("null", "not an object"), invalid(2, "member method is missing"), invalid("null", "id must be a string or an integer, not null")}, ",") + "]"},
		{"not JSON", "[" + request(1, "ping!") + ",", "x"},
		{"not JSON inside", "[" + request(1, "ping!") + ",{]", "x"},
		{"as many as allowed", many(rpcbatch.Max, notification("ping!")), ""},
		{"too many", many(rpcbatch.Max+1, notification("ping!")), invalid("null", "batch of 101 messages (limit 100)")},
		{"in batch", "[" + request(1, "in batch!") + "]", "[" + result(1, "true") + "]"},
	}
	m := methods{
		"panic!":    func(context.Context, *Request) (string, error) { panic("x") },
		"in batch!": func(_ context.Context, r *Request) (string, error) { return fmt.Sprint(r.InBatch()), nil },
	}
	everyMode(t, func(t *testing.T, p *peer) {
		for _, test := range tests {
			p.send(test.send)
			got := strings.Join(p.received(), "\n")
			want := test.want
			if want == "x" {
				_, err := rpcbatch.Parse([]byte(test.send), 0)
				want = string(jsonrpc.AppendError(nil, nil, err.(*jsonrpc.Error), true))
			}
			if got != want {
				t.Errorf("%s:\ngot  %s\nwant %s", test.name, got, want)
			}
		}
	}, Options{}, m)
}

// batchOf returns the members of a batch response, which may come in any order.
func batchOf(t *testing.T, msg string) map[string]string {
	t.Helper()
	entries, err := rpcbatch.Parse([]byte(msg), 0)
	if err != nil {
		t.Fatalf("%s: %v", msg, err)
	}
	answers := make(map[string]string)
	for i := range entries {
		id := entries[i].ID.String()
		if _, twice := answers[id]; twice || entries[i].Invalid != nil {
			t.Errorf("twice or invalid in %s: %s", msg, id)
		}
		answers[id] = string(entries[i].Result) + string(entries[i].Error)
	}
	return answers
}

// TestBatchOfSlowRequests shows that a batch gets one response, after the last of its requests has
// ended, whatever the order.
func TestBatchOfSlowRequests(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		p.send("["+strings.Join([]string{request(1, "slow"), request(2, "ping!"), request(3, "wait"), request(4, "echo", "[4]"), notification("slow"), request(5, "slow")}, ",")+"]", request(6, "ping!"))
		elapse(2 * time.Second)
		p.want(result(6, "{}"))
		p.send("[" + request(7, "ping!") + "]") // a batch does not wait for another batch
		p.want("[" + result(7, "{}") + "]")
		p.open()
		got := p.received()
		if len(got) != 1 {
			t.Fatalf("got %q", got)
		}
		answers := batchOf(t, got[0])
		for id, want := range map[string]string{"1": `"slow"`, "2": "{}", "3": `"waited"`, "4": "[4]", "5": `"slow"`} {
			if answers[id] != want {
				t.Errorf("request %s: %q, want %q", id, answers[id], want)
			}
		}
	}, Options{}, nil)
}

// TestBatchWithCanceledMembers shows that a canceled member gets no response, and the other members
// get theirs.
func TestBatchWithCanceledMembers(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		p.send("[" + request(1, "wait") + "," + request(2, "wait") + "," + request(3, "deaf") + "]")
		// a batch may contain the cancellation
		p.send("[" + request(4, "wait") + "," + cancelOf(1) + "]")
		p.send("[" + request(5, "wait") + "," + request(6, "wait") + "," + cancelOf(5) + "]")
		p.want()
		p.send(cancelOf(4), cancelOf(3))
		p.want() // all members of the second batch were canceled
		p.send(cancelOf(6))
		p.want()
		p.open()
		p.want("[" + result(2, `"waited"`) + "]")
	}, Options{}, nil)
}

// TestBatchInQueue shows that members of a batch wait for a slot like other requests, and can be
// canceled while they wait.
func TestBatchInQueue(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		p.send("[" + request(1, "deaf") + "," + request(2, "deaf") + "," + request(3, "echo", "[]") + "," + request(4, "echo", "[]") + "," + request(3, "echo", "[]") + "]")
		p.send(cancelOf(3), request(9, "ping!"))
		p.want(result(9, "{}"))
		p.open()
		answers := batchOf(t, p.received()[0])
		if len(answers) != 4 || answers["1"] != `"deaf"` || answers["2"] != `"deaf"` || answers["4"] != "[]" || !strings.Contains(answers["3"], "still in flight") {
			t.Errorf("got %q", answers)
		}
	}, Options{MaxInFlight: 2}, nil)
}

// TestLargeBatches shows that the members of a large batch share its memory, which is not reused
// until the last of them has ended.
func TestLargeBatches(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		var notes, bad atomic.Int32
		p.methods["check"] = func(_ context.Context, r *Request) (string, error) {
			before := string(r.Params)
			elapse(10 * time.Millisecond)
			if string(r.Params) != before || strings.Trim(before, `["]`+before[2:3]) != "" {
				bad.Add(1)
			}
			if r.Kind == jsonrpc.KindNotification {
				notes.Add(1)
			}
			return string(r.Params), nil
		}
		const rounds, members, others = 2, 10, 5
		for round := range rounds {
			var batch []string
			for i := range members {
				text := `["` + strings.Repeat(string(rune('a'+i+round)), 20000) + `"]`
				batch = append(batch, notification("check", text), request(fmt.Sprintf(`"%d %d"`, round, i), "check", text))
			}
			p.send("[" + strings.Join(batch, ",") + "]")
			for range others { // large frames that would reuse the memory
				elapse(20 * time.Millisecond)
				p.send(request(round, "echo", `["`+strings.Repeat("!", 100000)+`"]`))
			}
		}
		elapse(10 * time.Second)
		answers := p.received()
		if len(answers) != rounds*(1+others) || notes.Load() != rounds*members || bad.Load() != 0 {
			t.Errorf("%d responses, %d notifications; %d handlers saw their params change", len(answers), notes.Load(), bad.Load())
		}
		for _, msg := range answers {
			if msg[0] == '[' && len(batchOf(t, msg)) != members {
				t.Errorf("batch with %d answers", len(batchOf(t, msg)))
			}
		}
	}, Options{}, nil)
}

func TestBatchesRejected(t *testing.T) {
	const refusal = "invalid request: this protocol revision has no batches; send each message on its own"
	everyMode(t, func(t *testing.T, p *peer) {
		p.send("["+request(1, "ping!")+"]", "[]", "[1]", "["+notification("ping!")+"]")
		f := failure("null", jsonrpc.CodeInvalidRequest, refusal, "")
		p.want(f, f, f, f)
		p.send("[" + request(1, "ping!"))
		if got := p.received(); len(got) != 1 || !strings.Contains(got[0], "-32700") {
			t.Errorf("got %q", got)
		}
		p.conn.SetPolicy(Policy{NoBatches: true, OmitNullID: true})
		p.send("[]")
		p.want(strings.Replace(f, `"id":null,`, "", 1))
		p.conn.SetPolicy(Policy{})
		p.send("[" + request(1, "ping!") + "]")
		p.want("[" + result(1, "{}") + "]")
	}, Options{Policy: Policy{NoBatches: true}}, nil)
}

// TestResponsesInBatch shows that a batch may contain responses to calls of this side.
//
// Spec: C9
func TestResponsesInBatch(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		p.greet()
		a, b := p.call(t.Context(), "a"), p.call(t.Context(), "b")
		p.received()
		p.send("[" + result(2, `"second"`) + "," + request(1, "ping!") + "," + result(1, `"first"`) + "]")
		p.want("[" + result(1, "{}") + "]")
		got := map[string]bool{(<-a).result: true, (<-b).result: true}
		if !got[`"first"`] || !got[`"second"`] {
			t.Errorf("got %v", got)
		}
	}, Options{}, nil)
}

// TestWaitingRequestsKeepLittle shows that a waiting request keeps memory in proportion to its size
// in the limits.
func TestWaitingRequestsKeepLittle(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		huge := `["` + strings.Repeat("x", 8<<20) + `"]`
		large := `["` + strings.Repeat("x", 100000) + `"]`
		p.send("[" + request(1, "wait") + "," + notification("ping!", huge) + "," + request(2, "wait", large) + "]")
		p.send(notification("ping!", huge), request(3, "wait", large), request(4, "wait"))
		p.pause()
		table := &p.conn.inFlight
		table.mu.Lock()
		for r := range table.requests.all() {
			// a pooled buffer may be that much larger, and there may be two
			want := 2*maxWaste*len(r.Params) + 4*maxCopy
			if r.turn != 0 {
				want = 32 << 20 // a request that lost the lead keeps the read buffer of that time
			}
			if got := cap(r.frame) + cap(r.readBuf) + cap(r.Raw()); got > want {
				t.Errorf("request %s with %d bytes of params keeps %d", r.ID, len(r.Params), got)
			}
		}
		if n := table.requests.len(); n != 4 {
			t.Errorf("%d requests wait", n)
		}
		table.mu.Unlock()
		p.open()
		if got := p.received(); len(got) != 3 {
			t.Errorf("%d answers", len(got))
		}
	}, Options{}, nil)
}
