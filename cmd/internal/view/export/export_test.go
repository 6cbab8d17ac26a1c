package export_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/cmd/internal/view/export"
	"mcpwire/mcp"
)

// eventsOf returns a short session as a capture.
func eventsOf(t *testing.T, text string) export.Events {
	t.Helper()
	head, list, err := check.Example{Revision: mcp.LatestRevision, Text: text}.Events()
	if err != nil {
		t.Fatal(err)
	}
	head.At = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	return func(yield func(*capture.Event, error) bool) {
		if !yield(&capture.Event{Kind: capture.KindHead, Head: head, Capture: head.ID, At: head.At}, nil) {
			return
		}
		for _, e := range list {
			e.Capture, e.At = head.ID, head.At.Add(e.T)
			if !yield(e, nil) {
				return
			}
		}
	}
}

const stdioSession = `> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search","arguments":{"q":"x"},"_meta":{$meta,"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","progressToken":7}}}
< {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1,"message":"half"}}
wait 2s
< {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[{"type":"text","text":"found"}]}}
! warming up
< q"stray \x1b[31moutput"
> {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"nope","_meta":{$meta}}}
< {"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"no such tool"}}
exit 7
`

const webSession = `http
post {"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{$meta}}}
reply 200 {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[]}}
post {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x","_meta":{$meta}}}
stream
sse(id=7,retry=30)
< {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","content":[]}}
end client went away
`

func TestText(t *testing.T) {
	var out bytes.Buffer
	if _, err := export.Text(&out, eventsOf(t, stdioSession), nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`→ msg  {"jsonrpc":"2.0","id":1,"method":"tools/call"`, `~ err  warming up`, `stray \x1b[31moutput`, "exit code 7"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("there is an escape character in it")
	}
}

func TestHAR(t *testing.T) {
	var out bytes.Buffer
	left, err := export.HAR(&out, eventsOf(t, webSession), &export.Options{Tool: "test", Version: "1"})
	if err != nil {
		t.Fatal(err)
	}
	var har struct {
		Log struct {
			Version string
			Entries []struct {
				Comment string
				Request struct {
					Method, URL string
					PostData    struct{ Text, MimeType string }
				}
				Response struct {
					Status  int
					Content struct{ Text, MimeType string }
					SSE     []map[string]any `json:"_sse"`
				}
			}
		}
	}
	if err := json.Unmarshal(out.Bytes(), &har); err != nil {
		t.Fatalf("%v in\n%s", err, out.String())
	}
	if len(har.Log.Entries) != 2 || har.Log.Version != "1.2" || left.Events != 0 {
		t.Fatalf("%d entries, left %+v:\n%s", len(har.Log.Entries), left, out.String())
	}
	a, b := har.Log.Entries[0], har.Log.Entries[1]
	if a.Request.Method != "POST" || !strings.HasSuffix(a.Request.URL, "/mcp") || !strings.HasPrefix(a.Request.URL, "http://") || !strings.Contains(a.Request.PostData.Text, "tools/list") {
		t.Errorf("the request is %+v", a.Request)
	}
	if a.Response.Status != 200 || !strings.Contains(a.Response.Content.Text, `"tools":[]`) {
		t.Errorf("the response is %+v", a.Response)
	}
	if want := "id: 7\nretry: 30\n"; !strings.HasPrefix(b.Response.Content.Text, want) || b.Comment != "client went away" {
		t.Errorf("the stream is %q, and ended with %q", b.Response.Content.Text, b.Comment)
	}
	if len(b.Response.SSE) != 2 || b.Response.SSE[0]["id"] != "7" || b.Response.SSE[0]["retry"] != 30.0 {
		t.Errorf("its events are %v", b.Response.SSE)
	}
}

// TestHARTarget shows that a request has the origin of its server, whatever its target contains.
func TestHARTarget(t *testing.T) {
	for _, tt := range []struct{ server, target, want string }{
		{"http://a.example/mcp", "/mcp?next=http://b.example/", "http://a.example/mcp?next=http://b.example/"},
		{"http://a.example/mcp", "//b.example/x", "http://a.example/x"},
		{"", "http://b.example/x", "http://b.example/x"},
		{"", "/mcp?next=http://b.example/", "http://localhost/mcp?next=http://b.example/"},
	} {
		head := &capture.Head{Version: capture.Version, ID: "c", Transport: capture.TransportHTTP, URL: tt.server}
		events := func(yield func(*capture.Event, error) bool) {
			for _, e := range []*capture.Event{
				{Kind: capture.KindHead, Head: head},
				{N: 1, Kind: capture.KindRequest, Dir: capture.ToServer, Exchange: 1, Request: &capture.Request{Method: "GET", URL: tt.target}},
				{N: 2, Kind: capture.KindEnd, Exchange: 1},
			} {
				if e.Capture = "c"; !yield(e, nil) {
					return
				}
			}
		}
		var out bytes.Buffer
		var har struct {
			Log struct {
				Entries []struct{ Request struct{ URL string } }
			}
		}
		if _, err := export.HAR(&out, events, &export.Options{}); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out.Bytes(), &har); err != nil || len(har.Log.Entries) != 1 || har.Log.Entries[0].Request.URL != tt.want {
			t.Errorf("%s to %q: %v, %+v, want %s", tt.target, tt.server, err, har.Log, tt.want)
		}
	}
}

