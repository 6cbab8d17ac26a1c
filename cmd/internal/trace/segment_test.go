package trace_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
)

// spans returns the spans of a row as text: "server 0-10, client 10-20…".
func spans(list []trace.Segment) string {
	var parts []string
	for _, s := range list {
		text := fmt.Sprintf("%s %d-%d", s.Kind, s.From.Milliseconds(), s.To.Milliseconds())
		if s.Open {
			text += "…"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

func TestSpans(t *testing.T) {
	call := `c2s 0/0 msg {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a",` + modernMeta + `}}`
	for _, tt := range []struct{ name, in, want string }{
		{"notification", `5 c2s 0/0 msg {"jsonrpc":"2.0","method":"x"}`, ""},
		{"pending", "10 " + call + "\n30 - 0/0 err x", "server 10-30…"},
		{"answered", "10 " + call + `
15 s2c 0/0 msg {"jsonrpc":"2.0","id":1,"result":{}}
20 - 0/0 err x`, "server 10-15"},
		{"at once", "10 " + call + `
10 s2c 0/0 msg {"jsonrpc":"2.0","id":1,"result":{}}
20 - 0/0 err x`, "server 10-10"},
		{"never answered", "10 " + call + "\n30 - 0/0 exit 1\n40 - 0/0 err x", "server 10-30"},
		{"questions", "0 " + call + `
10 s2c 0/0 msg {"jsonrpc":"2.0","id":"a","method":"roots/list"}
12 s2c 0/0 msg {"jsonrpc":"2.0","id":"b","method":"roots/list"}
20 c2s 0/0 msg {"jsonrpc":"2.0","id":"a","result":{}}
25 c2s 0/0 msg {"jsonrpc":"2.0","id":"b","result":{}}
30 s2c 0/0 msg {"jsonrpc":"2.0","id":"c","method":"roots/list"}
40 c2s 0/0 msg {"jsonrpc":"2.0","id":"c","result":{}}
50 s2c 0/0 msg {"jsonrpc":"2.0","id":1,"result":{}}`, "server 0-10, client 10-25, server 25-30, client 30-40, server 40-50"},
		{"a pending input request", "0 " + call + `
10 s2c 0/0 msg {"jsonrpc":"2.0","id":"a","method":"roots/list"}
99 - 0/0 err x`, "server 0-10, client 10-99…"},
		{"response before its request", "0 " + call + `
10 s2c 0/0 msg {"jsonrpc":"2.0","id":"a","method":"roots/list"}
20 s2c 0/0 msg {"jsonrpc":"2.0","id":1,"result":{}}
99 c2s 0/0 msg {"jsonrpc":"2.0","id":"a","result":{}}`, "server 0-10, client 10-20"},
		{"rounds", "0 " + call + `
10 s2c 0/0 msg {"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":"s"}}
60 c2s 0/0 msg {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a","requestState":"s",` + modernMeta + `}}
70 s2c 0/0 msg {"jsonrpc":"2.0","id":2,"result":{"resultType":"input_required","requestState":"t"}}
90 - 0/0 err x`, "server 0-10, client 10-60, server 60-70, client 70-90…"},
		{"task", "0 " + call + `
5 s2c 0/0 msg {"jsonrpc":"2.0","id":1,"result":{"resultType":"task","taskId":"t","status":"working"}}
50 s2c 0/0 msg {"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"t","status":"completed"}}
60 - 0/0 err x`, "server 0-5, task 5-50"},
		{"running task", "0 " + call + `
5 s2c 0/0 msg {"jsonrpc":"2.0","id":1,"result":{"resultType":"task","taskId":"t","status":"working"}}
60 - 0/0 err x`, "server 0-5, task 5-60…"},
		{"listen", `0 c2s 0/0 msg {"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{` + modernMeta + `}}
70 - 0/0 err x`, "stream 0-70…"},
		{"stream", `0 c2s 0/1 req GET /mcp
5 s2c 0/1 res 200 text/event-stream
9 s2c 0/1 msg {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}
80 s2c 0/1 end`, "stream 0-80"},
		{"open stream", `0 c2s 0/1 req GET /mcp
9 - 0/0 err x`, "stream 0-9…"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := build(t, nil, tt.in)
			before := trace.Segment{Kind: "other", To: time.Hour}
			got := m.Rows()[0].AppendSegments([]trace.Segment{before})
			if got[0] != before {
				t.Errorf("an earlier span became %+v", got[0])
			}
			if text := spans(got[1:]); text != tt.want {
				t.Errorf("got  %s\nwant %s", text, tt.want)
			}
		})
	}
}

func TestStream(t *testing.T) {
	m := trace.New(nil)
	list := events(t, `
0 c2s 0/1 req GET /mcp
1 s2c 0/1 res 200 text/event-stream
2 c2s 0/2 req POST /mcp
2 c2s 0/2 msg {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}
3 s2c 0/1 sse ping
4 s2c 0/1 msg {"jsonrpc":"2.0","id":"q","method":"roots/list"}
5 s2c 0/1 msg {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	for _, e := range list {
		m.Add(head, e)
	}
	r := m.Rows()[0]
	if !r.IsStream() || m.Rows()[1].IsStream() {
		t.Error("the wrong row is marked as a stream")
	}
	// includes the request of the server within the call
	if diff := cmp.Diff([]uint64{5, 6, 7}, r.HTTP.RecentEvents); diff != "" {
		t.Errorf("events of the stream (-want +got):\n%s", diff)
	}
	for i := range 2000 {
		m.Add(head, &capture.Event{Kind: capture.KindSSE, N: uint64(8 + i), Capture: "c", Dir: capture.ToClient, Exchange: 1})
	}
	if n := len(r.HTTP.RecentEvents); n < 256 || n > 512 || r.HTTP.RecentEvents[n-1] != 2007 || r.HTTP.Events != 2003 {
		t.Errorf("%d of %d events are known, the last is %d", n, r.HTTP.Events, r.HTTP.RecentEvents[n-1])
	}
	if r.EvictedChildren == 0 || len(r.Children) != trace.DefaultMaxChildren {
		t.Errorf("%d inside, %d gone", len(r.Children), r.EvictedChildren)
	}
}

func TestBuckets(t *testing.T) {
	var h trace.Histogram
	if h.Buckets(10) != nil {
		t.Error("an empty one has buckets")
	}
	for _, d := range []time.Duration{0, 31, time.Millisecond, time.Millisecond, 3 * time.Millisecond, time.Hour, 1<<63 - 1} {
		h.Add(d)
	}
	for _, limit := range []int{0, 1, 2, 7, 40, 300, 100_000} {
		list := h.Buckets(limit)
		if len(list) > max(limit, 1) {
			t.Errorf("%d buckets, want at most %d", len(list), limit)
		}
		var n uint64
		for i, b := range list {
			n += b.Count
			if b.Lower >= b.Upper || i > 0 && b.Lower != list[i-1].Upper {
				t.Errorf("limit %d: bucket %d is %+v after %+v", limit, i, b, list[max(0, i-1)])
			}
			if b.Lower <= time.Millisecond && time.Millisecond < b.Upper && b.Count < 2 {
				t.Errorf("limit %d: %+v, want at least two", limit, b)
			}
		}
		if n != 7 {
			t.Errorf("limit %d: %d durations, want 7", limit, n)
		}
	}
	h = trace.Histogram{}
	h.Add(10 * time.Millisecond)
	h.Add(12 * time.Millisecond)
	if got := h.Buckets(30); len(got) < 5 || got[0].Count != 1 || got[len(got)-1].Count != 1 || got[0].Lower > 10*time.Millisecond || got[len(got)-1].Upper <= 12*time.Millisecond {
		t.Errorf("near each other: %+v", got)
	}
}
