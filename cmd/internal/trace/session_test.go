package trace_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/filter"
)

func TestCard(t *testing.T) {
	m := build(t, nil, `
0 - 0/0 start node s.js
1 c2s 0/0 msg {"jsonrpc":"2.0","id":0,"method":"server/discover","params":{`+modernMeta+`}}
2 s2c 0/0 msg {"jsonrpc":"2.0","id":0,"result":{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{"tools":{"listChanged":true}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"m","version":"3"}}}}
4 - 0/0 exit 7`)
	card := m.Captures()[0].Sessions()[0].Card()
	want := trace.SessionInfo{
		Capture: "c", Name: "srv", Transport: "stdio",
		SessionState: trace.SessionState{
			Era: trace.EraModern, Offered: "2026-07-28", Negotiated: "2026-07-28", Supported: []string{"2026-07-28", "2025-11-25"},
			Client:  trace.PeerInfo{Name: "host", Version: "1", Capabilities: []string{"elicitation"}},
			Server:  trace.PeerInfo{Name: "m", Version: "3", Capabilities: []string{"tools", "tools.listChanged"}},
			Command: []string{"node", "s.js"}, PID: 7, Exited: true, ExitCode: 7, Rows: 3, First: start, Last: start.Add(4 * time.Millisecond),
		},
	}
	if diff := cmp.Diff(want, card); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := m.Captures()[0].Sessions()[0].StartN; got != 1 {
		t.Errorf("started by event %d", got)
	}
}

// TestServerName shows that sessions behind a gateway have the names of their servers: their rows
// are renamed when there is a second server, and facets and statistics tell the servers apart.
func TestServerName(t *testing.T) {
	m := trace.New(nil)
	head := &capture.Head{ID: "c", Name: "gate"}
	n := uint64(0)
	var renamed []uint64
	add := func(session uint64, side capture.Side, request, response string) *trace.Session {
		for _, x := range []struct {
			dir  capture.Dir
			data string
		}{{capture.ToServer, request}, {capture.ToClient, response}} {
			n++
			for _, c := range m.Add(head, &capture.Event{Kind: capture.KindMessage, N: n, Capture: "c", Session: session, Side: side, Dir: x.dir, Data: []byte(x.data)}) {
				if c.Op == trace.Renamed {
					renamed = append(renamed, c.Row.N)
				}
			}
		}
		rows := m.Rows()
		return rows[len(rows)-1].Session
	}
	handshake := func(session uint64, side capture.Side, server string) *trace.Session {
		return add(session, side, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"h","version":"1"}}}`,
			`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"`+server+`","version":"1"}}}`)
	}
	call := func(session uint64, side capture.Side) {
		add(session, side, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"find"}}`, `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
	}
	down, shop := handshake(1, capture.Downstream, "gate"), handshake(2, capture.Upstream, "shop")
	call(2, capture.Upstream)
	if got := shop.ServerName(); got != "gate" || renamed != nil {
		t.Errorf("the server of a bridge is %q, want the name of the capture; renamed %v", got, renamed)
	}
	mail := handshake(3, capture.Upstream, "mail")
	call(3, capture.Upstream)
	if diff := cmp.Diff([]uint64{5, 3, 7}, renamed); diff != "" {
		t.Errorf("renamed rows (-want +got):\n%s", diff)
	}
	for s, want := range map[*trace.Session]string{down: "gate 0 gate downstream", shop: "shop 1 shop upstream", mail: "mail 2 mail upstream"} {
		if got := fmt.Sprint(s.ServerName(), " ", s.ServerIndex(), " ", s.Label()); got != want {
			t.Errorf("the server is %q, want %q", got, want)
		}
	}
	if diff := cmp.Diff([]trace.Facet{{Value: "gate", Count: 5}, {Value: "shop", Index: 1, Count: 2}, {Value: "mail", Index: 2, Count: 2}}, m.Facets().Servers); diff != "" {
		t.Errorf("facets (-want +got):\n%s", diff)
	}
	var stats []string
	for _, s := range append(m.Tools(), m.Methods()...) {
		stats = append(stats, fmt.Sprint(s.Server, " ", s.Name, " ", s.Calls, " ", s.OK))
	}
	want := []string{"mail upstream find 1 1", "shop upstream find 1 1", "gate downstream initialize 1 1", "gate upstream initialize 2 2", "mail upstream tools/call 1 1", "shop upstream tools/call 1 1"}
	if diff := cmp.Diff(want, stats); diff != "" {
		t.Errorf("statistics (-want +got):\n%s", diff)
	}
	for text, want := range map[string]int{"server:=mail": 2, "server:=gate": 5} {
		f, err := filter.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		matched := 0
		for _, r := range m.Rows() {
			if f.Match(t.Context(), r) {
				matched++
			}
		}
		if matched != want {
			t.Errorf("%d rows match %s, want %d", matched, text, want)
		}
	}
}

// TestExcerpts shows the members of arguments and params: texts, then others with their names. It
// omits members that every message has.
func TestExcerpts(t *testing.T) {
	for _, tt := range []struct{ params, want string }{
		{`{"a":1}`, `a=1`},
		{`{}`, ``},
		{`{"action":"eval","precision":3,"expression":"81*7+sqrt(81)"}`, `eval  81*7+sqrt(81)  precision=3`},
		{`{"a":"","b":null,"c":{"d":"e"},"f":"line\nline","g":true}`, "line\nline  a=\"\"  b=null  c={\"d\":\"e\"}  g=true"},
		{`{"_meta":{"x":1}}`, ""},
		{`{"_meta":{"x":1},"cursor":"c","b":[1, 2]}`, `c  b=[1, 2]`},
		{`{"cursor":"` + strings.Repeat("é", 4000) + `","_meta":{}}`, `éé`},
	} {
		m := build(t, nil, `1 c2s 0/0 msg {"jsonrpc":"2.0","id":0,"method":"tools/list","params":`+tt.params+`}`)
		got := m.Rows()[0].Excerpt
		if len(got) > len(tt.want) && strings.HasSuffix(got, "é…") && utf8.ValidString(got) {
			got = got[:len(tt.want)]
		}
		if got != tt.want {
			t.Errorf("of %.40s there is %q", tt.params, got)
		}
	}
}

// TestRestarted shows that a tap responds for a process that has ended and starts another one, and
// that the card of the first one shows it.
func TestRestarted(t *testing.T) {
	m := build(t, nil, `
