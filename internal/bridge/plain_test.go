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
	client, _ := client0(t, f.bridge(with(legacy, nil)))
	client.send(hello)
	srv := f.next()
	handshake(client, srv)
	for _, line := range []string{
		`{"id":"a\u0062","jsonrpc":"2.0","method":"x/unknown","extra":{"b":1,"a":123456789012345678901234567890},"params":{"z":1.50,"a":"\u00e9"}}`,
		`{"jsonrpc":"2.0","method":"notifications/custom","params":{"n":1e400}}`,
		`{"jsonrpc":"2.0","id":12345678901234567890,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"p"}}}`,
	} {
		client.send(line)
		srv.wants(line)
	}
	for _, line := range []string{
		`{"method":"notifications/progress","jsonrpc":"2.0","params":{"progressToken":"p","progress":1,"more":[]}}`,
		`{"jsonrpc":"2.0","id":"ab","result":{"x":1.0},"unknown":true}`,
		`{"jsonrpc":"2.0","id":12345678901234567890,"error":{"code":-5,"message":"m","data":null,"extra":1}}`,
		`{"jsonrpc":"2.0","id":"ask","method":"sampling/createMessage","params":{},"extra":2}`,
	} {
		srv.send(line)
		client.wants(line)
	}
	answer := `{"id":"ask","result":{"role":"user"},"jsonrpc":"2.0","z":0}`
	client.send(answer)
	srv.wants(answer)
}

func TestLineBreaks(t *testing.T) {
	frame := []byte("{\n  \"jsonrpc\": \"2.0\",\r\n  \"id\": 1, \"method\": \"a\\nb\"\n}")
	if got, want := string(compact(frame)), `{"jsonrpc":"2.0","id":1,"method":"a\nb"}`; got != want {
		t.Errorf("compact = %s, want %s", got, want)
	}
}

func TestBatch(t *testing.T) {
	f := newFarm(t)
	client, _ := client0(t, f.bridge(with(legacy, nil)))
	client.send(hello)
	srv := f.next()
	handshake(client, srv)
	client.send(`[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","method":"n"},{"jsonrpc":"2.0","id":2,"method":"b"},{"id":3}]`)
	srv.wants(`{"jsonrpc":"2.0","id":1,"method":"a"}`, `{"jsonrpc":"2.0","method":"n"}`, `{"jsonrpc":"2.0","id":2,"method":"b"}`)
	srv.send(`[{"jsonrpc":"2.0","id":2,"result":{}},{"jsonrpc":"2.0","id":1,"result":{}}]`)
	got := client.read() // its own refusal may come before the server's answers or behind them
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
	client, _ := client0(t, f.bridge(with(legacy, nil)))
	client.send(hello)
	srv := f.next()
	handshake(client, srv)
	client.send(`{"jsonrpc":"2.0","id":1,"method":"a"}`)
	srv.wants(`{"jsonrpc":"2.0","id":1,"method":"a"}`)
	client.send(`{"jsonrpc":"2.0","id":1,"method":"b"}`)
	client.reads(`"id":1,"error":{"code":-32600`)
	srv.send(`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":9,"result":{}}`)
	client.wants(`{"jsonrpc":"2.0","id":1,"result":{}}`) // once, and nothing of what nobody has asked
	client.send(`{"jsonrpc":"2.0","id":2,"method":"c"}`)
	srv.wants(`{"jsonrpc":"2.0","id":2,"method":"c"}`)
	srv.send(`{"jsonrpc":"2.0","id":2,"result":{}}`)
	client.wants(`{"jsonrpc":"2.0","id":2,"result":{}}`)
}

func TestCancelled(t *testing.T) {
	f := newFarm(t)
	client, _ := client0(t, f.bridge(with(legacy, nil)))
	client.send(hello)
	srv := f.next()
	handshake(client, srv)
	client.send(`{"jsonrpc":"2.0","id":1,"method":"a"}`)
	srv.wants(`{"jsonrpc":"2.0","id":1,"method":"a"}`)
	cancel := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"reason":"x","requestId":1}}`
	client.send(cancel)
	srv.wants(cancel)
	srv.send(`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","method":"n"}`)
	client.wants(`{"jsonrpc":"2.0","method":"n"}`) // the late answer is dropped
	client.send(cancel, strings.Replace(cancel, "1}", "2}", 1), `{"jsonrpc":"2.0","id":2,"method":"b"}`)
	srv.wants(`{"jsonrpc":"2.0","id":2,"method":"b"}`) // and so is what cancels nothing
}

