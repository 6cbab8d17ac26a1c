package mock_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/playback/mock"
)

func call(id, name, args, more string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + name + `","arguments":` + args + more + `}}`
}

func result(id, text string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"result":{"content":[{"type":"text","text":"` + text + `"}]}}`
}

func TestMatching(t *testing.T) {
	recording := recordingOf(t, after(hello,
		line{10, "→" + call("1", "a", `{"x":1,"y":"z"}`, `,"_meta":{"progressToken":7}`)},
		line{11, "←" + result("1", "first")},
		line{12, "→" + call("2", "a", `{"y":"z","x":1.0}`, ``)},
		line{13, "←" + result("2", "second")},
		line{14, "→" + call("3", "b", `{"token":"~redacted:key:aa:8~","q":1}`, ``) + ` ⋯ ,"red":["/msg/params/arguments/token"]`},
		line{15, "←" + result("3", "hidden")},
		line{16, "→" + call("4", "m", `{}`, `,"_meta":{"k":1}`)},
		line{17, "←" + result("4", "one")},
		line{18, "→" + call("5", "m", `{}`, `,"_meta":{"k":2}`)},
		line{19, "←" + result("5", "two")},
	)...)
	c := dial(t, recording, nil)
	defer c.hangUp()
	c.greet(`{}`)
	for _, x := range []struct{ name, send, want string }{
		{"order, spelling and metadata do not count", call(`"p"`, "a", `{"y":"\u007a","x":10e-1}`, `,"_meta":{"traceparent":"x"}`), result(`"p"`, "first")},
		{"the next recorded response", call("9007199254740993", "a", `{"x":1,"y":"z"}`, ``), result("9007199254740993", "second")},
		{"the last response is repeated", call("8", "a", `{"x":1,"y":"z"}`, ``), result("8", "second")},
		{"a redacted value matches any value", call("9", "b", `{"q":1,"token":"sk-real"}`, ``), result("9", "hidden")},
		{"metadata decides between equal requests", call("10", "m", `{}`, `,"_meta":{"k":2}`), result("10", "two")},
		{"unknown metadata is ignored", call("11", "m", `{}`, `,"_meta":{"k":3}`), result("11", "one")},
		{"other arguments", call("12", "a", `{"x":2,"y":"z"}`, ``), `{"jsonrpc":"2.0","id":12,"error":{"code":-32603,"message":"not recorded with these params"}}`},
		{"values next to a redacted one must match", call("13", "b", `{"q":2,"token":"x"}`, ``), `{"jsonrpc":"2.0","id":13,"error":{"code":-32603,"message":"not recorded with these params"}}`},
		{"another tool", call("14", "c", `{}`, ``), `{"jsonrpc":"2.0","id":14,"error":{"code":-32602,"message":"unknown tool: not recorded"}}`},
		{"ping", `{"jsonrpc":"2.0","id":15,"method":"ping"}`, `{"jsonrpc":"2.0","id":15,"result":{}}`},
		{"level", `{"jsonrpc":"2.0","id":16,"method":"logging/setLevel","params":{"level":"info"}}`, `{"jsonrpc":"2.0","id":16,"result":{}}`},
	} {
		c.send(x.send)
		if got := c.next(); got != x.want {
			t.Errorf("%s:\ngot  %s\nwant %s", x.name, got, x.want)
		}
	}
}

// asking returns a recording of a call with an input request and progress.
func asking(t *testing.T) *mock.Recording {
	return recordingOf(t, after(hello,
		line{10, "→" + call("1", "ask", `{}`, `,"_meta":{"progressToken":"t"}`)},
		line{11, `←{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1}}`},
		line{12, `←{"jsonrpc":"2.0","id":44,"method":"elicitation/create","params":{"message":"name?","requestedSchema":{"type":"object","properties":{}}}}`},
		line{90, `→{"jsonrpc":"2.0","id":44,"result":{"action":"accept","content":{}}}`},
		line{91, `←{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`},
		line{92, "←" + result("1", "asked")},
		line{93, `←{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`},
	)...)
}

// The messages that it sends.
const (
	progress     = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":99,"progress":1}}`
	inputRequest = `{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"name?","requestedSchema":{"type":"object","properties":{}}}}`
	message      = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`
	changed      = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
)

func TestInputRequestsAndProgress(t *testing.T) {
	recording := asking(t)
	t.Run("all", func(t *testing.T) {
		c := dial(t, recording, nil)
		c.greet(`{"elicitation":{}}`)
		c.send(call("5", "ask", `{}`, `,"_meta":{"progressToken":99}`))
		c.want(progress)
		c.want(inputRequest)
		c.send(`{"jsonrpc":"2.0","id":1,"result":{"action":"decline"}}`)
		c.want(message)
		c.want(result("5", "asked"))
		c.want(changed)
		if err := c.hangUp(); err != nil {
			t.Error(err)
		}
	})
	t.Run("a client without a progress token and input capabilities", func(t *testing.T) {
		c := dial(t, recording, nil)
		c.greet(`{}`)
		c.send(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"error"}}`)
		c.want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		c.send(call("5", "ask", `{}`, ``))
		c.want(result("5", "asked"))
		c.want(changed)
		c.hangUp()
		if !strings.Contains(c.log.String(), "capability=\"elicitation by form\"") {
			t.Errorf("log: %s", c.log)
		}
	})
}

