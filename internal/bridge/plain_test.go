package bridge

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestBytes: nothing that passes is changed, whatever is in it.
func TestBytes(t *testing.T) {
	f := newFarm(t)
	near, _ := client0(t, f.bridge(with(legacy, nil)))
	near.send(hello)
	far := f.next()
	shake(near, far)
	for _, line := range []string{
		`{"id":"a\u0062","jsonrpc":"2.0","method":"x/unknown","extra":{"b":1,"a":123456789012345678901234567890},"params":{"z":1.50,"a":"\u00e9"}}`,
		`{"jsonrpc":"2.0","method":"notifications/custom","params":{"n":1e400}}`,
		`{"jsonrpc":"2.0","id":12345678901234567890,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"p"}}}`,
	} {
		near.send(line)
		far.wants(line)
	}
	for _, line := range []string{
		`{"method":"notifications/progress","jsonrpc":"2.0","params":{"progressToken":"p","progress":1,"more":[]}}`,
		`{"jsonrpc":"2.0","id":"ab","result":{"x":1.0},"unknown":true}`,
		`{"jsonrpc":"2.0","id":12345678901234567890,"error":{"code":-5,"message":"m","data":null,"extra":1}}`,
		`{"jsonrpc":"2.0","id":"ask","method":"sampling/createMessage","params":{},"extra":2}`,
	} {
		far.send(line)
		near.wants(line)
	}
	answer := `{"id":"ask","result":{"role":"user"},"jsonrpc":"2.0","z":0}`
	near.send(answer)
	far.wants(answer)
}

func TestLineBreaks(t *testing.T) {
	frame := []byte("{\n  \"jsonrpc\": \"2.0\",\r\n  \"id\": 1, \"method\": \"a\\nb\"\n}")
	if got, want := string(compact(frame)), `{"jsonrpc":"2.0","id":1,"method":"a\nb"}`; got != want {
		t.Errorf("compact = %s, want %s", got, want)
	}
}

func TestBatch(t *testing.T) {
	f := newFarm(t)
	near, _ := client0(t, f.bridge(with(legacy, nil)))
	near.send(hello)
	far := f.next()
	shake(near, far)
	near.send(`[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","method":"n"},{"jsonrpc":"2.0","id":2,"method":"b"},{"id":3}]`)
	far.wants(`{"jsonrpc":"2.0","id":1,"method":"a"}`, `{"jsonrpc":"2.0","method":"n"}`, `{"jsonrpc":"2.0","id":2,"method":"b"}`)
	far.send(`[{"jsonrpc":"2.0","id":2,"result":{}},{"jsonrpc":"2.0","id":1,"result":{}}]`)
	got := near.read() // its own refusal may come before the server's answers or behind them
	var answers []json.RawMessage
	if err := json.Unmarshal([]byte(got), &answers); err != nil || len(answers) != 3 {
		t.Fatalf("answer: %s, %v", got, err)
	}
	for _, want := range []string{`{"jsonrpc":"2.0","id":3,"error":{"code":-32600`, `{"jsonrpc":"2.0","id":2,"result":{}}`, `{"jsonrpc":"2.0","id":1,"result":{}}`} {
		if strings.Count(got, want) != 1 {
			t.Errorf("answer: %s, want %s in it", got, want)
		}
	}
}

func TestDuplicateID(t *testing.T) {
	f := newFarm(t)
	near, _ := client0(t, f.bridge(with(legacy, nil)))
	near.send(hello)
	far := f.next()
	shake(near, far)
	near.send(`{"jsonrpc":"2.0","id":1,"method":"a"}`)
	far.wants(`{"jsonrpc":"2.0","id":1,"method":"a"}`)
	near.send(`{"jsonrpc":"2.0","id":1,"method":"b"}`)
	near.reads(`"id":1,"error":{"code":-32600`)
	far.send(`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":9,"result":{}}`)
	near.wants(`{"jsonrpc":"2.0","id":1,"result":{}}`) // once, and nothing of what nobody has asked
	near.send(`{"jsonrpc":"2.0","id":2,"method":"c"}`)
	far.wants(`{"jsonrpc":"2.0","id":2,"method":"c"}`)
	far.send(`{"jsonrpc":"2.0","id":2,"result":{}}`)
	near.wants(`{"jsonrpc":"2.0","id":2,"result":{}}`)
}

func TestCancelled(t *testing.T) {
	f := newFarm(t)
	near, _ := client0(t, f.bridge(with(legacy, nil)))
	near.send(hello)
	far := f.next()
	shake(near, far)
	near.send(`{"jsonrpc":"2.0","id":1,"method":"a"}`)
	far.wants(`{"jsonrpc":"2.0","id":1,"method":"a"}`)
	cancel := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"reason":"x","requestId":1}}`
	near.send(cancel)
	far.wants(cancel)
	far.send(`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","method":"n"}`)
	near.wants(`{"jsonrpc":"2.0","method":"n"}`) // the late answer is dropped
	near.send(cancel, strings.Replace(cancel, "1}", "2}", 1), `{"jsonrpc":"2.0","id":2,"method":"b"}`)
	far.wants(`{"jsonrpc":"2.0","id":2,"method":"b"}`) // and so is what cancels nothing
}

