package trace_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
)

// exchanges makes the events of n calls, two each. It reuses one event.
func exchanges(n int, add func(e *capture.Event)) {
	e := &capture.Event{Kind: capture.KindMessage, Capture: "c"}
	for i := range n {
		e.N, e.T, e.Dir = uint64(2*i+1), time.Duration(2*i)*time.Millisecond, capture.ToServer
		e.Data = fmt.Appendf(e.Data[:0], `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"search","arguments":{"q":"word %d"},"_meta":{"progressToken":%d}}}`, i, i, i)
		add(e)
		e.N, e.T, e.Dir = e.N+1, e.T+time.Millisecond, capture.ToClient
		e.Data = fmt.Appendf(e.Data[:0], `{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"found"}]}}`, i)
		add(e)
	}
}

func TestOldRowsEvicted(t *testing.T) {
	m := trace.New(&trace.Options{MaxRows: 100})
	dropped := 0
	exchanges(5000, func(e *capture.Event) {
		for _, c := range m.Add(head, e) {
			if c.Op == trace.Evicted {
				dropped++
			}
		}
	})
	if got := len(m.Rows()); got != 100 {
		t.Errorf("%d rows, want 100", got)
	}
	if dropped != 4900 || m.EvictedRows() != 4900 {
		t.Errorf("%d dropped, %d counted", dropped, m.EvictedRows())
	}
	if m.Find("c", 1) != nil || m.Find("c", 9999) == nil {
		t.Error("an evicted row is found, or a kept one is not")
	}
	if s := m.Tools()[0]; s.Calls != 5000 || s.OK != 5000 {
		t.Errorf("the counts are %d and %d", s.Calls, s.OK)
	}
}

// TestOldChildrenEvicted shows that each row evicted from another is reported once.
func TestOldChildrenEvicted(t *testing.T) {
	m := trace.New(&trace.Options{MaxChildren: 2})
	var evicted []uint64
	for n := uint64(1); n <= 5; n++ {
		e := &capture.Event{Kind: capture.KindMessage, N: n, Capture: "c", Dir: capture.ToClient, Data: []byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`)}
		if n == 1 {
			e.Dir, e.Data = capture.ToServer, []byte(`{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"progressToken":1}}}`)
		}
		for _, c := range m.Add(head, e) {
			if c.Op == trace.ChildEvicted {
				evicted = append(evicted, c.Row.N)
			}
		}
	}
	if !slices.Equal(evicted, []uint64{2, 3}) || m.Rows()[0].EvictedChildren != 2 {
		t.Errorf("evicted %v, counted %d", evicted, m.Rows()[0].EvictedChildren)
	}
}

// TestBounded adds events of each kind that could grow the model without limit.
func TestBounded(t *testing.T) {
	kinds := map[string]func(i int, e *capture.Event){
		"requests without a response": func(i int, e *capture.Event) {
			e.Kind, e.Dir, e.Data = capture.KindMessage, capture.ToServer, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"t%d","_meta":{"progressToken":%d}}}`, i, i, i)
		},
		"children of one": func(i int, e *capture.Event) {
			e.Kind, e.Dir, e.Data = capture.KindMessage, capture.ToClient, []byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`)
			if i == 0 {
				e.Dir, e.Data = capture.ToServer, []byte(`{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"progressToken":1}}}`)
			}
		},
		"HTTP exchanges that do not end": func(i int, e *capture.Event) {
			e.Kind, e.Exchange, e.Request = capture.KindRequest, uint64(i), &capture.Request{Method: "POST", URL: "/"}
		},
		"sessions": func(i int, e *capture.Event) {
			e.Kind, e.Session, e.Data = capture.KindStderr, uint64(i), []byte("x")
		},
		"captures": func(i int, e *capture.Event) {
			e.Kind, e.Capture, e.Data = capture.KindStderr, fmt.Sprint(i/4), []byte("x")
		},
		"rounds without end": func(i int, e *capture.Event) {
			e.Kind, e.Dir = capture.KindMessage, capture.ToServer
			e.Data = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"t","requestState":"%d"}}`, i/2, i/2-1)
			if i%2 == 1 {
				e.Dir, e.Data = capture.ToClient, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":{"resultType":"input_required","requestState":"%d"}}`, i/2, i/2)
			}
		},
		"tasks in tasks": func(i int, e *capture.Event) {
			e.Kind, e.Dir = capture.KindMessage, capture.ToServer
			e.Data = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"t","taskId":"%d"}}`, i/2, i/2-1)
			if i%2 == 1 {
				e.Dir, e.Data = capture.ToClient, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":{"resultType":"task","taskId":"%d"}}`, i/2, i/2)
			}
		},
		"long texts": func(i int, e *capture.Event) {
			e.Kind, e.Dir = capture.KindMessage, capture.ToServer
			long := strings.Repeat("x", 1000)
			e.Data = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":"%s%d","method":"%s%d","params":{"name":"%s%d"}}`, long[:500], i, long, i, long, i)
		},
	}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			m := trace.New(&trace.Options{MaxRows: 1000})
			heap := func() uint64 {
				var s runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&s)
				return s.HeapAlloc
			}
			before := heap()
			const n = 30_000
			for i := range n {
				e := &capture.Event{N: uint64(i + 1), T: time.Duration(i), Capture: "c"}
				kind(i, e)
				h := head
				if e.Capture != "c" {
					h = nil
				}
				m.Add(h, e)
			}
			if grown := int64(heap()) - int64(before); grown > 12<<20 {
				t.Errorf("%d events take %d bytes", n, grown)
			}
			if len(m.Rows()) > 1000 {
				t.Errorf("%d rows", len(m.Rows()))
			}
			runtime.KeepAlive(m)
		})
	}
}

