package tui

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/filter"
	"mcpwire/cmd/internal/trace/live"
	"mcpwire/cmd/internal/view/watch"
)

// began is the time at which all captures of these tests begin.
var began = time.Date(2026, 11, 20, 12, 13, 3, 852_000_000, time.UTC)

// A fakeSource is a source without files, whose events are added by the tests.
type fakeSource struct {
	mu      sync.Mutex
	model   *trace.Model
	heads   map[string]*capture.Head
	events  map[string]*capture.Event // by capture and number
	last    map[string]uint64
	sources []watch.Source
	older   []string
	chosen  []*fakeSelection
	restart string
	// decided are the decisions about held messages.
	decided []live.Decision
}

func newFake() *fakeSource {
	return &fakeSource{model: trace.New(nil), heads: map[string]*capture.Head{}, events: map[string]*capture.Event{}, last: map[string]uint64{}}
}

func (f *fakeSource) Read(use func(m *trace.Model)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	use(f.model)
}

func (f *fakeSource) selectRows(x *filter.Filter) (selection, source) {
	s := &fakeSelection{f: f, filter: x}
	f.chosen = append(f.chosen, s)
	return s, f
}

func (f *fakeSource) Sources() []watch.Source { return f.sources }

func (f *fakeSource) Older() []string { return f.older }

func (f *fakeSource) Event(_ context.Context, id string, n uint64) (*capture.Event, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.events[key(id, n)]; e != nil {
		return e, nil
	}
	return nil, watch.ErrGone
}

func (f *fakeSource) Head(id string) *capture.Head { return f.heads[id] }

func (f *fakeSource) Open(path string) error {
	f.older = slices.DeleteFunc(f.older, func(p string) bool { return p == path })
	return nil
}

func (f *fakeSource) Decide(_ context.Context, _ string, d *live.Decision) error {
	f.decided = append(f.decided, *d)
	return nil
}

func (f *fakeSource) Restart(_ context.Context, id string) error {
	f.restart = id
	return nil
}

func key(id string, n uint64) string { return fmt.Sprint(id, " ", n) }

// A fakeSelection filters again on each call after a change of the model.
type fakeSelection struct {
	f      *fakeSource
	filter *filter.Filter
	rows   []*trace.Row
	closed bool
}

func (s *fakeSelection) list() []*trace.Row {
	if s.filter == nil {
		return s.f.model.Rows()
	}
	s.rows = s.rows[:0]
	for _, r := range s.f.model.Rows() {
		if s.filter.MatchScanned(r, 0) {
			s.rows = append(s.rows, r)
		}
	}
	return s.rows
}

func (s *fakeSelection) Len() int                        { return len(s.list()) }
func (s *fakeSelection) At(i int) *trace.Row             { return s.list()[i] }
func (s *fakeSelection) Has(*trace.Row) bool             { return true }
func (s *fakeSelection) SearchProgress() (float64, bool) { return 1, false }
func (s *fakeSelection) Whole() bool                     { return false }
func (s *fakeSelection) Matches() uint64                 { return 0 }
func (s *fakeSelection) Close()                          { s.closed = true }

// add adds a capture of lines like "12 c2s 1/4 msg {…}": milliseconds, direction or "-", session
// and exchange, kind, and the members of the kind.
func (f *fakeSource) add(t testing.TB, id, name string, transport capture.Transport, lines string) {
	t.Helper()
	h := f.heads[id]
	if h == nil {
		h = &capture.Head{Version: capture.Version, ID: id, At: began, Name: name, Transport: transport, Tool: "mcpwire test", Redact: "default"}
		f.heads[id] = h
		f.model.Add(h, &capture.Event{Kind: capture.KindHead, Capture: id, Head: h, At: began})
		f.sources = append(f.sources, watch.Source{ID: id, Name: name, Transport: transport, State: watch.Live, Path: "/captures/" + name, CanRestart: transport == capture.TransportStdio})
	}
	for line := range strings.SplitSeq(strings.Trim(lines, "\n"), "\n") {
		w := strings.SplitN(line+" ", " ", 5)
		ms, err := strconv.ParseFloat(w[0], 64)
		if err != nil {
			t.Fatal(err)
		}
		f.last[id]++
		e := &capture.Event{Kind: capture.Kind(w[3]), Capture: id, N: f.last[id], T: time.Duration(ms * float64(time.Millisecond)), Dir: capture.Dir(strings.Trim(w[1], "-"))}
		e.At = began.Add(e.T)
		if _, err := fmt.Sscanf(w[2], "%d/%d", &e.Session, &e.Exchange); err != nil {
			t.Fatal(err)
		}
		sketch(e, strings.TrimSuffix(w[4], " "))
		e.Len = int64(len(e.Data))
		f.mu.Lock()
		f.model.Add(h, e)
		f.events[key(id, e.N)] = e
		f.mu.Unlock()
	}
}

