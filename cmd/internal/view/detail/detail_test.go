package detail_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/view/detail"
	"mcpwire/internal/text/printable"
)

// isStream is a call over HTTP whose response is a stream.
func isStream() *recording {
	return snapshotRecord("http").
		post(1, "Host: h", "Mcp-Method: tools/list", "Mcp-Name: =?base64?Ym9vaw==?=", "MCP-Protocol-Version: 2026-07-28", "X-Odd: a\u202e").
		message(capture.ToServer, 1, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"book",`+modernMeta+`}}`).
		reply(1, 200, "text/event-stream").
		add(&capture.Event{Kind: capture.KindSSE, Dir: capture.ToClient, Exchange: 1, SSE: &capture.SSE{Comment: "hi\x1b", HasComment: true, ID: "", HasID: true}}).
		message(capture.ToClient, 1, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1,"message":"half"}}`).
		message(capture.ToClient, 1, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":"s"}}`).
		add(&capture.Event{Kind: capture.KindEnd, Dir: capture.ToClient, Exchange: 1}).
		post(2).
		message(capture.ToServer, 2, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"book","requestState":"s",`+modernMeta+`}}`).
		reply(2, 200, "application/json").
		message(capture.ToClient, 2, `{"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","content":[]}}`).
		add(&capture.Event{Kind: capture.KindEnd, Dir: capture.ToClient, Exchange: 2})
}

func TestOf(t *testing.T) {
	d := isStream().detail(t, 2, nil)
	if d.Title != "tools/call book" || d.Glyph != "→" || d.Kind != trace.Request || len(d.Missing) != 0 {
		t.Errorf("%s %s %s, missing %v", d.Glyph, d.Title, d.Kind, d.Missing)
	}
	want := []string{
		"The client called book: 0 contents, 156 B, 2 rounds in 9.0 ms (server 6.0 ms, client 3.0 ms).",
		"It took 2 rounds, because the server needed input: the client sent the request again with the input.",
		"For 3.0 ms of the time the server waited for the client, a person or a model.",
		"It was sent over HTTP, with status 200 as a stream of 3 events.",
	}
	if diff := cmp.Diff(want, d.Summary.Sentences); diff != "" {
		t.Errorf("words (-want +got):\n%s", diff)
	}
	if d.Request.N != 2 || d.Response.N != 6 || d.Last.N != 11 {
		t.Errorf("request %d, response %d, last %d", d.Request.N, d.Response.N, d.Last.N)
	}
	var rounds, inside, raw, frames []string
	for _, r := range d.Rounds {
		rounds = append(rounds, fmt.Sprint(r.N, " ", r.Response, " ", r.Status, " ", r.FromMS, "+", r.WallMS))
	}
	for _, i := range d.Children {
		inside = append(inside, fmt.Sprint(i.N, " ", i.Kind, " ", i.AtMS, " ", i.Summary))
	}
	for _, x := range d.Raw {
		raw = append(raw, fmt.Sprint(x.N, " ", x.Kind, " ", x.Dir, " ", x.Len))
	}
	for _, f := range d.Events {
		frames = append(frames, fmt.Sprintf("%d %.12s", f.N, spans(f.Text, false)))
	}
	for name, lists := range map[string][2][]string{
		"rounds": {{"2 6 input_required 0+4", "9 11 ok 7+2"}, rounds},
		"inside": {{"4 sse 2 stream event: : hi\\x1b, id ", "5 progress 3 progress 1: half", "9 request 7 called book again: 0 contents, 72 B, 2.0 ms"}, inside},
		"raw":    {{"1 req c2s 0", "2 msg c2s 202", "3 res s2c 0", "6 msg s2c 84", "7 end s2c 0"}, raw},
		"frames": {{"1 POST /mcp", "2 {\"jsonrpc\":\"", "3 HTTP 200", "6 {\"jsonrpc\":\"", "7 "}, frames},
	} {
		if diff := cmp.Diff(lists[0], lists[1]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestHTTPSection(t *testing.T) {
	d := isStream().detail(t, 2, nil)
	h := d.HTTP
	if h.Request.Line != "POST /mcp HTTP/1.1" || h.Response.Line != "HTTP/1.1 200 OK" || !h.Stream || !h.Ended || h.Events != 3 || h.Request.N != 1 || h.Response.N != 3 {
		t.Errorf("%+v, %+v, %+v", h, h.Request, h.Response)
	}
	var got []string
	for _, f := range h.Request.Headers {
		got = append(got, fmt.Sprint(f.Name, ": ", spans(f.Value, true), " ", f.IsMCP, " ", f.Anomaly))
	}
	want := []string{"Host: h false ", "Mcp-Method: tools/list true the message has tools/call", "Mcp-Name: =?base64?Ym9vaw==?= true ", "MCP-Protocol-Version: 2026-07-28 true ", "X-Odd: ah[‹U+202E RLO›] false "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	got = nil
	for _, e := range d.SSE.Events {
		id, comment := "-", "-"
		if e.ID != nil {
			id = *e.ID
		}
		if e.Comment != nil {
			comment = *e.Comment
		}
		got = append(got, fmt.Sprintf("%d %q %q %.20s", e.N, id, comment, spans(e.Data, false)))
	}
	want = []string{`4 "" "hi\\x1b" `, `5 "-" "-" {"jsonrpc":"2.0","me`, `6 "-" "-" {"jsonrpc":"2.0","id`}
	if diff := cmp.Diff(want, got); diff != "" || d.SSE.Open || d.SSE.OmittedEvents != 0 {
		t.Errorf("events %+v (-want +got):\n%s", d.SSE, diff)
	}
}

func TestTiming(t *testing.T) {
	d := isStream().detail(t, 2, nil)
	var got []string
	for _, s := range d.Timing.Segments {
		got = append(got, fmt.Sprint(s.Kind, " ", s.FromMS, "-", s.ToMS, " ", s.Label))
	}
	want := []string{"server 0-4 the server works", "client 4-7 the client collects the input", "server 7-9 the server works"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if x := d.Timing; x.WallMS != 9 || x.ServerMS != 6 || x.ClientMS != 3 || x.Open || len(x.Marks) != 3 {
		t.Errorf("%+v", x)
	}
}

// TestRejected shows that the response of a request that HTTP rejects is the body, although the
// body is not a message.
func TestRejected(t *testing.T) {
	r := snapshotRecord("http").post(1).message(capture.ToServer, 1, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`).reply(1, 401, "application/json").
		add(&capture.Event{Kind: capture.KindBody, Dir: capture.ToClient, Exchange: 1, Data: []byte(`{"error":"invalid_token"}`)}).
		add(&capture.Event{Kind: capture.KindEnd, Dir: capture.ToClient, Exchange: 1})
	d := r.detail(t, 2, nil)
	if d.Response == nil || d.Response.Form != detail.JSON || d.Response.N != 4 || d.HTTP.Response.Status != 401 {
		t.Errorf("%+v", d.Response)
	}
}

