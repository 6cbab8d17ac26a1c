package picture

import (
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
)

var began = time.Date(2026, 11, 26, 9, 0, 0, 0, time.UTC)

// A recording builds a model from messages.
type recording struct {
	m    *trace.Model
	head *capture.Head
	n    uint64
	side capture.Side
	s    uint64
}

func newRecording(m *trace.Model, id, name string) *recording {
	return &recording{m: m, head: &capture.Head{ID: id, Name: name, At: began}}
}

// add adds events, one per line: milliseconds, ">" or "<" or a kind, and a payload.
func (r *recording) add(lines string) {
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		parts := strings.SplitN(strings.TrimSpace(line), " ", 3)
		if len(parts) < 2 {
			continue
		}
		ms, err := strconv.ParseFloat(parts[0], 64)
		if err != nil {
			panic(err)
		}
		r.n++
		e := &capture.Event{Kind: capture.KindMessage, Capture: r.head.ID, N: r.n, T: time.Duration(ms * 1e6), Side: r.side, Session: r.s, Data: []byte(strings.Join(parts[2:], ""))}
		e.At = began.Add(e.T)
		switch parts[1] {
		case ">":
			e.Dir = capture.ToServer
		case "<":
			e.Dir = capture.ToClient
		case "exit":
			e.Kind, e.Exit = capture.KindExit, &capture.Exit{Code: 3}
		case "start":
			e.Kind, e.Start = capture.KindStart, &capture.Start{PID: 7, Command: []string{"node"}}
		}
		r.m.Add(r.head, e)
	}
}

const handshake = `
0 start
1 > {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"editor","version":"3"}}}
9 < {"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"shop","version":"2"}}}
`

// session returns a recording with an example of everything that a sequence shows.
const session = handshake + `
20 > {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"order","arguments":{"item":"<tea> & more"},"_meta":{"progressToken":1}}}
30 < {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1,"total":2}}
40 < {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":2,"total":2}}
50 < {"jsonrpc":"2.0","id":9,"method":"elicitation/create","params":{"message":"Really?","requestedSchema":{}}}
7050 > {"jsonrpc":"2.0","id":9,"result":{"action":"accept"}}
7060 < {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"ok"}]}}
8000 > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"find"}}
8001 < {"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"no; such # tool"}}
8010 > {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"a"}}
8011 < {"jsonrpc":"2.0","id":3,"result":{"content":[]}}
8020 > {"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"a"}}
8022 < {"jsonrpc":"2.0","id":4,"result":{"content":[]}}
8030 > {"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"a"}}
8033 < {"jsonrpc":"2.0","id":5,"result":{"content":[]}}
8040 > {"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"a"}}
8044 < {"jsonrpc":"2.0","id":6,"result":{"content":[]}}
8050 > {"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"hang"}}
9000 exit
`