func TestHist(t *testing.T) {
	var h trace.Histogram
	if h.Quantile(0.5) != 0 {
		t.Error("an empty one has values")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var all []time.Duration
	for range 20_000 {
		d := time.Duration(rng.ExpFloat64() * float64(40*time.Millisecond))
		all = append(all, d)
		h.Add(d)
	}
	slices.Sort(all)
	for _, q := range []float64{0, 0.01, 0.5, 0.95, 0.99, 0.999, 1} {
		exact := all[min(len(all)-1, max(0, int(q*float64(len(all)))-1))]
		got := h.Quantile(q)
		if diff := float64(got-exact) / float64(exact); diff > 0.02 || diff < -0.02 {
			t.Errorf("quantile %v is %v, exactly %v: %.1f %% off", q, got, exact, 100*diff)
		}
	}
	if h.Max() != all[len(all)-1] || h.Count() != 20_000 {
		t.Errorf("max %v, count %d", h.Max(), h.Count())
	}
	var merged, odd, even trace.Histogram
	for i, d := range all {
		if i%2 == 0 {
			even.Add(d)
		} else {
			odd.Add(d)
		}
	}
	for _, part := range []*trace.Histogram{new(trace.Histogram), &odd, &even} {
		merged.Merge(part)
	}
	for _, q := range []float64{0, 0.5, 0.95, 1} {
		if got, want := merged.Quantile(q), h.Quantile(q); got != want {
			t.Errorf("quantile %v of merged parts is %v, want %v", q, got, want)
		}
	}
	if merged.Count() != h.Count() || merged.Max() != h.Max() {
		t.Errorf("merged: count %d, max %v", merged.Count(), merged.Max())
	}
	h.Add(-1)
	h.Add(1<<63 - 1)
	if h.Quantile(0) != 0 || h.Quantile(1) != 1<<63-1 {
		t.Errorf("the ends are %v and %v", h.Quantile(0), h.Quantile(1))
	}
}

func TestEscape(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"plain text", "plain text"},
		{"grün 日本　語 🙂 ✈️", "grün 日本　語 🙂 ✈️"},
		{"\x1b]0;title\x07\x1b[2J", `\x1b]0;title\x07\x1b[2J`},
		{"a\r\nb\tc\x00\x7f\u0085", `a\r\nb\tc\x00\x7f\u0085`},
		{"x\u202egpj.exe\u2066\u200b\u200d\ufeff\u00ad\u2028", `x\u202egpj.exe\u2066\u200b\u200d\ufeff\u00ad\u2028`},
		{"a\xffb\xc3", `a\xffb\xc3`},
		{"tag\U000e0041\U000e0100", `tag\U000e0041\U000e0100`},
		{"blank\u3164\u115f\u2800", `blank\u3164\u115f\u2800`},
		{"e" + strings.Repeat("\u0301", 6), "e" + strings.Repeat("\u0301", 4) + `\u0301\u0301`},
		{"\ue000", `\ue000`},
		{"\ufffd", "\ufffd"},
	} {
		if got := trace.Escape(tt.in); got != tt.want {
			t.Errorf("Escape(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

// TestDenseEscapes checks that texts are shortened where every few characters are escaped, as in
// JSON inside a string.
func TestDenseEscapes(t *testing.T) {
	for _, part := range []string{`\"a\":1,`, `\\`, `\n`, `x\\\\`, `\u0041`, `\ud83d\ude00`} {
		for offset := range 12 {
			text := strings.Repeat("x", offset) + strings.Repeat(part, 4000)
			m := trace.New(nil)
			m.Add(head, &capture.Event{Kind: capture.KindMessage, Capture: "c", N: 1, Dir: capture.ToServer, Data: []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`)})
			m.Add(head, &capture.Event{Kind: capture.KindMessage, Capture: "c", N: 2, Dir: capture.ToClient, Data: []byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"` + text + `"}]}}`)})
			var whole string
			if err := json.Unmarshal([]byte(`"`+text+`"`), &whole); err != nil {
				t.Fatal(err)
			}
			got := strings.TrimSuffix(m.Rows()[0].ResultInfo.Text, "…")
			if len(got) < 100 || !strings.HasPrefix(whole, got) {
				t.Errorf("%s at %d: the text begins with %q", part, offset, got)
			}
		}
	}
}

func TestCut(t *testing.T) {
	for _, tt := range []struct {
		in    string
		width int
		want  string
	}{
		{"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"日本語", 6, "日本語"}, {"日本語", 5, "日本…"}, {"日本語", 4, "日…"}, {"abc", 0, "abc"}, {"e\u0301e\u0301", 2, "e\u0301e\u0301"},
	} {
		if got := trace.Truncate(tt.in, tt.width); got != tt.want || tt.width > 0 && trace.Width(got) > tt.width {
			t.Errorf("Cut(%q, %d) = %q, want %q", tt.in, tt.width, got, tt.want)
		}
	}
}

func TestUnits(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "1.0 kB", 1249: "1.2 kB", 12345: "12 kB", 999_499: "999 kB", 999_999: "1.0 MB", 5 << 40: "5498 GB"} {
		if got := trace.FormatSize(n); got != want {
			t.Errorf("Size(%d) = %q, want %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		0: "0 ns", 840: "840 ns", 999: "999 ns", 8400: "8.4 µs", 999_900: "1.0 ms", 43 * time.Millisecond: "43 ms", 1234 * time.Millisecond: "1.2 s",
		12 * time.Second: "12 s", 123 * time.Second: "2m3s", -time.Second: "-1.0 s", -1 << 63: "-1281023h53m38s",
	} {
		if got := trace.FormatDuration(d); got != want {
			t.Errorf("Duration(%d) = %q, want %q", d, got, want)
		}
	}
}

// FuzzAdd adds any messages and HTTP data: the model must stay consistent, and its texts must be
// safe to print.
func FuzzAdd(f *testing.F) {
	seeds := []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{},"_meta":{"progressToken":1,"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":"s","inputRequests":{}}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a","requestState":"s"}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"resultType":"task","taskId":"t"}}`, `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"t"}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, `[{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{"a":{"b":1}}}}]`,
		`{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"\u001b[31m\u202e"}}`, "\x1b[2J",
	}
	for i, s := range seeds {
		f.Add(s, seeds[(i+1)%len(seeds)], uint8(i), uint8(i*7))
	}
	allKinds := []capture.Kind{
		capture.KindMessage, capture.KindMessage, capture.KindMessage, capture.KindInvalid, capture.KindStderr, capture.KindEOF, capture.KindExit, capture.KindRequest,
		capture.KindResponse, capture.KindBody, capture.KindSSE, capture.KindEnd, capture.KindTranslate, capture.KindNote, capture.KindGap, capture.KindStart, "new", capture.KindHead,
	}
	f.Fuzz(func(t *testing.T, a, b string, x, y uint8) {
		m := trace.New(&trace.Options{MaxRows: 6, MaxChildren: 2})
		n := uint64(0)
		for round := range 3 {
			for i, data := range []string{a, b, seeds[int(x)%len(seeds)], seeds[int(y)%len(seeds)]} {
				n++
				e := &capture.Event{
					Kind: allKinds[(int(x)+i*int(y)+round)%len(allKinds)], N: n, T: time.Duration(int(y) * i), Capture: "c", Dir: []capture.Dir{"c2s", "s2c", ""}[(i+int(x))%3],
					Session: uint64(x % 2), Exchange: uint64(y % 4), Data: []byte(data),
				}
				m.Add(head, e)
			}
		}
		m.Finish()
		for _, r := range m.Rows() {
			for x := range r.All() {
				if s := trace.Summary(x); trace.Escape(s) != s {
					t.Fatalf("the summary %q is not escaped", s)
				}
				if _, err := json.Marshal(trace.NewRecord(x)); err != nil {
					t.Fatal(err)
				}
				x.Complete()
				x.Wall()
			}
		}
		if len(m.Rows()) > 6 {
			t.Fatalf("%d rows", len(m.Rows()))
		}
	})
}

func BenchmarkAdd(b *testing.B) {
	m := trace.New(nil)
	b.ReportAllocs()
	exchanges(b.N, func(e *capture.Event) { m.Add(head, e) })
}

func ExampleModel() {
	m := trace.New(nil)
	for _, e := range []*capture.Event{
		{Kind: capture.KindMessage, N: 1, Dir: capture.ToServer, Data: []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search"}}`)},
		{Kind: capture.KindMessage, N: 2, T: 43 * time.Millisecond, Dir: capture.ToClient, Data: []byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)},
	} {
		m.Add(nil, e)
	}
	for _, r := range m.Rows() {
		fmt.Println(r.N, trace.Summary(r))
	}
	// Output: 1 called search: 0 contents, 48 B, 43 ms
}

// BenchmarkRow reports the memory of a row: a call with its response.
func BenchmarkRow(b *testing.B) {
	const rows = 100_000
	heap := func() uint64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	for b.Loop() {
		before := heap()
		m := trace.New(nil)
		exchanges(rows, func(e *capture.Event) { m.Add(head, e) })
		b.ReportMetric(float64(heap()-before)/rows, "B/row")
		runtime.KeepAlive(m)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(2*rows), "ns/event")
}
