package importer_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/cmd/internal/trace/importer"
	"mcpwire/cmd/internal/view/export"
	"mcpwire/mcp"
)

// lines returns the lines of an imported capture.
func lines(t *testing.T, file []byte) (list []string) {
	t.Helper()
	for e, err := range capture.NewReader(bytes.NewReader(file), nil).Events() {
		if err != nil {
			t.Fatal(err)
		}
		text := string(e.Kind)
		if e.Dir != "" {
			text += " " + string(e.Dir)
		}
		if e.Session != 0 {
			text += fmt.Sprint(" s", e.Session)
		}
		if e.Exchange != 0 {
			text += fmt.Sprint(" x", e.Exchange)
		}
		switch {
		case e.Kind == capture.KindTail:
			continue
		case e.Head != nil:
			text += fmt.Sprintf(" %s %s %s", e.Head.Name, e.Head.Transport, e.Head.At.UTC().Format(time.RFC3339Nano))
		case e.Start != nil:
			text += " " + strings.Join(e.Start.Command, " ") + " in " + e.Start.Dir
		case e.Request != nil:
			text += " " + e.Request.Method + " " + e.Request.URL + " " + e.Request.Proto
		case e.Response != nil:
			text += fmt.Sprint(" ", e.Response.Status)
		case e.SSE != nil:
			text += " id=" + e.SSE.ID + " " + string(e.Data)
		default:
			text += " " + string(e.Data)
		}
		list = append(list, fmt.Sprintf("%v %s", e.T, text))
	}
	return list
}

