package check_test

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/mcp"
)

// written returns the events of an example as a capture file.
func written(tb testing.TB, x check.Example) []byte {
	head, events, err := x.Events()
	if err != nil {
		tb.Fatal(err)
	}
	var b bytes.Buffer
	enc := capture.NewEncoder(&b, &capture.Redaction{Off: true})
	if err := enc.Encode(&capture.Event{Kind: capture.KindHead, Head: head}); err != nil {
		tb.Fatal(err)
	}
	for _, e := range events {
		if err := enc.Encode(e); err != nil {
			tb.Fatal(err)
		}
	}
	if err := enc.Flush(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// FuzzCheck shows that no capture causes a panic, and that the texts of findings are safe for a
// terminal.
func FuzzCheck(f *testing.F) {
	for _, r := range check.Rules() {
		f.Add(written(f, r.Bad))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, opts := range []*check.Options{nil, {Revision: mcp.Revision20260728, Limits: check.Limits{MaxSessions: 2, MaxExchanges: 2, MaxPending: 2, MaxParamBytes: 64, MaxTools: 1, MaxPerRule: 3}}} {
			for found, err := range check.Run(capture.NewReader(bytes.NewReader(data), nil), opts) {
				if err != nil {
					return
				}
				for _, s := range []string{found.Message, found.Pointer, found.Method, found.ID} {
					if strings.ContainsFunc(s, func(r rune) bool { return r != ' ' && !unicode.IsGraphic(r) }) || !utf8.ValidString(s) || len(s) > 4096 {
						t.Fatalf("%s shows %q", found.Rule.ID, s)
					}
				}
			}
		}
	})
}

// TestMangled shows that captures with lines swapped, lost, truncated and repeated cause no panic.
func TestMangled(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var lines [][]byte
	for _, r := range check.Rules() {
		for _, x := range []check.Example{r.Bad, r.Good} {
			lines = append(lines, bytes.SplitAfter(written(t, x), []byte("\n"))...)
		}
	}
	for range 200 {
		var file []byte
		for range 60 {
			line := lines[rng.IntN(len(lines))]
			switch rng.IntN(8) {
			case 0:
				line = line[:rng.IntN(len(line)+1)]
			case 1:
				line = bytes.ReplaceAll(line, []byte("result"), []byte("params"))
			case 2:
				line = bytes.ReplaceAll(line, []byte(`"`+mcp.LatestRevision.String()+`"`), []byte("null"))
			}
			file = append(file, line...)
		}
		for _, err := range check.Run(capture.NewReader(bytes.NewReader(file), nil), &check.Options{Limits: check.Limits{MaxPending: 8, MaxSessions: 4, MaxExchanges: 4}}) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestMemory checks that an endless session uses limited memory.
func TestMemory(t *testing.T) {
	k := check.New(&check.Options{Limits: check.Limits{MaxSessions: 64, MaxExchanges: 64, MaxPending: 256, MaxParamBytes: 1 << 20}})
	head := &capture.Head{ID: "m", Transport: "stdio"}
	n := uint64(0)
	add := func(e capture.Event) {
		n++
		e.N, e.Kind = n, capture.KindMessage
		k.Add(head, &e)
	}
	long := strings.Repeat("x", 1000)
	round := func(i int) {
		id := strconv.Itoa(i)
		quoted := `"` + id + long + `"`
		for s := range uint64(4) {
			session := uint64(i)*4 + s
			if s == 0 {
				session = 0
			}
			// Requests without a response, with unique tokens and ids, and unknown methods.
			add(capture.Event{Dir: capture.ToServer, Session: session, Data: []byte(`{"jsonrpc":"2.0","id":` + id + `,"method":"m` + id + `","params":{"_meta":{"progressToken":` + quoted[:900] + `"},"a":` + quoted + `}}`)})
			add(capture.Event{Dir: capture.ToServer, Session: session, Data: []byte(`{"jsonrpc":"2.0","id":` + quoted[:500] + `","method":"tools/list"}`)})
			add(capture.Event{Dir: capture.ToClient, Session: session, Data: []byte(`{"jsonrpc":"2.0","id":` + quoted[:500] + `","result":{"tools":[{"name":` + quoted[:600] + `","inputSchema":{"type":"object"}}],"nextCursor":` + quoted + `}}`)})
			add(capture.Event{Dir: capture.ToServer, Session: session, Exchange: n, Data: []byte(`{"jsonrpc":"2.0","id":1,"method":"resources/list"}`)})
		}
	}
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for i := range 3000 {
		round(i)
	}
	before := heap()
	for i := range 3000 {
		round(3000 + i)
	}
	if grown := int64(heap()) - int64(before); grown > 8<<20 {
		t.Errorf("the heap has grown by %d KiB in the second half", grown>>10)
	}
	runtime.KeepAlive(k)
}