func TestTranslated(t *testing.T) {
	r := snapshotRecord("stdio").c2s(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`).
		add(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Session: 2, Data: []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/list"}`)}).
		add(&capture.Event{Kind: capture.KindTranslate, Translation: &capture.Translation{Of: 1, To: []uint64{2, 99}, Rule: "drop _meta\x1b"}})
	for _, n := range []uint64{1, 3} { // the row, and that of the translation
		d := r.detail(t, n, nil)
		if len(d.Translations) != 2 || d.Translations[1].After != nil {
			t.Fatalf("event %d: %d translations", n, len(d.Translations))
		}
		x := d.Translations[0]
		if x.Rule != `drop _meta\x1b` || x.N != 3 || x.Before.N != 1 || x.After.N != 2 || len(d.Missing) != 1 || d.Missing[0].N != 99 {
			t.Errorf("event %d: %+v, missing %v", n, x, d.Missing)
		}
	}
}

// TestCause shows that the words of an exit, of a request that it left without a response, and of a
// handshake that HTTP rejected have the cause and the remedy, and that those of a rejected handshake
// do not if another one succeeded.
func TestCause(t *testing.T) {
	const request = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
	const result = `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}`
	crash := func() *recording {
		return snapshotRecord("stdio").add(&capture.Event{Kind: capture.KindStart, Start: &capture.Start{Command: []string{"node"}, PID: 7}}).
			message(capture.ToServer, 0, request).
			add(&capture.Event{Kind: capture.KindStderr, Data: []byte("Error: BRAVE_API_KEY environment variable is required")}).
			add(&capture.Event{Kind: capture.KindExit, Exit: &capture.Exit{Code: 1}})
	}
	rejected := func() *recording {
		return snapshotRecord("http").post(1, "Host: 127.0.0.1:8080").message(capture.ToServer, 1, request).reply(1, 403, "text/plain").
			add(&capture.Event{Kind: capture.KindBody, Dir: capture.ToClient, Exchange: 1, Data: []byte("Invalid Host: 127.0.0.1:8080")}).
			add(&capture.Event{Kind: capture.KindEnd, Dir: capture.ToClient, Exchange: 1})
	}
	accepted := rejected().post(2).message(capture.ToServer, 2, request).reply(2, 200, "application/json").message(capture.ToClient, 2, result)
	for _, tt := range []struct {
		name      string
		record    *recording
		n         uint64
		what, fix string
	}{
		{"exit", crash(), 4, "", "--env BRAVE_API_KEY=value"},
		{"unanswered", crash(), 2, "BRAVE_API_KEY is missing", "--env BRAVE_API_KEY=value"},
		{"standard error", crash(), 3, "", ""},
		{"rejected", rejected(), 2, "the server does not accept the host name 127.0.0.1:8080: HTTP 403", "allowed hosts"},
		{"accepted later", accepted, 2, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			words := strings.Join(tt.record.detail(t, tt.n, nil).Summary.Sentences, "\n")
			for _, part := range [][2]string{{"The cause: ", tt.what}, {"The remedy: ", tt.fix}} {
				_, after, found := strings.Cut(words, part[0])
				line, _, _ := strings.Cut(after, "\n")
				if found != (part[1] != "") || !strings.Contains(line, part[1]) {
					t.Errorf("%s%q, want %q, in\n%s", part[0], line, part[1], words)
				}
			}
		})
	}
}