func TestHARWithoutHTTP(t *testing.T) {
	if _, err := export.HAR(&bytes.Buffer{}, eventsOf(t, stdioSession), nil); !errors.Is(err, export.ErrNoHTTP) {
		t.Errorf("got %v, want %v", err, export.ErrNoHTTP)
	}
}

func TestOTLP(t *testing.T) {
	var out bytes.Buffer
	if _, err := export.OTLP(&out, eventsOf(t, stdioSession), nil); err != nil {
		t.Fatal(err)
	}
	type attr struct {
		Key   string
		Value struct{ StringValue string }
	}
	var got struct {
		ResourceSpans []struct {
			ScopeSpans []struct {
				Spans []struct {
					TraceID, SpanID, ParentSpanID, Name, StartTimeUnixNano, EndTimeUnixNano string
					Kind                                                                    int
					Attributes                                                              []attr
					Events                                                                  []struct{ Name string }
					Status                                                                  struct {
						Code    int
						Message string
					}
				}
			}
		}
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatalf("%v in\n%s", err, out.String())
	}
	spans := got.ResourceSpans[0].ScopeSpans[0].Spans
	if len(spans) != 2 {
		t.Fatalf("%d spans in\n%s", len(spans), out.String())
	}
	a, b := spans[0], spans[1]
	if a.Name != "tools/call search" || a.TraceID != "0af7651916cd43dd8448eb211c80319c" || a.ParentSpanID != "b7ad6b7169203331" || len(a.SpanID) != 16 || len(a.Events) != 1 || a.Status.Code != 0 {
		t.Errorf("the first is %+v", a)
	}
	if b.Status.Code != 2 || b.Status.Message != "no such tool" || b.ParentSpanID != "" || len(b.TraceID) != 32 {
		t.Errorf("the second is %+v", b)
	}
	attrs := map[string]string{}
	for _, x := range b.Attributes {
		attrs[x.Key] = x.Value.StringValue
	}
	for key, want := range map[string]string{"mcp.method.name": "tools/call", "gen_ai.tool.name": "nope", "rpc.response.status_code": "-32602", "error.type": "-32602", "network.transport": "pipe"} {
		if attrs[key] != want {
			t.Errorf("%s is %q, want %q", key, attrs[key], want)
		}
	}
}

// TestPCAPNG lets tshark read what was written.
func TestPCAPNG(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	for _, tt := range []struct {
		name, text string
		want       []string // numbers and comments
	}{
		{"stdio", stdioSession, []string{
			"1|event #1: → request 1 tools/call", "2|event #2: ← notification notifications/progress", "3|event #3: ← response 1 tools/call, answers #1 after 2.002s", "4|event #4: stderr",
			"5|event #5: ← not a message", "6|event #6: → request 2 tools/call", "7|event #7: ← error 2 tools/call, answers #6 after 1ms",
		}},
		{"http", webSession, []string{
			"1|event #1: → POST /mcp, HTTP exchange 1", "2|event #2: → request 1 tools/list, HTTP exchange 1", "3|event #3: ← HTTP 200, HTTP exchange 1",
			"4|event #4: ← response 1 tools/list, HTTP exchange 1, answers #2 after 2ms",
			"5|event #6: → POST /mcp, HTTP exchange 2", "6|event #7: → request 2 tools/call, HTTP exchange 2", "7|event #8: ← HTTP 200, HTTP exchange 2", "8|event #9: ← stream event, HTTP exchange 2",
			"9|event #10: ← response 2 tools/call, HTTP exchange 2, answers #7 after 3ms",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "x.pcapng")
			var out bytes.Buffer
			if _, err := export.PCAPNG(&out, eventsOf(t, tt.text), &export.Options{Tool: "test", Version: "1"}); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			list := run(t, tshark, "-r", file, "-T", "fields", "-E", "separator=|", "-e", "frame.number", "-e", "frame.comment")
			if diff := cmp.Diff(tt.want, strings.Split(strings.TrimSpace(list), "\n")); diff != "" {
				t.Errorf("packets (-want +got):\n%s", diff)
			}
			tree := run(t, tshark, "-r", file, "-V")
			for _, want := range []string{"JavaScript Object Notation", "Key: method", "Line-based text data"} {
				if !strings.Contains(tree, want) {
					t.Errorf("the details have no %q", want)
				}
			}
			if strings.Contains(tree, "Malformed") {
				t.Error("tshark says that something is malformed")
			}
		})
	}
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "LC_ALL=C.UTF-8")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	return string(out)
}