// TestMermaid shows the parts of a sequence: peers, calls with their latencies, a loop for input
// rounds, idle time, equal calls as one, and requests without a response.
func TestMermaid(t *testing.T) {
	m := trace.New(nil)
	newRecording(m, "A", "shop").add(session)
	want := `sequenceDiagram
  actor p0 as editor 3
  participant p1 as shop
  Note over p1: started pid 7
  p0->>+p1: initialize 2025-11-25
  p1-->>-p0: 8.0 ms 127 B
  p0->>+p1: order #60;tea#62; & more
  p1-)p0: progress ×2 2/2
  loop elicitation
  p1->>+p0: elicitation/create Really?
  Note over p0,p1: 7.0 s later
  p0-->>-p1: 7.0 s 53 B
  end
  p1-->>-p0: 7.0 s 75 B
  p0->>+p1: find
  p1--x-p0: 1.0 ms error -32602 no#59; such #35; tool
  p0->>+p1: a ×4
  p1-->>-p0: all ok p50 2.0 ms, at most 4.0 ms
  p0->>+p1: hang
  p1--x-p0: no response after 950 ms
  Note over p1: exited code 3
`
	if diff := cmp.Diff(want, NewSequence(m.Rows()).Mermaid()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestRounds checks that an input round of a modern server is a loop around its response and the
// next request.
func TestRounds(t *testing.T) {
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},"io.modelcontextprotocol/clientInfo":{"name":"editor","version":"3"}}`
	m := trace.New(nil)
	newRecording(m, "A", "deploy").add(`
0 > {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"release","arguments":{},` + meta + `}}
10 < {"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{"ok":{"method":"elicitation/create","params":{"message":"?","requestedSchema":{}}}},"requestState":"s"}}
900 > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"release","arguments":{},"inputResponses":{"ok":{"action":"accept"}},"requestState":"s",` + meta + `}}
950 < {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","content":[]}}`)
	want := `sequenceDiagram
  actor p0 as editor 3
  participant p1 as deploy
  p0->>+p1: release
  loop input round
  p1-->>-p0: 10 ms needs input
  p0->>+p1: release again, with the input
  end
  p1-->>-p0: 50 ms 72 B
`
	if diff := cmp.Diff(want, NewSequence(m.Rows()).Mermaid()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestLanes checks that a host with two servers is one lane, and that a bridge is between its
// sides.
func TestLanes(t *testing.T) {
	m := trace.New(nil)
	newRecording(m, "A", "shop").add(handshake)
	newRecording(m, "B", "mail").add(handshake)
	names := func(s *Sequence) (list []string) {
		for _, l := range s.lanes {
			list = append(list, l.name)
		}
		return list
	}
	if diff := cmp.Diff([]string{"editor 3", "shop", "mail"}, names(NewSequence(m.Rows()))); diff != "" {
		t.Errorf("two servers (-want +got):\n%s", diff)
	}
	m = trace.New(nil)
	r := newRecording(m, "C", "x")
	r.side, r.s = capture.Downstream, 1
	r.add(handshake)
	r.side, r.s = capture.Upstream, 2
	r.add(handshake)
	if diff := cmp.Diff([]string{"editor 3", "bridge", "shop"}, names(NewSequence(m.Rows()))); diff != "" {
		t.Errorf("a bridge (-want +got):\n%s", diff)
	}
	r.s = 3
	r.add(strings.ReplaceAll(handshake, `"shop"`, `"mail"`))
	if diff := cmp.Diff([]string{"editor 3", "gateway", "shop", "mail"}, names(NewSequence(m.Rows()))); diff != "" {
		t.Errorf("a gateway (-want +got):\n%s", diff)
	}
}

// TestLimits shows that a long session keeps its newest steps and counts the ones before.
func TestLimits(t *testing.T) {
	m := trace.New(nil)
	r := newRecording(m, "A", "shop")
	r.add(handshake)
	for i := 1; i <= 600; i++ {
		id := strconv.Itoa(i)
		at := strconv.Itoa(100 + 10*i)
		r.add(at + ` > {"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"t` + id + `"}}
` + at + `.5 < {"jsonrpc":"2.0","id":` + id + `,"result":{"content":[]}}`)
	}
	s := NewSequence(m.Rows())
	if len(s.steps) != maxSteps || s.omitted != 401 || s.steps[len(s.steps)-1].name != "500 µs" {
		t.Errorf("%d steps, %d requests omitted, the last is %+v", len(s.steps), s.omitted, s.steps[len(s.steps)-1])
	}
	wellFormed(t, s.SVG(0))
}

// TestSVG shows that pictures are valid XML whatever peers write, have no script, and load nothing.
func TestSVG(t *testing.T) {
	m := trace.New(nil)
	newRecording(m, "A", `"><script>alert(1)</script>&`).add(session)
	hostile := newRecording(m, `B"'<`, "\x1b[31m]]>\u202e\x00")
	hostile.add(strings.ReplaceAll(session, "order", `<\/text><image href=\"http:\/\/x.test\/\"\/>`))
	for name, svg := range map[string]string{
		"sequence": NewSequence(m.Rows()).SVG(0), "narrow": NewSequence(m.Rows()).SVG(1), "wide": NewSequence(m.Rows()).SVG(1 << 30), "empty": NewSequence(nil).SVG(0),
		"overview": NewOverview(m, m.Rows()).SVG(0), "narrow overview": NewOverview(m, m.Rows()).SVG(1), "empty overview": NewOverview(trace.New(nil), nil).SVG(0),
	} {
		t.Run(name, func(t *testing.T) { wellFormed(t, svg) })
	}
}

// wellFormed parses a picture and reports elements and attributes that the page does not allow.
func wellFormed(t *testing.T, svg string) {
	t.Helper()
	elements := map[string]bool{"svg": true, "g": true, "path": true, "rect": true, "line": true, "circle": true, "text": true, "tspan": true, "title": true, "desc": true, "style": true}
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := d.Token()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatalf("%v in %.2000s", err, svg)
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		if !elements[start.Name.Local] {
			t.Errorf("an element %s", start.Name.Local)
		}
		for _, a := range start.Attr {
			if strings.HasPrefix(a.Name.Local, "on") || strings.Contains(a.Name.Local, "href") || strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
				t.Errorf("an attribute %s=%q of %s", a.Name.Local, a.Value, start.Name.Local)
			}
		}
	}
}