func TestTaskAndBatch(t *testing.T) {
	r := snapshotRecord("stdio").
		c2s(`[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}},{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"b","task":{}}}]`).
		s2c(`[{"jsonrpc":"2.0","id":2,"result":{"task":{"taskId":"t","status":"working"}}},{"jsonrpc":"2.0","id":1,"result":{}}]`).
		c2s(`{"jsonrpc":"2.0","id":3,"method":"tasks/result","params":{"taskId":"t"}}`).
		s2c(`{"jsonrpc":"2.0","id":3,"result":{"content":[]}}`)
	row := r.model.Rows()[1]
	d, err := detail.Build(t.Context(), r, detail.TakeSnapshot(row), nil)
	if err != nil {
		t.Fatal(err)
	}
	squeezed := func(p *detail.Payload) string { return strings.ReplaceAll(collapse(p.Lines), "\n", "") }
	if got := squeezed(d.Request); got != `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"b","task":{}}}` || !d.Request.Partial {
		t.Errorf("request %s", got)
	}
	if got := squeezed(d.Response); got != `{"jsonrpc":"2.0","id":2,"result":{"task":{"taskId":"t","status":"working"}}}` || !d.Response.Partial {
		t.Errorf("response %s", got)
	}
	if got := squeezed(d.Last); got != `{"jsonrpc":"2.0","id":3,"result":{"content":[]}}` {
		t.Errorf("last %s", got)
	}
}