0 - 0/0 note x
1 c2s 1/0 msg {"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"die"}}
2 - 1/0 start node s.js
3 - 1/0 exit 3
4 s2c 1/0 msg {"jsonrpc":"2.0","id":6,"error":{"code":-32603,"message":"restarted"}}`)
	s := m.Captures()[0].Sessions()[1]
	if c := s.Card(); !c.Exited || c.Successor != 0 {
		t.Errorf("before the restart: %+v", c)
	}
	r := m.Rows()[1]
	if r.Status != trace.Failed || r.Code != -32603 || r.Message != "restarted" || r.Latency != 3*time.Millisecond || len(m.Rows()) != 4 {
		t.Errorf("%d rows, %s %d %q after %v", len(m.Rows()), r.Status, r.Code, r.Message, r.Latency)
	}
	if st := m.Tools()[0]; st.Unanswered != 0 || st.Errors != 1 {
		t.Errorf("%d without an answer, %d errors", st.Unanswered, st.Errors)
	}
	for _, e := range events(t, "5 - 2/0 start node s.js") {
		e.N = 6
		m.Add(nil, e)
	}
	if c := s.Card(); c.Successor != 2 || c.ExitCode != 3 {
		t.Errorf("after the restart: %+v", c)
	}
	if c := m.Captures()[0].Sessions()[2].Card(); c.Exited || c.Successor != 0 {
		t.Errorf("of the new process: %+v", c)
	}
	for _, e := range events(t, "6 - 1/0 start node s.js") { // a process of the same session
		e.N = 7
		m.Add(nil, e)
	}
	if c := s.Card(); c.Exited || c.ExitCode != 0 || c.Successor != 0 {
		t.Errorf("after another one: %+v", c)
	}
}

// TestRejectedRevision shows that the error of a server that does not support the revision names
// the supported ones.
func TestRejectedRevision(t *testing.T) {
	m := build(t, nil, `
1 c2s 0/0 msg {"jsonrpc":"2.0","id":0,"method":"tools/list","params":{`+modernMeta+`}}
2 s2c 0/0 msg {"jsonrpc":"2.0","id":0,"error":{"code":-32022,"message":"no","data":{"supported":["2025-11-25",1,"x"],"requested":"2026-07-28"}}}`)
	if diff := cmp.Diff([]string{"2025-11-25", "x"}, m.Captures()[0].Sessions()[0].Supported); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestRoundTooDeepInside shows that a round is not nested in the previous round if that one has the
// maximum depth of rows.
func TestRoundTooDeepInside(t *testing.T) {
	var in string
	for i := range 9 { // each is caused by the task of the previous one
		in += fmt.Sprintf(`%d s2c 0/0 msg {"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"t","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t%d"}}}}
%d c2s 0/0 msg {"jsonrpc":"2.0","id":%d,"result":{"resultType":"task","taskId":"t%d","status":"working"}}
`, i, i, i-1, i, i, i)
	}
	in += `20 s2c 0/0 msg {"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"t","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t8"}}}}
21 c2s 0/0 msg {"jsonrpc":"2.0","id":"x","result":{"resultType":"input_required","requestState":"s"}}
22 c2s 0/0 msg {"jsonrpc":"2.0","id":"y","method":"tools/call","params":{"name":"t","requestState":"s"}}
23 s2c 0/0 msg {"jsonrpc":"2.0","id":"y","result":{"resultType":"input_required","requestState":"s2"}}
24 c2s 0/0 msg {"jsonrpc":"2.0","id":"z","method":"tools/call","params":{"name":"t","requestState":"s2"}}
25 s2c 0/0 msg {"jsonrpc":"2.0","id":"z","result":{}}`
	m := build(t, nil, in)
	n := 0
	for x := range m.Rows()[0].All() {
		x.AppendSegments(nil)
		n++
	}
	if n != 12 {
		t.Errorf("%d rows, want 12", n)
	}
}

func TestManyFindings(t *testing.T) {
	m := build(t, nil, `0 c2s 0/0 msg {"jsonrpc":"2.0","id":1,"method":"ping"}`)
	for i := range 40 {
		m.AddFinding("c", 1, trace.Finding{Rule: "r", Severity: []string{"info", "warning"}[i%2]})
	}
	r := m.Rows()[0]
	if len(r.Findings) != 32 || r.OmittedFindings != 8 || r.CountFindings() != 40 {
		t.Errorf("%d kept, %d evicted, %d in total", len(r.Findings), r.OmittedFindings, r.CountFindings())
	}
}

// TestInsideMatch finds the row inside a row for which a filter matches it.
func TestInsideMatch(t *testing.T) {
	m := build(t, nil, `1 c2s 0/0 msg {"jsonrpc":"2.0","id":1,"method":"tools/list"}
2 s2c 0/0 msg {"jsonrpc":"2.0","id":"a","method":"roots/list"}
3 c2s 0/0 msg {"jsonrpc":"2.0","id":"a","error":{"code":-32601,"message":"none"}}
4 s2c 0/0 msg {"jsonrpc":"2.0","id":1,"result":{"tools":[]}}`)
	r := m.Rows()[0]
	for text, want := range map[string]string{"status:error": "roots/list", "method:roots": "roots/list", "n:2": "roots/list", "status:error kind:request": "roots/list", "status:ok": "", "method:tools": "", "kind:request": "", "status:-32601": "roots/list"} {
		f, err := filter.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if in := r.InsideMatch(f); in != nil {
			got = in.Method
		}
		if got != want || !f.Match(t.Context(), r) {
			t.Errorf("%s: %q made the row match, want %q", text, got, want)
		}
	}
}

// TestCauseOfExit shows when an exit names its cause: if the process died before or after the
// handshake, by what it wrote, but not if the client closed it, or if nothing is known.
func TestCauseOfExit(t *testing.T) {
	const (
		started   = "0 - 1/0 start node server.js\n"
		request   = `1 c2s 1/0 msg {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}` + "\n"
		handshake = request + `2 s2c 1/0 msg {"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}` + "\n"
		lacks     = "- 1/0 err Error: BRAVE_API_KEY environment variable is required\n"
		closed    = "8000 c2s 1/0 eof\n"
	)
	for _, tt := range []struct {
		name, lines, want, fix string
	}{
		{"at the start", started + "5 " + lacks + "9 - 1/0 exit 1", "code 1: BRAVE_API_KEY is missing", "--env BRAVE_API_KEY=value"},
		{"at the start, on standard output", started + "5 s2c 1/0 invalid Error: BRAVE_API_KEY environment variable is required\n9 - 1/0 exit 1", "code 1: BRAVE_API_KEY is missing", "--env"},
		{"during the handshake", started + request + "5 " + lacks + "9 - 1/0 exit 1", "code 1: BRAVE_API_KEY is missing", "--env"},
		{"after the handshake", started + handshake + "5 " + lacks + "9 - 1/0 exit 1", "code 1: BRAVE_API_KEY is missing", "--env"},
		{"long after what it wrote", started + handshake + "5 " + lacks + "60000 - 1/0 exit 1", "code 1", ""},
		{"closed", started + handshake + "5 " + lacks + closed + "8001 - 1/0 exit 1", "code 1", ""},
		{"closed before it was asked", started + "5 " + lacks + closed + "8001 - 1/0 exit 0", "code 0", ""},
		{"closed without a response", started + request + "5 - 1/0 err Need to install the following packages: x@1\n" + closed + "8001 - 1/0 exit 0", "code 0: npx waits for permission to install x@1", "-y"},
		{"stopped", started + handshake + "5 " + lacks + "9 - 1/0 exit 0", "code 0", ""},
		{"unknown", started + "5 - 1/0 err Error: the flux is gone\n9 - 1/0 exit 1", "code 1", ""},
		{"without a word", started + "9 - 1/0 exit 3", "code 3", ""},
		{"status", started + "9 - 1/0 exit 127", "code 127: the shell or env does not find a program: exit status 127", "install it"},
		{"started again", started + "5 " + lacks + "9 - 1/0 exit 1\n" + "20 - 1/0 start node server.js\n29 - 1/0 exit 3", "code 3", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := trace.New(nil)
			for _, e := range events(t, tt.lines) {
				m.Add(head, e)
			}
			rows := m.Rows()
			last := rows[len(rows)-1]
			if last.Kind != trace.Exit || last.Excerpt != tt.want {
				t.Errorf("the last row is %s %q, want an exit with %q", last.Kind, last.Excerpt, tt.want)
			}
			card := last.Session.Card()
			if (card.Fix == "") != (tt.fix == "") || !strings.Contains(card.Fix, tt.fix) {
				t.Errorf("the remedy is %q, want one with %q", card.Fix, tt.fix)
			}
		})
	}
}