// TestOverview counts requests, failures, sizes and exits.
func TestOverview(t *testing.T) {
	m := trace.New(nil)
	r := newRecording(m, "A", "shop")
	r.add(handshake + `
10 > {"jsonrpc":"2.0","id":1,"method":"tools/list"}
12 < {"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"order","inputSchema":{"type":"object"}},{"name":"a","inputSchema":{"type":"object"},"description":"long"}]}}` + "\n" + strings.TrimPrefix(session, handshake))
	o := NewOverview(m, m.Rows())
	got := []any{o.calls, o.failed, o.servers, o.definitionTools, len(o.tools), o.tools[0].name, o.tools[0].calls, len(o.lives), o.lives[0].exit, o.lives[0].failed}
	if diff := cmp.Diff([]any{9, 2, 1, 2, 4, "a", uint64(4), 1, "exit 3", true}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestOverviewColors shows that the medians of latencies have the colors of the servers.
func TestOverviewColors(t *testing.T) {
	m := trace.New(nil)
	for i, name := range []string{"one", "two"} {
		newRecording(m, name, name).add(fmt.Sprintf(`1 > {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tool%d"}}
5 < {"jsonrpc":"2.0","id":1,"result":{"content":[]}}`, i))
	}
	svg := NewOverview(m, m.Rows()).SVG(0)
	for _, class := range []string{"p-srv0", "p-srv1"} {
		if !regexp.MustCompile(`<circle class="` + class + `" [^>]* r="4.2"/>`).MatchString(svg) {
			t.Errorf("no median has the class %s", class)
		}
	}
}

// TestLongCall shows that a call of five minutes, in which nothing else happens, leaves the scale to
// the others.
func TestLongCall(t *testing.T) {
	m := trace.New(nil)
	newRecording(m, "A", "shop").add(handshake + `
100 > {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}
600 < {"jsonrpc":"2.0","id":1,"result":{"content":[]}}
700 > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"b"}}
300700 < {"jsonrpc":"2.0","id":2,"result":{"content":[]}}`)
	o := NewOverview(m, m.Rows())
	if x := o.scale.Place(began.Add(5 * time.Second)); x < 0.3 {
		t.Errorf("the first 5 s take %.3f of the width", x)
	}
}

// TestTimeScale shows that idle time is narrow, and that the order is preserved.
func TestTimeScale(t *testing.T) {
	at := func(s float64) time.Time { return began.Add(time.Duration(s * float64(time.Second))) }
	s := newTimeScale([]trace.Interval{{From: at(0), To: at(10)}, {From: at(3600), To: at(3610)}, {From: at(2), To: at(4)}})
	if len(s.Segments) != 3 || !s.Segments[1].Idle {
		t.Fatalf("segments: %+v", s.Segments)
	}
	if x := s.Place(at(3600)) - s.Place(at(10)); x <= 0 || x > 0.2 {
		t.Errorf("an idle hour takes %.3f of the width", x)
	}
	last := -1.0
	for i := -5.0; i < 3700; i += 1.7 {
		x := s.Place(at(i))
		if x < last || x < 0 || x > 1 {
			t.Fatalf("%.1f s is at %f, after %f", i, x, last)
		}
		last = x
	}
	if ticks := ticks(&s, 800); len(ticks) < 4 || len(ticks) > 14 {
		t.Errorf("ticks: %+v", ticks)
	}
	for d, want := range map[time.Duration]string{5 * time.Minute: "5m", 90 * time.Minute: "1h30m", 2 * time.Hour: "2h", 65 * time.Second: "1m5s", 3 * time.Second: "3.0 s"} {
		if got := roundText(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

// TestStyle shows that a picture has all colors, in both themes, and each class that pictures use
// has a rule.
func TestStyle(t *testing.T) {
	if s := style(); strings.Contains(s, "var(") || strings.Contains(s, ": ;") || !strings.Contains(s, "prefers-color-scheme: dark") {
		t.Errorf("the style sheet: %s", s)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for i := range serverColors {
		if !strings.Contains(pictureCSS, "."+serverClass(i)+" ") {
			t.Errorf("server %d has no color", i)
		}
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range strings.FieldsFunc(string(text), func(r rune) bool { return r == '"' || r == ' ' || r == '\n' }) {
			if strings.HasPrefix(word, "p-") && !strings.HasSuffix(word, "-") && !strings.Contains(word, "/") && !strings.HasPrefix(word, "p-srv") && !strings.Contains(pictureCSS, "."+word+" ") && !known[word] {
				t.Errorf("%s: no rule for the class %s", f, word)
			}
		}
	}
}

// known are classes without their own rule.
var known = map[string]bool{"p-text": true, "p-step": true, "p-": true}