// sketch sets the members that the kind of an event has.
func sketch(e *capture.Event, rest string) {
	words := strings.Fields(rest)
	headers := func(list []string) (hs []capture.Header) {
		for _, w := range list {
			name, value, _ := strings.Cut(w, "=")
			hs = append(hs, capture.Header{Name: name, Value: value})
		}
		return hs
	}
	switch e.Kind {
	case capture.KindStart:
		e.Start = &capture.Start{Command: words, PID: 4711}
	case capture.KindExit:
		code, _ := strconv.Atoi(rest)
		e.Exit = &capture.Exit{Code: code}
	case capture.KindRequest:
		e.Request = &capture.Request{Method: words[0], URL: words[1], Proto: "HTTP/1.1", Headers: headers(words[2:])}
	case capture.KindResponse:
		status, _ := strconv.Atoi(words[0])
		e.Response = &capture.Response{Status: status, Proto: "HTTP/1.1", Headers: headers(words[1:])}
	case capture.KindSSE:
		e.SSE = &capture.SSE{Comment: rest, HasComment: true}
	default:
		e.Data = []byte(rest)
		if e.Exchange == 0 && e.Kind == capture.KindMessage {
			e.Framing = capture.FramingLF
		}
	}
}

// legacy is a typical session of a server over stdio.
const legacy = `
0 - 1/0 start node build/index.js
12 c2s 1/0 msg {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{},"roots":{"listChanged":true}},"clientInfo":{"name":"claude-ai","version":"0.1.0"}}}
30 err 1/0 text server starting on stdio
54 s2c 1/0 msg {"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"logging":{}},"serverInfo":{"name":"files","version":"2.1.0"}}}
55 c2s 1/0 msg {"jsonrpc":"2.0","method":"notifications/initialized"}
60 c2s 1/0 msg {"jsonrpc":"2.0","id":1,"method":"tools/list"}
71 s2c 1/0 msg {"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"search","inputSchema":{"type":"object"}},{"name":"order","inputSchema":{"type":"object"}}]}}
200 c2s 1/0 msg {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"search","arguments":{"query":"hello world","limit":10},"_meta":{"progressToken":"p1"}}}
250 s2c 1/0 msg {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p1","progress":1,"total":3,"message":"looking"}}
300 s2c 1/0 msg {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"found it"}}
420 s2c 1/0 msg {"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]}}
500 s2c 1/0 invalid hello from console.log
600 c2s 1/0 msg {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"order","arguments":{"item":"tea"}}}
640 s2c 1/0 msg {"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{"message":"Really order tea?","requestedSchema":{"type":"object","properties":{}}}}
1640 c2s 1/0 msg {"jsonrpc":"2.0","id":0,"result":{"action":"accept","content":{}}}
1700 s2c 1/0 msg {"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"out of tea"}],"isError":true}}
1800 c2s 1/0 msg {"jsonrpc":"2.0","id":4,"method":"resources/read","params":{"uri":"file:///etc/motd"}}
1810 s2c 1/0 msg {"jsonrpc":"2.0","id":4,"error":{"code":-32002,"message":"Resource not found"}}
2000 c2s 1/0 msg {"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"search","arguments":{"query":"slow"}}}
`

// modern is a session over HTTP without a handshake.
const modern = `
2000 c2s 1/1 req POST /mcp Content-Type=application/json MCP-Protocol-Version=2026-07-28 Mcp-Method=tools/call Mcp-Name=weather
2001 c2s 1/1 msg {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"weather","arguments":{"city":"Oslo"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"cursor","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}
2080 s2c 1/1 res 200 Content-Type=application/json
2081 s2c 1/1 msg {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[{"type":"text","text":"rain"}]}}
2082 - 1/1 end
2300 c2s 1/2 req GET /mcp Accept=text/event-stream
2310 s2c 1/2 res 405 Content-Type=text/plain
2311 - 1/2 end
`

// both returns a source with both sessions, and a finding.
func both(t testing.TB) *fakeSource {
	f := newFake()
	f.add(t, "A", "files", "stdio", legacy)
	f.add(t, "B", "weather", "http", modern)
	f.model.AddFinding("A", 12, trace.Finding{Rule: "stray-output", Severity: "error", Message: "this is no message"})
	f.model.AddFinding("A", 7, trace.Finding{Rule: "tool-description", Severity: "warning", Message: "tools have no description", Pointer: "/result/tools/0"})
	return f
}