// TestMissing shows that the detail has the data of the model if the capture was removed.
func TestMissing(t *testing.T) {
	r := snapshotRecord("stdio").start("a").c2s(`{"jsonrpc":"2.0","id":1,"method":"ping"}`).s2c(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	clear(r.events)
	d := r.detail(t, 2, nil)
	if len(d.Missing) != 3 || !strings.Contains(d.Missing[0].Why, "the file is gone") || d.Request != nil || len(d.Summary.Facts) == 0 {
		t.Errorf("%+v", d)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := detail.Build(ctx, r, detail.TakeSnapshot(r.model.Rows()[1]), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestSnapshotStays shows that later changes of the model do not change a snapshot.
func TestSnapshotStays(t *testing.T) {
	r := snapshotRecord("stdio").start("a").c2s(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"book",` + modernMeta + `}}`).
		s2c(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`)
	row := r.model.Find("c", 2)
	snapshot := detail.TakeSnapshot(row)
	before, err := json.Marshal(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3000 {
		r.s2c(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`)
		r.model.AddFinding("c", 2, trace.Finding{Rule: fmt.Sprint(i)})
	}
	if after, _ := json.Marshal(snapshot); string(before) != string(after) {
		t.Errorf("was  %s\nis   %s", before, after)
	}
	d := r.detail(t, 2, nil)
	if out, err := json.Marshal(d); err != nil || len(out) > 1<<20 || len(d.Findings) != 32 || d.OmittedChildren == 0 {
		t.Errorf("%d bytes, %v, %d findings, %d evicted", len(out), err, len(d.Findings), d.OmittedChildren)
	}
}

// TestAllKinds shows that each kind of row has a detail, without characters that are unsafe to
// show.
func TestAllKinds(t *testing.T) {
	bad := "\x1b[31m\u202e"
	r := snapshotRecord(capture.Transport("stdio" + bad))
	r.head.Name = bad
	for _, e := range []*capture.Event{
		{Kind: capture.KindStart, Start: &capture.Start{Command: []string{bad}, Dir: bad, Env: []string{bad}, PID: 1}},
		{Kind: capture.KindStderr, Data: []byte(bad)}, {Kind: capture.KindInvalid, Dir: capture.ToClient, Data: []byte(bad)}, {Kind: capture.KindNote, Data: []byte(bad)},
		{Kind: capture.KindGap, Gap: &capture.Gap{Why: capture.GapReason(bad)}}, {Kind: capture.KindEOF, Dir: capture.ToClient}, {Kind: capture.KindTranslate, Translation: &capture.Translation{Of: 1, Rule: bad}},
		{Kind: capture.KindMessage, Dir: capture.ToClient, Data: []byte(`{"jsonrpc":"2.0","id":"\u001b` + "\u202e" + `","result":{}}`)},
		{Kind: capture.KindMessage, Dir: capture.ToServer, Data: []byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"\u001b","clientInfo":{"name":"\u202e","version":"\u001b"},"capabilities":{"\u202e":{}}}}`)},
		{Kind: capture.KindRequest, Exchange: 3, Request: &capture.Request{Method: bad, URL: bad, Proto: bad, Remote: bad, Headers: []capture.Header{{Name: bad, Value: bad}}}},
		{Kind: capture.KindBody, Exchange: 3, Dir: capture.ToServer, Data: []byte(bad)}, {Kind: capture.KindEnd, Exchange: 3, Data: []byte(bad)},
		{Kind: capture.KindExit, Exit: &capture.Exit{Code: -1, Signal: bad}},
	} {
		r.add(e)
	}
	for n := range r.n {
		if r.model.Find("c", n+1) == nil {
			continue
		}
		d := r.detail(t, n+1, &detail.Options{Hex: true})
		if len(d.Summary.Sentences) == 0 || d.Title == "" {
			t.Errorf("event %d has no summary", n+1)
		}
		out, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var all any
		if err := json.Unmarshal(out, &all); err != nil {
			t.Fatal(err)
		}
		checkStrings(t, n+1, all)
	}
}

// checkStrings checks that all texts of a detail are safe to show.
func checkStrings(t *testing.T, n uint64, v any) {
	t.Helper()
	switch v := v.(type) {
	case string:
		if printable.Line(v) != v {
			t.Errorf("event %d: a text is not safe to show: %q", n, v)
		}
	case []any:
		for _, e := range v {
			checkStrings(t, n, e)
		}
	case map[string]any:
		for _, e := range v {
			checkStrings(t, n, e)
		}
	}
}

func ExampleBuild() {
	r := snapshotRecord("stdio").
		c2s(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":2}}}`).
		s2c(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"2"}]}}`)
	row := detail.TakeSnapshot(r.model.Rows()[0]) // the model is locked meanwhile
	d, err := detail.Build(context.Background(), r, row, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(d.Summary.Sentences[0])
	for _, l := range d.Request.Lines[:4] {
		fmt.Print(strings.Repeat("  ", l.Depth))
		for _, s := range l.Spans {
			fmt.Print(s.Text)
		}
		fmt.Println()
	}
	// Output:
	// The client called add: 1 content, 74 B, 1.0 ms.
	// {
	//   "jsonrpc": "2.0",
	//   "id": 1,
	//   "method": "tools/call",
}
