package taphttp

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/internal/net/sse"
)

// newTestExchange returns an exchange whose events are listed.
func newTestExchange(list, data *[]string) *exchange {
	h := &Handler{opts: (*Options)(nil).withDefaults(), upstream: &url.URL{Scheme: "http", Host: "up.example.com"}}
	h.opts.MaxBody = 8 << 10
	h.budget.max = 1 << 20
	h.rec.observe = func(e *capture.Event) {
		if e.SSE != nil && e.Data != nil {
			*data = append(*data, string(e.Data))
		}
		line := fmt.Sprintf("%s %q %v", e.Kind, e.Data, e.Cut)
		if e.SSE != nil { // which event a comment goes with depends on how it comes
			fields := *e.SSE
			fields.Comment, fields.HasComment = "", false
			if fields == (capture.SSE{}) && e.Data == nil {
				return
			}
			line += fmt.Sprintf(" %+v", fields)
		}
		*list = append(*list, line)
	}
	r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/"}, Host: "tap.example.com"}
	return &exchange{h: h, down: downstream{r: r}, rec: h.newExchangeRecorder(0)}
}

// FuzzEvents shows that the events do not depend on how a stream is cut into pieces, that the gate
// changes only the origin of an endpoint, and that clients see the same data as package
// internal/net/sse.
func FuzzEvents(f *testing.F) {
	for _, seed := range []string{
		"data: {}\n\n", ": hello\r\n\r\nid: 1\r\ndata\r\n\r\n", "event: endpoint\ndata: http://up.example.com/a?b\n\n", "\xef\xbb\xbfdata:x\rdata: y\r\r",
		"retry: 5\n\nnope\n\nevent:\n\n", "data: a\n", "event: endpoint\ndata: x\ndata: y\n\n", "\r\n\r\r\n\n:\n:\n\n",
	} {
		f.Add([]byte(seed), byte(1))
		f.Add([]byte(seed), byte(3))
	}
	f.Fuzz(func(t *testing.T, stream []byte, step byte) {
		if len(stream) > 4<<10 {
			return
		}
		run := func(n int) (events, data []string, passed []byte) {
			x := newTestExchange(&events, &data)
			s, g := newEventSink(x), &gate{x: x}
			for rest := stream; len(rest) > 0; {
				k := min(n, len(rest))
				s.feed(rest[:k], false)
				passed = append(passed, g.filter(rest[:k])...)
				rest = rest[k:]
			}
			passed = append(passed, g.flush()...)
			s.end(true)
			x.rec.releaseBuffers()
			if used := x.h.budget.used.Load(); used != 0 {
				t.Errorf("%d bytes of the budget were not given back", used)
			}
			slices.Sort(events) // notes of the gate come sooner or later
			return events, data, passed
		}
		whole, data, passed := run(len(stream) + 1)
		split, _, again := run(int(step)%16 + 1)
		if diff := cmp.Diff(whole, split); diff != "" {
			t.Errorf("events (-in one piece +in pieces):\n%s", diff)
		}
		if !bytes.Equal(passed, again) {
			t.Errorf("passed %q, in pieces %q", passed, again)
		}
		if !bytes.Equal(passed, stream) && !bytes.Contains(stream, []byte("endpoint")) {
			t.Errorf("passed %q of %q", passed, stream)
		}
		var want []string
		for r := sse.NewReader(bytes.NewReader(stream), 0); ; {
			e, err := r.Read()
			if err != nil {
				break
			}
			if e.Data != nil {
				want = append(want, string(e.Data))
			}
		}
		if diff := cmp.Diff(want, data); diff != "" {
			t.Errorf("data (-internal/net/sse +taphttp):\n%s", diff)
		}
	})
}
