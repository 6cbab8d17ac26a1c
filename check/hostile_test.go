package check_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"mcpwire/capture"
	"mcpwire/check"
)

// A feed gives events to a checker.
type feed struct {
	k    *check.Checker
	head *capture.Head
	n    uint64
	t    *testing.T
}

func newFeed(t *testing.T, transport capture.Transport) *feed {
	return &feed{k: check.New(nil), head: &capture.Head{ID: "h", Transport: transport}, t: t}
}

func (f *feed) add(e capture.Event) int {
	f.n++
	e.N = f.n
	return len(f.k.Add(f.head, &e))
}

func (f *feed) msg(dir capture.Dir, text string) int {
	return f.add(capture.Event{Kind: capture.KindMessage, Dir: dir, Framing: capture.FramingLF, Data: []byte(text)})
}

const hostileHello = `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`

// handshake makes a legacy session.
func (f *feed) handshake() {
	f.msg(capture.ToServer, hostileHello)
	f.msg(capture.ToClient, `{"jsonrpc":"2.0","id":"i","result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}`)
	f.msg(capture.ToServer, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

func (f *feed) call(id int, params, result string) {
	f.msg(capture.ToServer, `{"jsonrpc":"2.0","id":`+strconv.Itoa(id)+`,"method":"tools/call","params":`+params+`}`)
	f.msg(capture.ToClient, `{"jsonrpc":"2.0","id":`+strconv.Itoa(id)+`,"result":`+result+`}`)
}

func (f *feed) tools(list string) {
	f.msg(capture.ToServer, `{"jsonrpc":"2.0","id":"l","method":"tools/list"}`)
	f.msg(capture.ToClient, `{"jsonrpc":"2.0","id":"l","result":{"tools":[`+list+`]}}`)
}

// TestHostile checks that hostile input takes time in proportion to its size. The test measures no
// time: unbounded work runs into the timeout of the test binary.
func TestHostile(t *testing.T) {
	for name, attack := range map[string]func(f *feed){
		"sessions": func(f *feed) {
			for i := range uint64(5_000) {
				f.add(capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Session: i + 1, Data: []byte(hostileHello)})
			}
		},
		"HTTP sessions": func(f *feed) {
			for i := range uint64(5_000) {
				f.add(capture.Event{Kind: capture.KindRequest, Dir: capture.ToServer, Exchange: i + 1, Request: &capture.Request{Method: "POST", URL: "/mcp"}})
				f.add(capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Exchange: i + 1, Data: []byte(hostileHello)})
				f.add(capture.Event{Kind: capture.KindResponse, Dir: capture.ToClient, Exchange: i + 1, Response: &capture.Response{Status: 200, Headers: []capture.Header{{Name: "Mcp-Session-Id", Value: "s" + strconv.FormatUint(i, 10)}}}})
				f.add(capture.Event{Kind: capture.KindMessage, Dir: capture.ToClient, Exchange: i + 1, Data: []byte(`{"jsonrpc":"2.0","id":"i","result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}`)})
				f.add(capture.Event{Kind: capture.KindEnd, Exchange: i + 1})
				x := i + 1_000_000
				f.add(capture.Event{Kind: capture.KindRequest, Dir: capture.ToServer, Exchange: x, Request: &capture.Request{Method: "POST", URL: "/mcp"}})
				f.add(capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Exchange: x, Data: []byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)})
			}
		},
		"endpoints": func(f *feed) {
			for i := range uint64(5_000) {
				f.add(capture.Event{Kind: capture.KindRequest, Dir: capture.ToServer, Exchange: i + 1, Request: &capture.Request{Method: "GET", URL: "/sse"}})
				f.add(capture.Event{Kind: capture.KindSSE, Dir: capture.ToClient, Exchange: i + 1, SSE: &capture.SSE{Event: "endpoint", HasData: true}, Data: []byte("/m?s=" + strconv.FormatUint(i, 10))})
			}
		},
		"many tools": func(f *feed) {
			var b strings.Builder
			for i := range 5_000 {
				fmt.Fprintf(&b, `{"name":"t%d","inputSchema":{"type":"object","properties":{"a":{"type":"string","pattern":"(a+)+$"}}}},`, i)
			}
			f.tools(b.String() + `{"name":"z","inputSchema":{"type":"object"}}`)
		},
		"a schema that doubles": func(f *feed) {
			var b strings.Builder
			for i := range 60 {
				fmt.Fprintf(&b, `"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
			}
			f.tools(`{"name":"a","inputSchema":{"type":"object","$defs":{` + b.String() + `"d60":{"type":"object"}},"allOf":[{"$ref":"#/$defs/d0"}]},"outputSchema":{"type":"object","$defs":{` + b.String() + `"d60":{"type":"object"}},"allOf":[{"$ref":"#/$defs/d0"}]}}`)
			for i := range 10 {
				f.call(i, `{"name":"a","arguments":{}}`, `{"content":[],"structuredContent":{}}`)
			}
		},
		"a recursive schema": func(f *feed) {
			f.tools(`{"name":"a","inputSchema":{"type":"object","$ref":"#"}},{"name":"b","inputSchema":{"type":"object","properties":{"x":{"anyOf":[{"$ref":"#/properties/x"},{"$ref":"#/properties/x"}]}}}}`)
			f.call(1, `{"name":"a","arguments":{}}`, `{"content":[]}`)
			f.call(2, `{"name":"b","arguments":{"x":1}}`, `{"content":[]}`)
		},
		"a schema for large arguments": func(f *feed) {
			f.tools(`{"name":"a","inputSchema":{"type":"object","properties":{"l":{"type":"array","uniqueItems":true,"contains":{"const":{}},"items":{"anyOf":[{"type":"string"},{"type":"object"}]}}}}}`)
			f.call(1, `{"name":"a","arguments":{"l":[`+strings.Repeat(`{"a":[1]},`, 6000)+`1]}}`, `{"content":[]}`)
			f.call(2, `{"name":"a","arguments":{"l":[`+strings.Repeat(`{"a":[1]},`, 50_000)+`1]}}`, `{"content":[]}`)
		},
		"depth": func(f *feed) {
			f.handshake()
			deep := strings.Repeat(`{"a":`, 400) + "1" + strings.Repeat("}", 400)
			for i := range 200 {
				f.call(i, `{"name":"a","arguments":`+deep+`,"_meta":`+deep+`}`, `{"content":[],"_meta":`+deep+`}`)
			}
			f.call(1000, strings.Repeat("[", 100_000)+strings.Repeat("]", 100_000), "1")
		},
		"long texts": func(f *feed) {
			f.handshake()
			long := strings.Repeat("é", 1<<20)
			f.msg(capture.ToServer, `{"jsonrpc":"2.0","id":"`+long+`","method":"`+long+`","params":{"`+long+`":"`+long+`"}}`)
			f.msg(capture.ToClient, `{"jsonrpc":"2.0","id":"`+long+`","error":{"code":-1,"message":"`+long+`"}}`)
			f.msg(capture.ToClient, long)
		},
		"lines of an endless message": func(f *feed) {
			f.handshake()
			f.add(capture.Event{Kind: capture.KindInvalid, Dir: capture.ToClient, Framing: capture.FramingLF, Data: []byte("{")})
			for range 3_000 {
				f.add(capture.Event{Kind: capture.KindInvalid, Dir: capture.ToClient, Framing: capture.FramingLF, Data: []byte(`"` + strings.Repeat("x", 900) + `":1,`)})
				f.add(capture.Event{Kind: capture.KindInvalid, Dir: capture.ToClient, Framing: capture.FramingLF, Data: []byte("[")})
			}
		},
		"headers for arguments": func(f *feed) {
			const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
			var b strings.Builder
			for i := range 3500 {
				fmt.Fprintf(&b, `"p%d":{"type":"string","x-mcp-header":"H%d"},`, i, i)
			}
			post := func(x uint64, text string) {
				f.add(capture.Event{Kind: capture.KindRequest, Dir: capture.ToServer, Exchange: x, Request: &capture.Request{Method: "POST", URL: "/mcp", Headers: []capture.Header{{Name: "MCP-Protocol-Version", Value: "2026-07-28"}}}})
				f.add(capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Exchange: x, Data: []byte(text)})
			}
			post(1, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+meta+`}}`)
			f.add(capture.Event{Kind: capture.KindMessage, Dir: capture.ToClient, Exchange: 1, Data: []byte(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","tools":[{"name":"a","inputSchema":{"type":"object","properties":{` + b.String() + `"z":{"type":"string"}}}}],"ttlMs":0,"cacheScope":"private"}}`)})
			post(2, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a","arguments":{"q":[`+strings.Repeat("1,", 1<<20)+`1]},`+meta+`}}`)
		},
		"questions": func(f *feed) {
			const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
			var ask, answer strings.Builder
			for i := range 5_000 {
				fmt.Fprintf(&ask, `"k%d":{"method":"roots/list"},`, i)
				fmt.Fprintf(&answer, `"k%d":{"roots":[]},`, i)
			}
			f.msg(capture.ToServer, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a",`+meta+`}}`)
			f.msg(capture.ToClient, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{`+ask.String()+`"z":{"method":"roots/list"}}}}`)
			for i := range 2 {
				f.msg(capture.ToServer, `{"jsonrpc":"2.0","id":`+strconv.Itoa(i+2)+`,"method":"tools/call","params":{"name":"a","inputResponses":{`+answer.String()+`"z":{"roots":[]}},`+meta+`}}`)
			}
		},
		"batches": func(f *feed) {
			f.handshake()
			f.msg(capture.ToServer, "["+strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"ping"},`, 20_000)+"1]")
		},
		"pending requests and notifications": func(f *feed) {
			f.handshake()
			for i := range 4_000 {
				f.msg(capture.ToServer, `{"jsonrpc":"2.0","id":`+strconv.Itoa(i)+`,"method":"tools/call","params":{"name":"a","_meta":{"progressToken":`+strconv.Itoa(i)+`}}}`)
				f.msg(capture.ToClient, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
				f.add(capture.Event{Kind: capture.KindStart})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			transport := capture.TransportStdio
			if strings.Contains(name, "HTTP") || name == "headers for arguments" || name == "endpoints" {
				transport = capture.TransportHTTP
			}
			f := newFeed(t, transport)
			began := time.Now()
			attack(f)
			found := len(f.k.Close())
			t.Logf("%d events, %d findings at the end, %v", f.n, found, time.Since(began).Round(time.Millisecond))
		})
	}
}
