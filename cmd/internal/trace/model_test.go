package trace_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/filter"
	"mcpwire/internal/rpc/traffic"
)

// events makes events from lines like "12 c2s 1/4 msg {…}": milliseconds, direction or "-", session
// and exchange, kind, and the members of the kind.
func events(t *testing.T, lines string) []*capture.Event {
	t.Helper()
	var list []*capture.Event
	n := uint64(0)
	for line := range strings.SplitSeq(strings.TrimSpace(lines), "\n") {
		f := strings.SplitN(strings.TrimSpace(line), " ", 5)
		if len(f) < 4 {
			t.Fatalf("line %q", line)
		}
		rest := ""
		if len(f) == 5 {
			rest = f[4]
		}
		ms, err := strconv.Atoi(f[0])
		if err != nil {
			t.Fatal(err)
		}
		n++
		e := &capture.Event{Kind: capture.Kind(f[3]), N: n, T: time.Duration(ms) * time.Millisecond, Capture: "c", Dir: capture.Dir(strings.Trim(f[1], "-"))}
		e.At = start.Add(e.T)
		if _, err := fmt.Sscanf(f[2], "%d/%d", &e.Session, &e.Exchange); err != nil {
			t.Fatal(err)
		}
		words := strings.Fields(rest)
		switch e.Kind {
		case capture.KindStart:
			e.Start = &capture.Start{Command: words, PID: 7}
		case capture.KindExit:
			code, _ := strconv.Atoi(rest)
			e.Exit = &capture.Exit{Code: code}
		case capture.KindRequest:
			e.Request = &capture.Request{Method: words[0], URL: words[1], Proto: "HTTP/1.1"}
		case capture.KindResponse:
			status, _ := strconv.Atoi(words[0])
			e.Response = &capture.Response{Status: status}
			if len(words) > 1 {
				e.Response.Headers = []capture.Header{{Name: "content-type", Value: words[1]}}
			}
		case capture.KindSSE:
			e.SSE = &capture.SSE{Comment: rest, HasComment: true}
		case capture.KindGap:
			e.Gap = &capture.Gap{Lost: 3, Bytes: 1234, Why: capture.GapReason(rest)}
		case capture.KindTranslate:
			e.Translation = &capture.Translation{Of: 1, Rule: rest}
		default:
			e.Data = []byte(rest)
		}
		list = append(list, e)
	}
	return list
}

var start = time.Date(2026, 11, 22, 1, 45, 30, 0, time.UTC)

var head = &capture.Head{ID: "c", Name: "srv", Transport: "stdio", At: start}

// tree returns the rows as text, one per line, with nested rows indented.
func tree(rows []*trace.Row) string {
	var b strings.Builder
	var write func(r *trace.Row, depth int)
	write = func(r *trace.Row, depth int) {
		fmt.Fprintf(&b, "%s%d %s", strings.Repeat("  ", depth), r.N, r.Kind)
		if r.Status != "" {
			fmt.Fprintf(&b, " %s", r.Status)
		}
		fmt.Fprintf(&b, ": %s\n", trace.Summary(r))
		for _, c := range r.Children {
			write(c, depth+1)
		}
	}
	for _, r := range rows {
		write(r, 0)
	}
	return b.String()
}

func build(t *testing.T, opts *trace.Options, lines string) *trace.Model {
	t.Helper()
	m := trace.New(opts)
	for _, e := range events(t, lines) {
		m.Add(head, e)
	}
	return m
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},"io.modelcontextprotocol/clientInfo":{"name":"host","version":"1"}}`

func TestModel(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"call", `
0 c2s 0/0 msg {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search","arguments":{"q":"x"}}}
43 s2c 0/0 msg {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}}`, `
1 request ok: called search: 2 contents, 101 B, 43 ms
`},
		{"outcomes", `