// TestCrash: whoever waits is told at once; the next server is told what the one before knew.
func TestCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		b := f.bridge(with(legacy, nil))
		near, _ := client0(t, b)
		near.send(hello)
		far := f.next()
		shake(near, far)
		near.send(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"a:b"}}`)
		far.reads("resources/subscribe")
		far.send(answering("1", "{}"))
		near.wants(answering("1", "{}"))
		near.send(`{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"debug"}}`)
		far.reads("logging/setLevel")
		far.send(answering("2", "{}"))
		near.wants(answering("2", "{}"))
		near.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t"}}`)
		far.reads("tools/call")
		far.send(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}`)
		near.reads("elicitation/create")

		start := time.Now()
		far.f.Close()
		near.reads(`"id":3,"error":{"code":-32603`, "the server is gone")
		near.reads(`"method":"notifications/cancelled"`, `"requestId":"q"`)
		if d := time.Since(start); d > 10*time.Millisecond {
			t.Errorf("it took %v to be told", d)
		}
		near.send(`{"jsonrpc":"2.0","id":"q","result":{}}`) // nobody waits for it any more
		near.send(`{"jsonrpc":"2.0","id":4,"method":"ping"}`)

		far = f.next()
		id := far.request(`"method":"initialize"`, `"protocolVersion":"2025-11-25"`)
		far.send(answering(id, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}`))
		far.wants(confirmed)
		set := far.request("logging/setLevel", `"level":"debug"`)
		sub := far.request("resources/subscribe", `"uri":"a:b"`)
		near.wants(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		far.wants(`{"jsonrpc":"2.0","id":4,"method":"ping"}`)
		far.send(answering(set, "{}"), answering(sub, "{}"), answering("4", "{}"))
		near.wants(answering("4", "{}"))
		if d := time.Since(start); d > time.Second {
			t.Errorf("the next server came after %v", d)
		}
	})
}

// TestOtherRevision: a server that agrees to something else now cannot take the place of the one before.
func TestOtherRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		near, _ := client0(t, f.bridge(with(legacy, nil)))
		near.send(hello)
		far := f.next()
		shake(near, far)
		far.f.Close()
		near.send(`{"jsonrpc":"2.0","id":4,"method":"ping"}`)
		far = f.next()
		id := far.request(`"method":"initialize"`)
		far.send(answering(id, `{"protocolVersion":"2024-11-05","capabilities":{}}`))
		near.reads(`"id":4,"error"`, "speaks revision 2024-11-05 now")
	})
}

// TestNoServer: a server that cannot be started is an error at once, and no busy loop.
func TestNoServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		starts := 0
		f.fail = func() error {
			starts++
			return errTest
		}
		near, _ := client0(t, f.bridge(with(legacy, nil)))
		for id := range 40 {
			start := time.Now()
			near.send(strings.Replace(hello, `"id":0`, `"id":`+string(rune('1'+id%9)), 1))
			near.reads("error", errTest.Error())
			if d := time.Since(start); d > 11*time.Second {
				t.Errorf("the error came after %v", d)
			}
		}
		if starts > 20 {
			t.Errorf("%d starts", starts)
		}
		<-time.After(time.Hour) // of the bubble's time: nobody wants anything
		before := starts
		<-time.After(time.Hour)
		if starts != before {
			t.Errorf("%d starts, while nothing was to be done", starts-before)
		}
	})
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		near, _ := client0(t, f.bridge(with(legacy, func(o *Options) { o.CallTimeout = time.Minute })))
		near.send(hello)
		far := f.next()
		shake(near, far)
		start := time.Now()
		near.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":7}}}`)
		far.reads("tools/call")
		<-time.After(50 * time.Second)
		far.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}`)
		near.reads("progress")
		near.reads(`"id":1,"error"`, "has not answered")
		far.reads("notifications/cancelled", `"requestId":1`)
		if d := time.Since(start); d != 110*time.Second {
			t.Errorf("it took %v, want 110 s: progress counts", d)
		}
		synctest.Wait()
	})
}

// TestEndOfInput: what was asked for is still answered; then everything ends.
func TestEndOfInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		b := f.bridge(with(legacy, nil))
		near, done := client0(t, b)
		near.send(hello)
		far := f.next()
		shake(near, far)
		near.send(`{"jsonrpc":"2.0","id":1,"method":"a"}`)
		far.reads(`"a"`)
		near.f.Close()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		far.reads("notifications/cancelled", `"requestId":1`)
		if _, err := far.f.ReadFrame(); err == nil {
			t.Error("the server's connection goes on")
		}
		synctest.Wait()
		if n := len(b.clients); n != 0 {
			t.Errorf("%d clients", n)
		}
	})
}

// TestDrain: while the bridge closes, nobody is left without an answer.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		b := f.bridge(with(legacy, nil))
		near, done := client0(t, b)
		near.send(hello)
		far := f.next()
		shake(near, far)
		near.send(`{"jsonrpc":"2.0","id":1,"method":"a"}`)
		far.reads(`"a"`)
		go b.Close()
		near.reads(`"id":1,"error"`)
		<-done
	})
}