// TestCrash: whoever waits is told at once; the next server is told what the one before knew.
func TestCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		b := f.bridge(with(legacy, nil))
		client, _ := client0(t, b)
		client.send(hello)
		srv := f.next()
		handshake(client, srv)
		client.send(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"a:b"}}`)
		srv.reads("resources/subscribe")
		srv.send(answering("1", "{}"))
		client.wants(answering("1", "{}"))
		client.send(`{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"debug"}}`)
		srv.reads("logging/setLevel")
		srv.send(answering("2", "{}"))
		client.wants(answering("2", "{}"))
		client.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t"}}`)
		srv.reads("tools/call")
		srv.send(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}`)
		client.reads("elicitation/create")

		start := time.Now()
		srv.f.Close()
		client.reads(`"id":3,"error":{"code":-32603`, "the server is gone")
		client.reads(`"method":"notifications/cancelled"`, `"requestId":"q"`)
		if d := time.Since(start); d > 10*time.Millisecond {
			t.Errorf("it took %v to be told", d)
		}
		client.send(`{"jsonrpc":"2.0","id":"q","result":{}}`) // nobody waits for it any more
		client.send(`{"jsonrpc":"2.0","id":4,"method":"ping"}`)

		srv = f.next()
		id := srv.request(`"method":"initialize"`, `"protocolVersion":"2025-11-25"`)
		srv.send(answering(id, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}`))
		srv.wants(confirmed)
		set := srv.request("logging/setLevel", `"level":"debug"`)
		sub := srv.request("resources/subscribe", `"uri":"a:b"`)
		client.wants(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		srv.wants(`{"jsonrpc":"2.0","id":4,"method":"ping"}`)
		srv.send(answering(set, "{}"), answering(sub, "{}"), answering("4", "{}"))
		client.wants(answering("4", "{}"))
		if d := time.Since(start); d > time.Second {
			t.Errorf("the next server came after %v", d)
		}
	})
}

// TestOtherRevision: a server that agrees to something else now cannot take the place of the one before.
func TestOtherRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		client, _ := client0(t, f.bridge(with(legacy, nil)))
		client.send(hello)
		srv := f.next()
		handshake(client, srv)
		srv.f.Close()
		client.send(`{"jsonrpc":"2.0","id":4,"method":"ping"}`)
		srv = f.next()
		id := srv.request(`"method":"initialize"`)
		srv.send(answering(id, `{"protocolVersion":"2024-11-05","capabilities":{}}`))
		client.reads(`"id":4,"error"`, "speaks revision 2024-11-05 now")
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
		client, _ := client0(t, f.bridge(with(legacy, nil)))
		for id := range 40 {
			start := time.Now()
			client.send(strings.Replace(hello, `"id":0`, `"id":`+string(rune('1'+id%9)), 1))
			client.reads("error", errTest.Error())
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
		client, _ := client0(t, f.bridge(with(legacy, func(o *Options) { o.CallTimeout = time.Minute })))
		client.send(hello)
		srv := f.next()
		handshake(client, srv)
		start := time.Now()
		client.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":7}}}`)
		srv.reads("tools/call")
		<-time.After(50 * time.Second)
		srv.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}`)
		client.reads("progress")
		client.reads(`"id":1,"error"`, "has not answered")
		srv.reads("notifications/cancelled", `"requestId":1`)
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
		client, done := client0(t, b)
		client.send(hello)
		srv := f.next()
		handshake(client, srv)
		client.send(`{"jsonrpc":"2.0","id":1,"method":"a"}`)
		srv.reads(`"a"`)
		client.f.Close()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		srv.reads("notifications/cancelled", `"requestId":1`)
		if _, err := srv.f.ReadFrame(); err == nil {
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
		client, done := client0(t, b)
		client.send(hello)
		srv := f.next()
		handshake(client, srv)
		client.send(`{"jsonrpc":"2.0","id":1,"method":"a"}`)
		srv.reads(`"a"`)
		go b.Close()
		client.reads(`"id":1,"error"`)
		<-done
	})
}