0 c2s 0/0 msg {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}
0 c2s 0/0 msg {"jsonrpc":"2.0","id":"two","method":"tools/call","params":{"name":"b"}}
0 c2s 0/0 msg {"jsonrpc":"2.0","id":3,"method":"nosuch"}
0 c2s 0/0 msg {"jsonrpc":"2.0","id":4,"method":"resources/read","params":{"uri":"file:///x"}}
5 s2c 0/0 msg {"jsonrpc":"2.0","id":1,"result":{"isError":true,"content":[{"type":"text","text":"no\u001b[31m"}]}}
6 s2c 0/0 msg {"jsonrpc":"2.0","id":3,"error":{"code":-32601,"message":"Method not found"}}
7 s2c 0/0 msg {"jsonrpc":"2.0","id":9,"result":{}}`, `
1 request iserror: called a: the tool failed: no\x1b[31m, 100 B, 5.0 ms
2 request pending: called b: no response yet
3 request error: sent nosuch: error -32601 Method not found, 6.0 ms
4 request pending: read file:///x: no response yet
7 response: answered 9 to no known request: {"jsonrpc":"2.0","id":9,"result":{}}
`},
		{"handshake, process, stray output", `
0 - 0/0 start node s.js
1 c2s 0/0 msg {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{"listChanged":true}},"clientInfo":{"name":"host","version":"1"}}}
2 s2c 0/0 invalid hello from console.log
2 - 0/0 err starting
3 s2c 0/0 msg {"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":false},"logging":{}},"serverInfo":{"name":"s","version":"2"}}}
4 c2s 0/0 msg {"jsonrpc":"2.0","method":"notifications/initialized"}
5 c2s 0/0 msg {"jsonrpc":"2.0","id":1,"method":"tools/list"}
6 - 0/0 gap queue
7 - 0/0 note by hand
8 s2c 0/0 eof
9 - 0/0 exit 7`, `
1 start: started node s.js, pid 7
2 request ok: offered 2025-11-25: answered 2025-06-18 s 2, 166 B, 2.0 ms
3 stdout: stray output: hello from console.log
4 stderr: starting
6 notification: initialized
7 request unanswered: listed tools: no response, 4.0 ms
8 gap: 3 events missing, 1.2 kB: recorded faster than written
9 note: by hand
10 eof: the server closed its end
11 exit: exited with code 7
`},
		{"progress, logs, questions", `
