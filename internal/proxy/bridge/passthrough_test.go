package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/internal/json/jsonedit"
	"mcpwire/jsonrpc"
	"mcpwire/streamable"
)

// TestBytes shows that the bytes of messages are not changed.
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
	got := client.read() // its own refusal may come before or after the server's responses
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
	client.wants(`{"jsonrpc":"2.0","id":1,"result":{}}`) // once, and no response without a request
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

// TestCrash checks that pending requests fail at once, and that the next server gets the state of
// its predecessor.
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
		client.reads(`"id":3,"error":{"code":-32603`, "the connection to the server ended")
		client.reads(`"method":"notifications/cancelled"`, `"requestId":"q"`)
		if d := time.Since(start); d > 10*time.Millisecond {
			t.Errorf("it took %v to be told", d)
		}
		client.send(`{"jsonrpc":"2.0","id":"q","result":{}}`) // no request waits for it
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

// TestOtherRevision shows that a server that negotiates another revision after a restart cannot
// replace the one before.
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
		client.reads(`"id":4,"error"`, "now speaks revision 2024-11-05")
	})
}

// TestNoServer shows that a server that cannot be started is an error at once, and is not retried
// in a busy loop.
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
		client.reads(`"id":1,"error"`, "has not responded")
		srv.reads("notifications/cancelled", `"requestId":1`)
		if d := time.Since(start); d != 110*time.Second {
			t.Errorf("it took %v, want 110 s: progress counts", d)
		}
		synctest.Wait()
	})
}

// TestEndOfInput checks that pending requests are still answered, and that the bridge ends then.
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

// TestClose shows that all pending requests are answered when the bridge closes.
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

// A staged transport says on whose stream a frame came, as one on HTTP does: the member "on" has
// it.
type staged struct{ jsonrpc.Framer }

func (s staged) OnResponse(func([]byte) error) {}

func (s staged) OnReceive(func([]byte, context.Context)) {}

func (s staged) Post(_ context.Context, frame []byte) error { return s.WriteFrame(frame) }

func (s staged) PostAndWait(ctx context.Context, frame []byte) (func(), context.CancelFunc, error) {
	return nil, nil, s.Post(ctx, frame)
}

func (s staged) Receive() ([]byte, context.Context, error) {
	frame, err := s.ReadFrame()
	ctx := context.Background()
	if at := jsonedit.Locate(frame, "on"); at.Found() {
		ctx = context.WithValue(ctx, postKey{}, &postedMessage{queuedMessage: queuedMessage{id: jsonrpc.ID(at.Of(frame))}})
	}
	return frame, ctx, err
}

// streaming has a farm's connections be staged.
func (f *farm) streaming(o *Options) *Options {
	o.Connect = func(ctx context.Context, w io.Writer) (jsonrpc.Framer, error) {
		framer, err := f.connect(ctx, w)
		return staged{framer}, err
	}
	return o
}

// TestOnStream shows that what a server sends on the stream of a request goes to the client of the
// request, whatever else is in flight.
func TestOnStream(t *testing.T) {
	f := newFarm(t)
	b := newBridge(t, f.streaming(with(legacy, nil)))
	cl := b.newClient(newOutbox(), "", false)
	defer cl.close()
	outs := [2]*outbox{newOutbox(), newOutbox()}
	for i, id := range []string{"1", "2"} {
		frame := []byte(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"t"}}`)
		m := new(jsonrpc.Message)
		if err := jsonrpc.Parse(frame, m, 0); err != nil {
			t.Fatal(err)
		}
		cl.request(t.Context(), frame, m, outs[i], func([]byte) {})
	}
	srv := f.next()
	srv.reads(`"id":1`)
	srv.reads(`"id":2`)
	ask, log := `{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{},"on":1}`, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1},"on":1}`
	srv.send(ask, log)
	var got []string
	await(t, "both to come", func() bool {
		for _, message := range outs[0].take(false) {
			got = append(got, string(message.frame))
		}
		return len(got) == 2
	})
	if got[0] != ask || got[1] != log {
		t.Errorf("got %q", got)
	}
	if other := outs[1].take(false); len(other) > 0 {
		t.Errorf("the other request got %v", other)
	}
}

// TestTransportStreams checks that the HTTP transport reports which request's response carried a
// message.
func TestTransportStreams(t *testing.T) {
	const event = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: "+event+"\n\ndata: "+answering(`"a"`, "{}")+"\n\n")
	}))
	defer ts.Close()
	f, err := streamable.Dial(ts.URL, nil).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := &connection{u: &upstream{ctx: t.Context()}, f: f}
	if err := c.transmit(queuedMessage{frame: []byte(`{"jsonrpc":"2.0","id":"a","method":"x"}`), id: jsonrpc.ID(`"a"`)}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{event, answering(`"a"`, "{}")} {
		if frame, from, err := c.receive(); string(frame) != want || string(from.callID) != `"a"` || err != nil {
			t.Errorf("got %s on %s, %v, want %s", frame, from.callID, err, want)
		}
	}
}