func TestInputRequestsWithoutResponse(t *testing.T) {
	recording := asking(t)
	t.Run("a client that does not respond", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := dial(t, recording, &mock.Options{ClientTimeout: time.Minute})
			c.greet(`{"elicitation":{}}`)
			c.send(call("5", "ask", `{}`, ``))
			begun := time.Now()
			c.want(inputRequest)
			c.want(message)
			if got := time.Since(begun); got != time.Minute {
				t.Errorf("waited %v", got)
			}
			c.want(result("5", "asked"))
			c.want(changed)
			c.hangUp()
		})
	})
	t.Run("canceled", func(t *testing.T) {
		c := dial(t, recording, nil)
		c.greet(`{"elicitation":{}}`)
		c.send(call("5", "ask", `{}`, ``))
		c.want(inputRequest)
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`)
		c.send(`{"jsonrpc":"2.0","id":6,"method":"ping"}`)
		c.want(`{"jsonrpc":"2.0","id":6,"result":{}}`)
		c.hangUp()
	})
}

func TestLatency(t *testing.T) {
	recording := recordingOf(t, after(hello,
		line{1000, "→" + call("1", "slow", `{}`, `,"_meta":{"progressToken":1}`)},
		line{1400, `←{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`},
		line{3000, "←" + result("1", "done")},
	)...)
	for _, x := range []struct {
		latency          string
		progress, answer time.Duration
	}{
		{"fast", 0, 0},
		{"keep", 400 * time.Millisecond, 2 * time.Second},
		{"300ms", 0, 300 * time.Millisecond},
	} {
		t.Run(x.latency, func(t *testing.T) {
			latency, err := mock.ParseLatency(x.latency)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				c := dial(t, recording, &mock.Options{Latency: latency})
				c.greet(`{}`)
				begun := time.Now()
				c.send(call("1", "slow", `{}`, `,"_meta":{"progressToken":1}`))
				c.has(`"progress":1`)
				progress := time.Since(begun)
				c.want(result("1", "done"))
				if answer := time.Since(begun); progress != x.progress || answer != x.answer {
					t.Errorf("progress after %v, response after %v, want %v and %v", progress, answer, x.progress, x.answer)
				}
				c.hangUp()
			})
		})
	}
}

func TestRounds(t *testing.T) {
	ask := func(id, state string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"result":{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{}}},"requestState":"` + state + `"}}`
	}
	recording := recordingOf(t,
		line{0, "→" + call("1", "buy", `{}`, `,`+meta)},
		line{1, "←" + ask("1", "s1")},
		line{2, "→" + call("2", "buy", `{}`, `,"inputResponses":{"q":{"action":"accept"}},"requestState":"s1",`+meta)},
		line{3, "←" + ask("2", "s2")},
		line{4, "→" + call("3", "buy", `{}`, `,"inputResponses":{"q":{"action":"accept"}},"requestState":"s2",`+meta)},
		line{5, "←" + result("3", "bought")},
		line{6, "→" + call("4", "buy", `{}`, `,"inputResponses":{"q":{"action":"decline"}},"requestState":"s2",`+meta)},
		line{7, "←" + result("4", "not bought")},
	)
	c := dial(t, recording, nil)
	c.send(call("1", "buy", `{}`, `,`+meta))
	c.want(ask("1", "s1"))
	c.send(call("2", "buy", `{}`, `,"requestState":"s1","inputResponses":{"q":{"action":"cancel"}},`+meta))
	c.want(ask("2", "s2"))
	c.send(call("3", "buy", `{}`, `,"requestState":"s2","inputResponses":{"q":{"action":"decline"}},`+meta))
	c.want(result("3", "not bought"))
	c.send(call("4", "buy", `{}`, `,"requestState":"s2","inputResponses":{"q":{"action":"accept"}},`+meta))
	c.want(result("4", "bought"))
	c.send(`{"jsonrpc":"2.0","id":5,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	c.has(`"code":-32022`)
	c.hangUp()
}

func TestListen(t *testing.T) {
	listen := func(id string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + meta + `}}`
	}
	tagged := func(method, id string) string {
		return `{"jsonrpc":"2.0","method":"` + method + `","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `}}}`
	}
	recording := recordingOf(t,
		line{0, "→" + listen(`"rec"`)},
		line{1, "←" + tagged("notifications/subscriptions/acknowledged", `"rec"`)},
		line{50, `→{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + meta + `}}`},
		line{51, `←{"jsonrpc":"2.0","id":1,"result":{"tools":[],"resultType":"complete"}}`},
		line{2000, "←" + tagged("notifications/tools/list_changed", `"rec"`)},
	)
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, recording, &mock.Options{Latency: mock.Latency{Keep: true}})
		c.send(listen("77"))
		begun := time.Now()
		c.want(tagged("notifications/subscriptions/acknowledged", "77"))
		c.want(tagged("notifications/tools/list_changed", "77"))
		if got := time.Since(begun); got < 1900*time.Millisecond || got > 2*time.Second {
			t.Errorf("the notification came after %v", got)
		}
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}`)
		c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{` + meta + `}}`)
		c.want(`{"jsonrpc":"2.0","id":2,"result":{"tools":[],"resultType":"complete"}}`)
		if err := c.hangUp(); err != nil {
			t.Error(err)
		}
	})
}

func TestSessionsAreKeptApart(t *testing.T) {
	var lines []line
	for _, s := range []string{"1", "2"} {
		for _, l := range after(hello, line{10, "→" + call("1", "who", `{}`, ``)}, line{11, "←" + result("1", "server "+s)}) {
			l.text += ` ⋯ ,"s":` + s
			lines = append(lines, l)
		}
	}
	recording := recordingOf(t, lines...)
	srv := mock.New(recording, nil)
	defer srv.Close()
	for _, want := range []string{"server 1", "server 2", "server 1"} {
		c := pipeTo(t, srv)
		c.greet(`{}`)
		c.send(call("1", "who", `{}`, ``))
		c.want(result("1", want))
		c.send(call("2", "who", `{}`, ``))
		c.want(result("2", want))
		c.hangUp()
	}
}

func TestTooLarge(t *testing.T) {
	text := captureOf(after(hello, line{10, "→" + call("1", "a", `{}`, ``)}, line{11, "←" + result("1", strings.Repeat("x", 100_000))})...)
	_, err := mock.Read(capture.NewReader(strings.NewReader(text), nil).Events(), &mock.ReadOptions{MaxBytes: 50_000})
	if !errors.Is(err, mock.ErrTooLarge) {
		t.Errorf("got %v", err)
	}
	_, err = mock.Read(capture.NewReader(strings.NewReader(captureOf()), nil).Events(), nil)
	if !errors.Is(err, mock.ErrNothing) {
		t.Errorf("got %v", err)
	}
}

func TestUnanswered(t *testing.T) {
	recording := recordingOf(t, after(hello,
		line{10, "→" + call("1", "dead", `{}`, ``)},
		line{20, "→" + call("2", "again", `{}`, ``)},
		line{21, "→" + call("3", "again", `{}`, ``)},
		line{22, "←" + result("3", "at last")},
	)...)
	if got := recording.Notes.Unanswered; got != 2 {
		t.Errorf("%d unanswered, want 2", got)
	}
	c := dial(t, recording, nil)
	c.greet(`{}`)
	c.send(call("1", "dead", `{}`, ``))
	c.send(call("2", "again", `{}`, ``))
	c.want(result("2", "at last"))
	if err := c.hangUp(); err != nil {
		t.Error(err)
	}
}

// TestInvalidFrames sends frames that are not one message each: batches, which only some revisions
// have, and text that is not JSON, whose error has no id in the modern era.
func TestInvalidFrames(t *testing.T) {
	old := func(l line) line { return line{l.at, strings.ReplaceAll(l.text, "2025-06-18", "2025-03-26")} }
	modern := []line{{0, "→" + call("1", "a", `{}`, `,`+meta)}, {1, "←" + result("1", "first")}}
	batch := `[` + call("1", "a", `{}`, ``) + `,{"jsonrpc":"2.0","id":"p","method":"ping"},{"jsonrpc":"2.0","method":"notifications/x"}]`
	answers := []line{{3, "→" + call("1", "a", `{}`, ``)}, {4, "←" + result("1", "first")}}
	for _, tt := range []struct {
		name, begin, send, want string
		lines                   []line
	}{
		{"a batch", old(hello[0]).text, batch, `[` + result("1", "first") + `,{"jsonrpc":"2.0","id":"p","result":{}}]`, append([]line{old(hello[0]), old(hello[1]), hello[2]}, answers...)},
		{"a batch in a revision without", hello[0].text, batch, `"id":null,"error":{"code":-32600,"message":"invalid request: this protocol revision has no batches`, append(hello[:3:3], answers...)},
		{"not JSON, legacy", hello[0].text, `{`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700`, append(hello[:3:3], answers...)},
		{"not JSON, modern", modern[0].text, `{`, `{"jsonrpc":"2.0","error":{"code":-32700`, modern},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := dial(t, recordingOf(t, tt.lines...), nil)
			defer c.hangUp()
			c.send(strings.TrimPrefix(tt.begin, "→"))
			c.next()
			if tt.lines[0].text != modern[0].text {
				c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			}
			c.send(tt.send)
			c.has(tt.want)
		})
	}
}