0 c2s 0/0 msg {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"book","_meta":{"progressToken":"p"}}}
10 s2c 0/0 msg {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1,"total":2,"message":"half"}}
20 s2c 0/0 msg {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"well"}}
100 s2c 0/0 msg {"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"Which day?"}}
2100 c2s 0/0 msg {"jsonrpc":"2.0","id":1,"result":{"action":"accept","content":{"day":"Monday"}}}
2300 s2c 0/0 msg {"jsonrpc":"2.0","id":1,"result":{"content":[]}}
2400 s2c 0/0 msg {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":2}}
2500 s2c 0/0 msg {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`, `
1 request ok: called book: 0 contents, 48 B, 2.3 s (server 300 ms, client 2.0 s)
  2 progress: progress 1/2: half
  3 log: log info: well
  4 request ok: requested input: Which day?: 80 B, 2.0 s
  7 progress: progress 2
8 notification: tools/list_changed
`},
		{"canceled, with a response", `
0 c2s 0/0 msg {"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"slow"}}
30 c2s 0/0 msg {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5,"reason":"bored"}}
40 s2c 0/0 msg {"jsonrpc":"2.0","id":5,"result":{}}
50 c2s 0/0 msg {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`, `
1 request cancelled: called slow: cancelled, 30 ms
  2 notification: cancelled bored
4 notification: cancelled requestId=5
`},
		{"rounds, by requestState", `
0 c2s 0/0 msg {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"book","arguments":{"x":1},` + modernMeta + `}}
0 c2s 0/0 msg {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"book","arguments":{"x":1},` + modernMeta + `}}
10 s2c 0/0 msg {"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{}}},"requestState":"s1"}}
10 s2c 0/0 msg {"jsonrpc":"2.0","id":2,"result":{"resultType":"input_required","requestState":"s2"}}
1000 c2s 0/0 msg {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"book","inputResponses":{},"requestState":"s2","arguments":{"x":1},` + modernMeta + `}}
2010 c2s 0/0 msg {"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"book","arguments":{"x":1},"inputResponses":{"a":{"action":"accept"}},"requestState":"s1",` + modernMeta + `}}
2030 s2c 0/0 msg {"jsonrpc":"2.0","id":4,"result":{"resultType":"input_required","requestState":"s3"}}
2130 c2s 0/0 msg {"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"book","arguments":{"x":1},"requestState":"s3",` + modernMeta + `}}
2160 s2c 0/0 msg {"jsonrpc":"2.0","id":5,"result":{"resultType":"complete","content":[{"type":"text","text":"ok"}]}}`, `
1 request ok: called book: 1 content, 335 B, 3 rounds in 2.2 s (server 60 ms, client 2.1 s)
  6 request input_required: called book again: needs input, 20 ms
  8 request ok: called book again: 1 content, 99 B, 30 ms
2 request input_required: called book: needs input, 2 rounds in 1.0 s (server 10 ms, client 990 ms)
  5 request pending: called book again: no response yet
`},
		{"rounds, by params", `
0 c2s 0/0 msg {"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"p","arguments":{"x":"1"},` + modernMeta + `}}
0 c2s 0/0 msg {"jsonrpc":"2.0","id":2,"method":"prompts/get","params":{"name":"p","arguments":{"x":"2"},` + modernMeta + `}}
1 s2c 0/0 msg {"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{"a":{},"b":{}}}}
1 s2c 0/0 msg {"jsonrpc":"2.0","id":2,"result":{"resultType":"input_required","inputRequests":{"a":{}}}}
2 c2s 0/0 msg {"jsonrpc":"2.0","id":3,"method":"prompts/get","params":{"inputResponses":{"a":{}},"arguments":{"x":"2"},"name":"p",` + modernMeta + `}}
3 s2c 0/0 msg {"jsonrpc":"2.0","id":3,"result":{"resultType":"complete","messages":[]}}
4 c2s 0/0 msg {"jsonrpc":"2.0","id":4,"method":"prompts/get","params":{"inputResponses":{"a":{}},"arguments":{"x":"3"},"name":"p",` + modernMeta + `}}`, `
1 request input_required: got prompt p: needs input, 2 inputs, 1.0 ms
2 request ok: got prompt p: 0 messages, 163 B, 2 rounds in 3.0 ms (server 2.0 ms, client 1.0 ms)
  5 request ok: got prompt p again: 0 messages, 73 B, 1.0 ms
7 request pending: got prompt p: no response yet
`},
		{"task of the extension", `
0 c2s 0/0 msg {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"long",` + modernMeta + `}}
5 s2c 0/0 msg {"jsonrpc":"2.0","id":1,"result":{"resultType":"task","taskId":"t1","status":"working","createdAt":"","lastUpdatedAt":"","ttlMs":null}}
1000 c2s 0/0 msg {"jsonrpc":"2.0","id":2,"method":"tasks/get","params":{"taskId":"t1",` + modernMeta + `}}
1001 s2c 0/0 msg {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","taskId":"t1","status":"working"}}
1500 s2c 0/0 msg {"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"t1","status":"input_required"}}
2000 c2s 0/0 msg {"jsonrpc":"2.0","id":3,"method":"tasks/get","params":{"taskId":"t1",` + modernMeta + `}}
2005 s2c 0/0 msg {"jsonrpc":"2.0","id":3,"result":{"resultType":"complete","taskId":"t1","status":"completed","result":{"content":[{"type":"text","text":"x"}],"isError":true}}}
2010 c2s 0/0 msg {"jsonrpc":"2.0","id":4,"method":"tasks/get","params":{"taskId":"other",` + modernMeta + `}}`, `
1 request iserror: called long: the tool failed: x, 135 B, 5.0 ms, task t1 completed after 2 polls and 2.0 s
  3 request ok: polled task t1: 92 B, 1.0 ms
  5 notification: tasks t1: input_required
  6 request ok: polled task t1: 159 B, 5.0 ms
8 request pending: polled task other: no response yet
`},
		{"task of 2025-11-25", `
0 c2s 0/0 msg {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"long","task":{"ttl":1}}}
5 s2c 0/0 msg {"jsonrpc":"2.0","id":1,"result":{"task":{"taskId":"t1","status":"working"}}}
6 s2c 0/0 msg {"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"?","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t1"}}}}
7 c2s 0/0 msg {"jsonrpc":"2.0","id":1,"result":{"action":"decline"}}
8 s2c 0/0 msg {"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"t1","status":"completed"}}
9 c2s 0/0 msg {"jsonrpc":"2.0","id":2,"method":"tasks/result","params":{"taskId":"t1"}}
10 s2c 0/0 msg {"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"x"}],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t1"}}}}`, `
1 request ok: called long: 1 content, 77 B, 5.0 ms, task t1 completed after 1 poll and 8.0 ms
  3 request ok: requested input: ?: 54 B, 1.0 ms
  5 notification: tasks/status t1: completed
  6 request ok: requested the result of task t1: 1 content, 139 B, 1.0 ms
`},
		{"batch", `
0 c2s 0/0 msg [{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/initialized"},{"jsonrpc":"2.0","id":2,"method":"tools/list"}]
1 s2c 0/0 msg [{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"a"}],"nextCursor":"x"}},{"jsonrpc":"2.0","id":1,"result":{}}]
2 c2s 0/0 msg []
3 c2s 0/0 msg {"id":1}
4 c2s 0/0 msg nonsense`, `
1 request ok: pinged: 57 B, 1.0 ms
1 notification: initialized
1 request ok: listed tools: 1 tool and more, 57 B, 1.0 ms
3 invalid: sent what is not a message: []
4 invalid: sent what is not a message: {"id":1}
5 invalid: sent what is not a message: nonsense
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := build(t, nil, tt.in)
			if diff := cmp.Diff(strings.TrimPrefix(tt.want, "\n"), tree(m.Rows())); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSessionFacts(t *testing.T) {
	m := build(t, nil, `
0 - 0/0 start node s.js
0 c2s 0/0 msg {"jsonrpc":"2.0","id":0,"method":"server/discover","params":{`+modernMeta+`}}
1 s2c 0/0 msg {"jsonrpc":"2.0","id":0,"error":{"code":-32601,"message":"no"}}
2 c2s 0/0 msg {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{"listChanged":true}},"clientInfo":{"name":"host","version":"1"}}}
3 s2c 0/0 msg {"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":false},"logging":{}},"serverInfo":{"name":"s","version":"2"}}}
4 - 0/0 exit 7
0 c2s 1/0 msg {"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+modernMeta+`}}
1 s2c 1/0 msg {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","tools":[],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"m","version":"3"}}}}`)
	var got []string
	for _, s := range m.Captures()[0].Sessions() {
		got = append(got, fmt.Sprintf("%d %s %s→%s client %v server %v pid %d exited %v %d", s.Number, s.Era, s.Offered, s.Negotiated, s.Client, s.Server, s.PID, s.Exited, s.ExitCode))
	}
	want := []string{
		"0 legacy 2026-07-28→2025-06-18 client {host 1 [roots roots.listChanged]} server {s 2 [logging tools]} pid 7 exited true 7",
		"1 modern 2026-07-28→2026-07-28 client {host 1 [elicitation]} server {m 3 []} pid 0 exited false 0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestHTTP(t *testing.T) {
	m := build(t, nil, `
0 c2s 1/1 req POST /mcp
0 c2s 1/1 msg {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}
1 s2c 1/1 res 200 text/event-stream;charset=utf-8
2 s2c 1/1 sse keepalive
3 s2c 1/1 msg {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":{"x":1}}}
3 s2c 1/1 msg {"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{"messages":[]}}
4 c2s 1/2 req POST /mcp
4 c2s 1/2 msg {"jsonrpc":"2.0","id":"q","result":{}}
5 s2c 1/2 res 202
5 s2c 1/2 end
9 s2c 1/1 msg {"jsonrpc":"2.0","id":1,"result":{}}
9 s2c 1/1 end
20 c2s 1/3 req GET /mcp
21 s2c 1/3 res 200 text/event-stream
22 s2c 1/3 msg {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}
30 c2s 1/4 req POST /mcp
30 c2s 1/4 msg {"jsonrpc":"2.0","id":2,"method":"tools/list"}
31 s2c 1/4 res 401
31 s2c 1/4 body {"error":"invalid_token"}
31 s2c 1/4 end
40 c2s 1/5 req POST /mcp
40 c2s 1/5 msg {"jsonrpc":"2.0","id":3,"method":"nosuch","params":{`+modernMeta+`}}
41 s2c 1/5 res 404
41 s2c 1/5 msg {"jsonrpc":"2.0","id":3,"error":{"code":-32601,"message":"no"}}
41 s2c 1/5 end
50 c2s 1/6 req POST /mcp
50 c2s 1/6 msg {"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"b",`+modernMeta+`}}
52 s2c 1/6 res 200 text/event-stream
60 c2s 1/6 end client closed
70 c2s 1/7 req POST /mcp
70 c2s 1/7 msg {"jsonrpc":"2.0","method":"notifications/initialized"}
71 s2c 1/7 res 202
72 s2c 1/7 end
80 c2s 1/8 req DELETE /mcp
81 s2c 1/8 res 405
81 s2c 1/8 body no
82 s2c 1/8 end
90 c2s 1/9 req POST /mcp
91 c2s 1/9 body not json`)
	want := `
2 request ok: called a: 36 B, 9.0 ms (server 8.0 ms, client 1.0 ms)
  4 sse: stream event: : keepalive
  5 log: log info: {"x":1}
  6 request ok: requested sampling: 38 B, 1.0 ms
13 http pending: GET /mcp: HTTP 200, stream, 1 event
  15 notification: tools/list_changed
17 request http: listed tools: HTTP 401, 1.0 ms
22 request error: sent nosuch: error -32601 no, 1.0 ms
27 request cancelled: called b: cancelled, client closed, 10 ms
31 notification: initialized
34 http http: DELETE /mcp: HTTP 405, 2 B, 2.0 ms: no
38 http pending: POST /mcp: no response yet, 8 B: not json
`
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), tree(m.Rows())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	first := m.Rows()[0]
	if diff := cmp.Diff([]uint64{2, 1, 3, 11, 12}, first.Events); diff != "" {
		t.Errorf("events of the first row (-want +got):\n%s", diff)
	}
	if h := first.HTTP; h == nil || h.Status != 200 || !h.Stream || h.Events != 4 || !h.Ended {
		t.Errorf("HTTP facts %+v", h)
	}
	for _, n := range []uint64{1, 2, 3, 11, 12} {
		if m.Find("c", n) != first {
			t.Errorf("event %d belongs to %+v", n, m.Find("c", n))
		}
	}
	m.Finish()
	if got := m.Rows()[1].Status; got != trace.OK && got != trace.Pending {
		t.Errorf("the stream is %s at the end", got)
	}
}

// TestFilter evaluates filters on rows.
func TestFilter(t *testing.T) {
	lines := `
0 c2s 3/0 msg {"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"search","arguments":{"q":"needle"},"_meta":{"progressToken":1}}}
1 s2c 3/0 msg {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":5,"message":"straw"}}
2 s2c 3/0 msg {"jsonrpc":"2.0","id":"x","error":{"code":-32602,"message":"bad"}}`
	for _, tt := range []struct {
		filter string
		want   bool
	}{
		{"tool:search", true}, {"-tool:search", false}, {"id:x", true}, {`id:"\"x\""`, true}, {"session:3", true}, {"server:srv", true},
		{"status:error", true}, {"status:-32602", true}, {"status:ok", false}, {"kind:progress", true}, {"dir:c2s", true}, {"n:2", true}, {"n:4", false},
		{"dur>1ms", true}, {"dur>2ms", false}, {"size>10", true}, {"needle", true}, {"straw", true}, {"haystack", false}, {"needle straw -haystack", true},
		{"has:arguments.q", true}, {"jq:(.error.code == -32602)", true}, {"finding:r", true}, {"finding:warning", true}, {"finding:other", false}, {"era:modern", false}, {"task:*", false},
	} {
		f, err := filter.Parse(tt.filter)
		if err != nil {
			t.Fatal(err)
		}
		m := build(t, &trace.Options{Scan: func(e *capture.Event, _ *traffic.Frame) filter.Hits { return f.Scan(t.Context(), e.Data) }}, lines)
		changes := m.AddFinding("", 2, trace.Finding{Rule: "r", Severity: "warning"})
		if len(changes) != 1 || changes[0].Row.N != 2 {
			t.Fatalf("Attach changes %v", changes)
		}
		if got := f.MatchScanned(m.Rows()[0], m.Rows()[0].Hits); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.filter, got, tt.want)
		}
	}
}

// TestKindsAndStatuses checks that filters know all kinds and statuses of rows.
func TestKindsAndStatuses(t *testing.T) {
	for _, k := range []trace.Kind{
		trace.Request, trace.Notification, trace.Response, trace.Invalid, trace.Progress, trace.Log, trace.Stdout, trace.Stderr,
		trace.Start, trace.Exit, trace.EOF, trace.HTTP, trace.SSE, trace.Body, trace.Gap, trace.Note, trace.Translate,
	} {
		if _, err := filter.Parse("kind:" + string(k)); err != nil {
			t.Error(err)
		}
	}
	for _, s := range []trace.Status{
		trace.OK, trace.Failed, trace.ToolFailed, trace.InputRequired, trace.TaskCreated, trace.Canceled, trace.Pending, trace.Unanswered, trace.HTTPFailed,
	} {
		if _, err := filter.Parse("status:" + string(s)); err != nil {
			t.Error(err)
		}
	}
}

func TestStats(t *testing.T) {
	m := build(t, nil, `
0 c2s 0/0 msg {"jsonrpc":"2.0","id":0,"method":"tools/list"}
1 s2c 0/0 msg {"jsonrpc":"2.0","id":0,"result":{"tools":[{"name":"a","inputSchema":{}},{"name":"never"}]}}
10 c2s 0/0 msg {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}
20 s2c 0/0 msg {"jsonrpc":"2.0","id":1,"result":{"content":[]}}
20 c2s 0/0 msg {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a"}}
40 s2c 0/0 msg {"jsonrpc":"2.0","id":2,"result":{"isError":true}}
40 c2s 0/0 msg {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"a"}}
41 s2c 0/0 msg {"jsonrpc":"2.0","id":3,"error":{"code":1,"message":""}}
50 c2s 0/0 msg {"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"a"}}
60 s2c 0/0 msg {"jsonrpc":"2.0","id":4,"result":{"resultType":"input_required","requestState":"s"}}
1000 c2s 0/0 msg {"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"a","requestState":"s"}}
1030 s2c 0/0 msg {"jsonrpc":"2.0","id":5,"result":{"content":[]}}
1040 c2s 0/0 msg {"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"a"}}
1041 c2s 0/0 msg {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":6}}
1042 c2s 0/0 msg {"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a"}}`)
	m.Finish()
	var got []string
	for _, s := range m.Tools() {
		got = append(got, fmt.Sprintf("%s/%s: %d calls, %d ok, %d errors, %d isError, %d cancelled, %d unanswered, %d timed up to %v, definition %d",
			s.Server, s.Name, s.Calls, s.OK, s.Errors, s.ToolErrors, s.Canceled, s.Unanswered, s.Latency.Count(), s.Latency.Max(), s.DefinitionBytes))
	}
	want := []string{
		"srv/a: 6 calls, 2 ok, 1 errors, 1 isError, 1 cancelled, 1 unanswered, 4 timed up to 40ms, definition 29",
		"srv/never: 0 calls, 0 ok, 0 errors, 0 isError, 0 cancelled, 0 unanswered, 0 timed up to 0s, definition 16",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFinishCapture(t *testing.T) {
	m := trace.New(nil)
	add := func(id string, n uint64, data string) {
		m.Add(&capture.Head{ID: id}, &capture.Event{
			Kind: capture.KindMessage, Dir: capture.ToServer, Capture: id, N: n, T: time.Duration(n), Data: []byte(data),
		})
	}
	for n := range uint64(2) {
		add("a", n+1, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"x"}}`, n))
		add("b", n+1, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"x"}}`, n))
	}
	var changed []uint64
	for _, c := range m.FinishCapture("a") {
		changed = append(changed, c.Row.N)
	}
	if diff := cmp.Diff([]uint64{1, 2}, changed); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	got := map[string]trace.Status{}
	for _, r := range m.Rows() {
		got[fmt.Sprint(r.Capture.ID, r.N)] = r.Status
	}
	want := map[string]trace.Status{"a1": trace.Unanswered, "a2": trace.Unanswered, "b1": trace.Pending, "b2": trace.Pending}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
	if again := m.FinishCapture("a"); len(again) != 0 {
		t.Errorf("%d changes the second time", len(again))
	}
	if none := m.FinishCapture("no such"); len(none) != 0 {
		t.Errorf("%d changes of an unknown capture", len(none))
	}
}

// TestUnansweredWaits shows that a request without a response lasts until the last event of its
// session, and is shown as unanswered. A later response replaces that.
func TestUnansweredWaits(t *testing.T) {
	m := trace.New(nil)
	head := &capture.Head{ID: "a"}
	add := func(n uint64, at time.Duration, kind capture.Kind, dir capture.Dir, data string) {
		e := &capture.Event{Kind: kind, Dir: dir, Capture: "a", N: n, T: at}
		if data != "" {
			e.Data = []byte(data)
		}
		m.Add(head, e)
	}
	add(1, time.Second, capture.KindMessage, capture.ToServer, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)
	add(2, 2*time.Second, capture.KindMessage, capture.ToServer, `{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	add(3, 3*time.Second, capture.KindMessage, capture.ToClient, `{"jsonrpc":"2.0","id":2,"result":{}}`)
	add(4, 401*time.Second, capture.KindEOF, capture.ToServer, "")
	row := m.Find("a", 1)
	if _, known := row.Elapsed(); known || row.Wall() != 0 {
		t.Errorf("before the end: %v, known %v", row.Wall(), known)
	}
	m.Finish()
	if took, known := row.Elapsed(); !known || took != 400*time.Second {
		t.Errorf("took %v, known %v", took, known)
	}
	rec := trace.NewRecord(row)
	if rec.LatencyMS == nil || *rec.LatencyMS != 400_000 || rec.Status != trace.Unanswered {
		t.Errorf("recorded: %v, %s", rec.LatencyMS, rec.Status)
	}
	if diff := cmp.Diff([]trace.Segment{{Kind: trace.SegmentServer, From: time.Second, To: 401 * time.Second}}, row.AppendSegments(nil)); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	stat := func() *trace.Stat { return m.Tools()[0] }
	if s := stat(); s.Unanswered != 1 || s.LongestWait != 400*time.Second || s.Latency.Count() != 0 {
		t.Errorf("statistics: %d unanswered for %v, %d answered", s.Unanswered, s.LongestWait, s.Latency.Count())
	}
	if got := m.TotalRows(); got != 3 {
		t.Errorf("%d rows captured, want 3", got)
	}
	add(5, 402*time.Second, capture.KindMessage, capture.ToClient, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	if s := stat(); row.Status == trace.Unanswered && (s.Unanswered != 1 || row.Latency != 400*time.Second) ||
		row.Status != trace.Unanswered && (s.Unanswered != 0 || s.LongestWait != 0 || row.Latency != 401*time.Second) {
		t.Errorf("afterwards: %s in %v, %d unanswered for %v", row.Status, row.Latency, s.Unanswered, s.LongestWait)
	}
}

// TestCapturedRows shows that the number of captured rows includes evicted ones.
func TestCapturedRows(t *testing.T) {
	m := trace.New(&trace.Options{MaxRows: 10})
	for n := range uint64(25) {
		m.Add(&capture.Head{ID: "a"}, &capture.Event{Kind: capture.KindNote, Capture: "a", N: n + 1, Data: []byte("x")})
	}
	if got := m.TotalRows(); got != 25 || len(m.Rows()) != 10 {
		t.Errorf("%d rows captured and %d kept, want 25 and 10", got, len(m.Rows()))
	}
}

// TestSettled shows that an event is settled when its row is evicted, and that an HTTP request is
// not settled before it has a row.
func TestSettled(t *testing.T) {
	m := trace.New(&trace.Options{MaxRows: 2})
	n := uint64(0)
	add := func(e capture.Event) {
		n++
		e.N, e.Capture = n, head.ID
		m.Add(head, &e)
	}
	notification := func() {
		add(capture.Event{Kind: capture.KindMessage, Dir: capture.ToClient, Data: []byte(`{"jsonrpc":"2.0","method":"n"}`)})
	}
	add(capture.Event{Kind: capture.KindRequest, Dir: capture.ToServer, Exchange: 1, Request: &capture.Request{Method: "POST", URL: "/mcp"}})
	for range 5 {
		notification()
	}
	if m.Settled(1) {
		t.Error("settled before the row of the request was created")
	}
	add(capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Exchange: 1, Data: []byte(`{"jsonrpc":"2.0","id":1,"method":"m"}`)})
	if m.Settled(1) {
		t.Error("not settled although the row of the request exists")
	}
	for range 5 {
		notification()
	}
	if !m.Settled(1) || !m.Settled(7) || m.Settled(n) {
		t.Errorf("settled: 1 %v, 7 %v, %d %v", m.Settled(1), m.Settled(7), n, m.Settled(n))
	}
}

// TestTimeline adds rows of several captures: the timeline is ordered by time, but rows of a capture
// keep their order, and rows that come much later than others of their time are last.
func TestTimeline(t *testing.T) {
	type row struct {
		capture string
		ms      int
	}
	for _, tt := range []struct {
		name string
		max  int
		add  []row
		want string
	}{
		{"in order", 0, []row{{"a", 1}, {"b", 2}, {"a", 3}}, "a1 b2 a3"},
		{"late", 0, []row{{"a", 183}, {"a", 187}, {"b", 185}, {"a", 190}, {"b", 189}}, "a183 b185 a187 b189 a190"},
		{"same time", 0, []row{{"a", 5}, {"b", 5}, {"a", 5}}, "a5 b5 a5"},
		{"earliest", 0, []row{{"a", 500}, {"b", 400}, {"b", 450}}, "b400 b450 a500"},
		{"clock of a capture goes back", 0, []row{{"a", 500}, {"a", 400}, {"b", 450}, {"a", 600}}, "b450 a500 a400 a600"},
		{"old", 0, []row{{"a", 90_000}, {"b", 1}, {"b", 2}, {"a", 90_001}}, "a90000 b1 b2 a90001"},
		{"evicted", 2, []row{{"a", 500}, {"a", 501}, {"a", 502}, {"b", 400}}, "a501 a502"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := trace.New(&trace.Options{MaxRows: tt.max})
			n := map[string]uint64{}
			for _, r := range tt.add {
				n[r.capture]++
				at := time.Duration(r.ms) * time.Millisecond
				m.Add(&capture.Head{ID: r.capture}, &capture.Event{Kind: capture.KindStderr, Capture: r.capture, N: n[r.capture], T: at, At: start.Add(at), Data: []byte("x")})
			}
			var got []string
			for _, r := range m.Rows() {
				got = append(got, fmt.Sprintf("%s%d", r.Capture.ID, r.T.Milliseconds()))
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("timeline (-want +got):\n%s", diff)
			}
		})
	}
}