// TestRelearn shows that a call that lacks headers is sent again, once, after the transport has
// seen the list of tools.
func TestRelearn(t *testing.T) {
	for _, tt := range []struct{ name, tools, want string }{
		{"the tool is there", `{"tools":[{"name":"t"}],"nextCursor":"n"}`, ""},
		{"on the second page", `{"tools":[{"name":"u"}],"nextCursor":"n"}`, ""},
		{"nowhere", `{"tools":[{"name":"u"}]}`, "error"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFarm(t)
			client, _ := client0(t, f.bridge(&Options{ClientEra: EraModern, ServerEra: EraModern, HTTP: true}))
			meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
			call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t",` + meta + `}}`
			client.send(call)
			srv := f.next()
			srv.wants(call)
			refusal := `{"jsonrpc":"2.0","id":1,"error":{"code":-32020,"message":"Mcp-Param-X is missing"}}`
			srv.send(refusal)
			srv.send(answering(srv.request("tools/list", meta), tt.tools))
			if tt.want != "" {
				client.wants(refusal)
				return
			}
			if tt.name == "on the second page" {
				srv.send(answering(srv.request("tools/list", `"cursor":"n"`), `{"tools":[{"name":"t"}]}`))
			}
			srv.wants(call)
			srv.send(refusal)
			client.wants(refusal) // it is not tried for ever
		})
	}
}

// TestRelearnTranslated is TestRelearn for a legacy client, which does not know headers.
func TestRelearnTranslated(t *testing.T) {
	for _, tt := range []struct {
		name, tools string
		share       bool
	}{
		{"the tool is there", `{"resultType":"complete","tools":[{"name":"t"}]}`, false},
		{"nowhere", `{"resultType":"complete","tools":[]}`, false},
		{"given up", `{"resultType":"complete","tools":[{"name":"t"}]}`, false},
		{"the tool is there", `{"resultType":"complete","tools":[{"name":"t"}]}`, true},
		{"nowhere", `{"resultType":"complete","tools":[]}`, true},
		{"given up", `{"resultType":"complete","tools":[{"name":"t"}]}`, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFarm(t)
			client, _ := client0(t, f.bridge(&Options{ServerEra: EraModern, HTTP: true, Shared: tt.share}))
			client.send(hello)
			srv := f.next()
			srv.send(answering(srv.request("server/discover"), `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`))
			client.reads(`"protocolVersion":"2025-11-25"`)
			client.send(confirmed, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t"}}`)
			call := srv.reads(`"tools/call"`)
			id := string(jsonedit.Locate([]byte(call), "id").Of([]byte(call)))
			refusal := `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32020,"message":"Mcp-Param-X is missing"}}`
			srv.send(refusal)
			list := srv.reads("tools/list")
			listID := string(jsonedit.Locate([]byte(list), "id").Of([]byte(list)))
			if !tt.share && !strings.HasPrefix(listID, `"mcpwire-`) {
				t.Fatalf("the bridge asks with the id %s", listID)
			}
			switch tt.name {
			case "the tool is there":
				srv.send(answering(listID, tt.tools))
				srv.wants(call)
				srv.send(refusal)
				client.reads(`"id":7`, `-32020`) // it is not tried for ever
			case "nowhere":
				srv.send(answering(listID, tt.tools))
				client.reads(`"id":7`, `-32020`)
			default:
				client.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
				srv.reads("notifications/cancelled")
				srv.send(answering(listID, tt.tools))
				synctest.Wait()
				client.send(`{"jsonrpc":"2.0","id":8,"method":"prompts/list"}`)
				srv.request("prompts/list")
			}
		})
	}
}

// takesTasks is the _meta of a modern client that has the tasks extension.
const takesTasks = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","progressToken":"p","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`

func callOf(id int, meta string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"t",%s}}`, id, meta)
}