func TestRun(t *testing.T) {
	for _, tt := range []struct {
		name   string
		source string
		format importer.Format
		want   []string
	}{
		{"mcpsnoop", `{"session_id":"a","server_label":"files","seq":1,"ts":"2026-11-20T12:00:00Z","direction":"meta","transport":"stdio","raw":{"command":["node","s.js"],"cwd":"/p"}}
{"session_id":"a","server_label":"files","seq":2,"ts":"2026-11-20T12:00:01Z","direction":"c2s","transport":"stdio","raw":{"jsonrpc":"2.0","id":1,"method":"ping"}}
{"session_id":"b","server_label":"files","seq":3,"ts":"2026-11-20T12:00:00.5Z","direction":"s2c","transport":"stdio","text":"hello"}
{"session_id":"a","server_label":"files","seq":4,"ts":"2026-11-20T12:00:02Z","direction":"stderr","transport":"stdio","text":"oops"}
`, importer.MCPSnoop, []string{
			"0s head files stdio 2026-11-20T12:00:00Z", "0s start s1 node s.js in /p", `1s msg c2s s1 {"jsonrpc":"2.0","id":1,"method":"ping"}`, "1s invalid s2c s2 hello", "2s err s1 oops",
		}},
		{"Claude Desktop", `2025-07-12T05:51:44.500Z [chatlog] [info] Initializing server... { metadata: undefined }
2025-07-12T05:51:44.601Z [chatlog] [info] Message from client: {"method":"initialize","params":{"a":"} { metadata"},"jsonrpc":"2.0","id":0} { metadata: undefined }
Traceback (most recent call last):
2025-07-12T05:51:45.601Z [chatlog] [info] Message from server: {"jsonrpc":"2.0","id":0,"result":{}}
2025-07-12T05:51:46.601Z [chatlog] [info] Message from server: {"jsonrpc":"2.0","id":0,"resu...
`, importer.ClaudeDesktop, []string{
			"0s head chatlog stdio 2025-07-12T05:51:44.5Z", "0s note Initializing server... { metadata: undefined }",
			`101ms msg c2s {"method":"initialize","params":{"a":"} { metadata"},"jsonrpc":"2.0","id":0}`, "101ms err Traceback (most recent call last):",
			`1.101s msg s2c {"jsonrpc":"2.0","id":0,"result":{}}`, `2.101s invalid s2c {"jsonrpc":"2.0","id":0,"resu...`,
		}},
		{"VS Code", `2026-07-24 02:03:14.031 [info] Starting server tasks
2026-07-24 02:03:14.089 [debug] [editor -> server] {"jsonrpc":"2.0","id":1,"method":"initialize"}
2026-07-24 02:03:14.151 [debug] [server -> editor] {"jsonrpc":"2.0","id":1,"result":{}}
2026-07-24 02:03:14.200 [warning] [server stderr] careful
`, importer.VSCode, []string{
			"0s head tasks  2026-07-24T02:03:14.031Z", "0s note Starting server tasks", `58ms msg c2s {"jsonrpc":"2.0","id":1,"method":"initialize"}`,
			`120ms msg s2c {"jsonrpc":"2.0","id":1,"result":{}}`, "169ms err careful",
		}},
		{"Claude Code", `{"debug":"Starting connection with timeout of 30000ms","timestamp":"2026-03-02T18:44:16.136Z","sessionId":"x","cwd":"/p"}
{"error":"Server stderr: booting","timestamp":"2026-03-02T18:44:16.402Z","sessionId":"x","cwd":"/p"}
`, importer.ClaudeCode, []string{
			"0s head  stdio 2026-03-02T18:44:16.136Z", "0s note s1 Starting connection with timeout of 30000ms", "266ms err s1 booting",
		}},
		{"HAR", `{"log":{"version":"1.2","creator":{"name":"x","version":"1"},"pages":[{"id":1}],"entries":[
{"startedDateTime":"2026-11-20T12:00:00Z","time":5,"request":{"method":"GET","url":"https://a.example/x.js","headers":[]},"response":{"status":200,"content":{"text":"let x"}}},
{"startedDateTime":"2026-11-20T12:00:01Z","time":50,"timings":{"wait":10,"receive":40},"request":{"method":"POST","url":"https://a.example/mcp?x=1","httpVersion":"h2","headers":[{"name":":authority","value":"a"}],
 "postData":{"mimeType":"application/json","text":"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}"}},
 "response":{"status":200,"httpVersion":"h2","headers":[],"content":{"mimeType":"text/event-stream","text":"id: 7\ndata:\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n"}}}
]}}`, importer.HAR, []string{
			"0s head a.example http 2026-11-20T12:00:01Z", "0s req c2s x1 POST /mcp?x=1 HTTP/2.0", `0s msg c2s x1 {"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "10ms res s2c x1 200",
			"50ms sse s2c x1 id=7 ", `50ms msg s2c x1 id= {"jsonrpc":"2.0","id":1,"result":{}}`, "50ms end x1 ",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			result, err := importer.Run(&out, strings.NewReader(tt.source), nil)
			if err != nil {
				t.Fatal(err)
			}
			if result.Format != tt.format {
				t.Errorf("the format is %q, want %q", result.Format, tt.format)
			}
			if diff := cmp.Diff(tt.want, lines(t, out.Bytes())); diff != "" {
				t.Errorf("capture (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDropped shows that lines before the first one with a timestamp are counted.
func TestDropped(t *testing.T) {
	for _, tt := range []struct {
		name, source string
		format       importer.Format
		want         uint64
	}{
		{"Claude Desktop", "npm notice\n\nTraceback\n2025-07-12T05:51:44.500Z [a] [info] x\nTraceback\n", importer.ClaudeDesktop, 2},
		{"VS Code", "cut off\n2026-07-24 02:03:14.089 [debug] [editor -> server] {}\n", importer.VSCode, 1},
		{"Claude Code", "{\n{}\n{\"debug\":\"x\",\"timestamp\":\"2026-07-24T02:03:14Z\"}\n{}\n", importer.ClaudeCode, 2},
		{"none", "2025-07-12T05:51:44.500Z [a] [info] x\nTraceback\n", importer.ClaudeDesktop, 0},
	} {
		result, err := importer.Run(io.Discard, strings.NewReader(tt.source), &importer.Options{Format: tt.format})
		if err != nil || result.Dropped != tt.want {
			t.Errorf("%s: %d lines dropped, error %v; want %d", tt.name, result.Dropped, err, tt.want)
		}
	}
}

func TestUnknown(t *testing.T) {
	for _, source := range []string{"", "hello\n", `{"log":{"entries":[]}}`, `{"log":{"entries":[{"startedDateTime":7}]}}`, `{"log":[]}`, "[]", "\x00\x01"} {
		var out bytes.Buffer
		if _, err := importer.Run(&out, strings.NewReader(source), nil); !errors.Is(err, importer.ErrUnknown) {
			t.Errorf("%q: got %v, want %v", source, err, importer.ErrUnknown)
		}
		if out.Len() > 0 {
			t.Errorf("%q led to %q", source, out.String())
		}
	}
}

// TestRedacts checks that the importer redacts the secrets of a log.
func TestRedacts(t *testing.T) {
	const source = `2026-07-24 02:03:14.089 [debug] [editor -> server] {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"password":"hunter2hunter2"}}}` + "\n"
	for _, open := range []bool{false, true} {
		var out bytes.Buffer
		if _, err := importer.Run(&out, strings.NewReader(source), &importer.Options{Redact: &capture.Redaction{Off: open}}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out.String(), "hunter2"); got != open {
			t.Errorf("unredacted %v: the capture has the secret: %v", open, got)
		}
	}
}

// TestImporterFormats shows that an archive that is exported and imported again has the same
// content.
func TestImporterFormats(t *testing.T) {
	x := check.Example{Revision: mcp.LatestRevision, Text: `http
post {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x","_meta":{$meta}}}
stream
sse(id=7,retry=30)
sse(comment=here)
<(id=8) {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","content":[]}}
end
`}
	head, list, err := x.Events()
	if err != nil {
		t.Fatal(err)
	}
	head.At = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var want []string
	var har, file, before bytes.Buffer
	enc := capture.NewEncoder(&before, &capture.Redaction{Off: true})
	head.Version = capture.Version
	enc.Encode(&capture.Event{Kind: capture.KindHead, Head: head})
	for _, e := range list {
		enc.Encode(e)
	}
	enc.Flush()
	if _, err := export.HAR(&har, capture.NewReader(bytes.NewReader(before.Bytes()), nil).Events(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := importer.Run(&file, &har, &importer.Options{Redact: &capture.Redaction{Off: true}}); err != nil {
		t.Fatal(err)
	}
	strip := func(list []string) (out []string) {
		for _, l := range list[1:] { // without the head, and times
			_, l, _ = strings.Cut(l, " ")
			out = append(out, l)
		}
		return out
	}
	want = strip(lines(t, before.Bytes()))
	if diff := cmp.Diff(want, strip(lines(t, file.Bytes()))); diff != "" {
		t.Errorf("capture (-before +after):\n%s", diff)
	}
}

func FuzzRun(f *testing.F) {
	for _, s := range []string{
		`{"session_id":"a","seq":1,"ts":"2026-11-20T12:00:00Z","direction":"c2s","raw":{}}`, `2025-07-12T05:51:44.500Z [c] [info] Message from client: {`,
		`2026-07-24 02:03:14.031 [info] Starting server tasks`, `{"debug":"x","timestamp":"2026-03-02T18:44:16.136Z"}`,
		`{"log":{"entries":[{"startedDateTime":"2026-11-20T12:00:01Z","request":{"postData":{"text":"\"jsonrpc\""}},"response":{"status":200,"content":{"mimeType":"text/event-stream","text":"\"jsonrpc\""}}}]}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, source []byte) {
		var out bytes.Buffer
		if _, err := importer.Run(&out, bytes.NewReader(source), nil); err != nil {
			return
		}
		for e, err := range capture.NewReader(&out, nil).Events() {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == capture.KindGap && e.Gap.Why == capture.GapMalformed {
				t.Fatal("a line of the capture is invalid")
			}
		}
	})
}

// TestHARFacts checks what an archive contains about the server and the session.
func TestHARFacts(t *testing.T) {
	const archive = "\ufeff" + `{"log":{"entries":[
{"startedDateTime":"2026-11-20T12:00:00Z","request":{"method":"POST","url":"https://a.example/mcp?x=1","headers":null,"postData":{"text":"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}"}},"response":{"status":200},"_mcp":{"server":"files","session":4}},
{"startedDateTime":"2026-11-20T12:00:01Z","request":{"method":"GET","url":"https://b.example/mcp","headers":[{"name":"Mcp-Session-Id","value":"s"}]},"response":{"status":405}}]}}`
	var out bytes.Buffer
	if _, err := importer.Run(&out, strings.NewReader(archive), &importer.Options{Redact: &capture.Redaction{Off: true}}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"0s head files http 2026-11-20T12:00:00Z", "0s req c2s s4 x1 POST /mcp?x=1 HTTP/1.1", `0s msg c2s s4 x1 {"jsonrpc":"2.0","id":1,"method":"ping"}`, "0s res s2c s4 x1 200", "0s end s4 x1 ",
		"1s req c2s x2 GET https://b.example/mcp HTTP/1.1", "1s res s2c x2 405", "1s end x2 ",
	}
	if diff := cmp.Diff(want, lines(t, out.Bytes())); diff != "" {
		t.Errorf("the capture (-want +got):\n%s", diff)
	}
	if want := `"url":"https://a.example/mcp?x=1"`; !strings.Contains(out.String(), want) {
		t.Errorf("the head has no %s", want)
	}
}

// TestHARBomb imports an archive that is small on disk and large in memory.
func TestHARBomb(t *testing.T) {
	const entry = `{"request":{"url":"http://x/","headers":[{"name":"mcp-x"}]},"response":{"status":200,"_sse":[%s]}}`
	bomb := fmt.Sprintf(`{"log":{"entries":[`+entry+`]}}`, strings.TrimSuffix(strings.Repeat("{},", 200_000), ","))
	var out bytes.Buffer
	result, err := importer.Run(&out, strings.NewReader(bomb), &importer.Options{Format: importer.HAR})
	if err != nil || result.Events > 100_000 {
		t.Errorf("%d events, %v", result.Events, err)
	}
}