// TestLateTask shows that a task that the server creates for a call that was given up is canceled,
// since no client learns of it.
func TestLateTask(t *testing.T) {
	const task, complete = `{"resultType":"task","taskId":"a\"b","status":"working"}`, `{"resultType":"complete","content":[]}`
	byNotification := func(_ *Bridge, client *pipe) {
		client.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	}
	for _, tt := range []struct {
		name   string
		opts   Options
		meta   string
		giveUp func(b *Bridge, client *pipe) // nil is not at all
		after  time.Duration
		answer string
		want   bool
	}{
		{"cancelled", Options{}, takesTasks, byNotification, 0, task, true},
		{"cancelled, ids are replaced", Options{Shared: true}, takesTasks, byNotification, 0, task, true},
		{"timeout", Options{CallTimeout: time.Second}, takesTasks, func(*Bridge, *pipe) { time.Sleep(2 * time.Second) }, 0, task, true},
		{"result", Options{}, takesTasks, byNotification, 0, complete, false},
		{"too late", Options{}, takesTasks, byNotification, abandonedTimeout + time.Second, task, false},
		{"client without tasks", Options{}, `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`, byNotification, 0, task, false},
		{"not given up", Options{}, takesTasks, nil, 0, task, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFarm(t)
				tt.opts.ClientEra, tt.opts.ServerEra = EraModern, EraModern
				b := f.bridge(&tt.opts)
				client, _ := client0(t, b)
				client.send(callOf(1, tt.meta))
				srv := f.next()
				id := srv.request("tools/call")
				if tt.giveUp != nil {
					tt.giveUp(b, client)
					srv.reads("notifications/cancelled", `"requestId":`+id)
				}
				time.Sleep(tt.after)
				srv.send(answering(id, tt.answer), answering(id, tt.answer))
				if tt.want {
					cancel := srv.request(`"tasks/cancel"`, `{"taskId":"a\"b",`, `"io.modelcontextprotocol/tasks":{}`)
					if line := []byte(srv.last); jsonedit.Locate(line, "params", "_meta", "progressToken").Found() {
						t.Errorf("got %s", line)
					}
					srv.send(answering(cancel, `{"resultType":"complete"}`))
				}
				if tt.opts.CallTimeout != 0 {
					client.reads(`"id":1,"error"`)
				} else if tt.giveUp == nil {
					client.reads(`"id":1,"result"`)
				}
				client.send(callOf(2, tt.meta))
				srv.send(answering(srv.request("tools/call"), complete)) // and nothing before it
				client.reads(`"id":2,"result"`)
			})
		})
	}
}

// TestLateTaskHungUp is TestLateTask over HTTP, where the client closes its request.
func TestLateTaskHungUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		b := f.bridge(&Options{ClientEra: EraModern, ServerEra: EraModern})
		cl := b.newClient(nil, "", true)
		defer cl.close()
		ctx, hangUp := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			frame, m := parsed(t, callOf(1, takesTasks))
			_, err := cl.roundTrip(ctx, frame, m, nil, nil)
			done <- err
		}()
		srv := f.next()
		id := srv.request("tools/call")
		hangUp()
		if err := <-done; err == nil {
			t.Error("a request without a client was answered")
		}
		srv.reads("notifications/cancelled")
		srv.send(answering(id, `{"resultType":"task","taskId":"a"}`))
		srv.request(`"tasks/cancel"`, `{"taskId":"a",`)
	})
}

// TestLateCoreTask checks that a call that requests a task from a legacy server is not canceled by
// a notification, whichever side cancels it, but that its task is when its id is known. Other calls
// are canceled by a notification.
//
// Spec: T33
func TestLateCoreTask(t *testing.T) {
	const tasks, task = `"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}`, `{"task":{"taskId":"t","status":"working"}}`
	byNotification := func(client *pipe) {
		client.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	}
	bySilence := func(*pipe) { time.Sleep(2 * time.Second) }
	for _, tt := range []struct {
		name                           string
		opts                           Options
		revision, capabilities, params string
		giveUp                         func(client *pipe)
		notified                       bool
	}{
		{"canceled", Options{}, "2025-11-25", tasks, `"task":{}`, byNotification, false},
		{"canceled, shared", Options{Shared: true}, "2025-11-25", tasks, `"task":{}`, byNotification, false},
		{"timeout", Options{CallTimeout: time.Second}, "2025-11-25", tasks, `"task":{"ttl":1}`, bySilence, false},
		{"no task", Options{}, "2025-11-25", tasks, `"arguments":{}`, byNotification, true},
		{"server without tasks", Options{CallTimeout: time.Second}, "2025-11-25", `"tools":{}`, `"task":{}`, bySilence, true},
		{"server before tasks", Options{}, "2025-06-18", tasks, `"task":{}`, byNotification, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFarm(t)
				tt.opts.ClientEra, tt.opts.ServerEra = EraLegacy, EraLegacy
				client, _ := client0(t, f.bridge(&tt.opts))
				client.send(hello)
				srv := f.next()
				srv.send(answering(srv.request("initialize"), `{"protocolVersion":"`+tt.revision+`","capabilities":{`+tt.capabilities+`}}`))
				client.reads(tt.revision)
				client.send(confirmed)
				srv.wants(confirmed)
				client.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t",` + tt.params + `}}`)
				id := srv.request("tools/call")
				tt.giveUp(client)
				if tt.notified {
					srv.reads("notifications/cancelled", `"requestId":`+id)
				} else {
					synctest.Wait()
					srv.send(answering(id, task))
					srv.send(answering(srv.request(`"tasks/cancel"`, `{"taskId":"t"}`), `{"taskId":"t","status":"cancelled"}`))
				}
				if tt.opts.CallTimeout != 0 {
					client.reads(`"id":1,"error"`)
					if tt.notified { // which was not answered either
						srv.reads("mcpwire-alive")
					}
				}
				client.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
				srv.send(answering(srv.request("tools/list"), "{}"))
				client.wants(answering("2", "{}"))
			})
		})
	}
}

// TestLateTasks shows that the number of calls that are remembered after they were given up is
// limited, and so is the time.
func TestLateTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPassthrough(&upstream{b: &Bridge{}}, false)
		for range 2 {
			for i := range 2 * maxAbandoned {
				c := &call{serverID: []byte(fmt.Sprint(i)), taskFrame: []byte(callOf(i, takesTasks))}
				p.calls[c.serverID.Key()] = c
				if !p.giveUp(c) || p.giveUp(c) {
					t.Fatal("a call is given up once")
				}
			}
			if n := len(p.upstream.abandoned.list); n != maxAbandoned {
				t.Errorf("%d calls are remembered, want %d", n, maxAbandoned)
			}
			time.Sleep(abandonedTimeout + time.Second)
		}
	})
}

// A fickle transport loses calls by themselves, as one on HTTP does: the member "lost" has the id.
type fickle struct{ jsonrpc.Framer }

func (f fickle) ReadFrame() ([]byte, error) {
	frame, err := f.Framer.ReadFrame()
	if at := jsonedit.Locate(frame, "lost"); err == nil && at.Found() {
		id := jsonrpc.ID(at.Of(frame)).Clone()
		return nil, &jsonrpc.CallError{ID: id, Outcome: jsonrpc.OutcomeUnknown, Err: errors.New("the stream broke off")}
	}
	return frame, err
}

// TestListenAgain checks that the bridge reopens a broken subscription stream itself, and notifies
// the client that it may have missed events. Retries have no limit if the stream worked in between,
// and a limit otherwise.
func TestListenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		o := &Options{ClientEra: EraModern, ServerEra: EraModern, HTTP: true}
		b := f.bridge(o)
		b.opts.Connect = func(ctx context.Context, w io.Writer) (jsonrpc.Framer, error) {
			framer, err := f.connect(ctx, w)
			return fickle{framer}, err
		}
		client, _ := client0(t, b)
		const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
		const ack = `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"},"notifications":{"toolsListChanged":true}}}`
		const changed = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}`
		listen := `{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + meta + `}}`
		client.send(listen)
		srv := f.next()
		srv.wants(listen)
		srv.send(ack)
		client.wants(ack)
		id := `"l"`
		lose := func() {
			t.Helper()
			srv.send(`{"lost":` + id + `}`)
			next := srv.request(`"subscriptions/listen"`, `{"toolsListChanged":true}`, meta)
			if next == id {
				t.Errorf("it was made again as %s", id)
			}
			id = next
		}
		for range 2 * maxEagerFailures {
			lose()
			srv.send(strings.Replace(ack, `"l"`, id, 1))
			client.wants(changed)
		}
		srv.send(strings.Replace(changed, `"l"`, id, 1))
		client.wants(changed)
		for range maxEagerFailures {
			lose()
		}
		srv.send(`{"lost":` + id + `}`)
		client.reads(`"id":"l","error"`, "the stream broke off")

		client.send(strings.Replace(listen, `"l"`, `"m"`, 1)) // one that was never good fails at once
		srv.reads(`"id":"m"`)
		srv.send(`{"lost":"m"}`)
		client.reads(`"id":"m","error"`)

		client.send(listen) // one that was made again can be ended
		srv.wants(listen)
		srv.send(ack)
		client.wants(ack)
		id = `"l"`
		lose()
		client.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"l"}}`)
		srv.wants(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
	})
}

// TestListenUnacknowledged shows that the next server acknowledges a subscription if the first one
// ends before it does.
func TestListenUnacknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		client, _ := client0(t, f.bridge(&Options{ClientEra: EraModern, ServerEra: EraModern}))
		const ack = `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"},"notifications":{"toolsListChanged":true}}}`
		client.send(`{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`)
		srv := f.next()
		srv.reads(`"id":"l"`)
		srv.f.Close()
		srv = f.next()
		srv.reads(`"id":"l"`)
		srv.send(ack)
		client.wants(ack)
	})
}
