package web_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/internal/playback/resend"
	"mcpwire/internal/view/watch"
	"mcpwire/internal/view/web"
)

// TestCallable lists the tools of a capture, validates arguments, and calls one in a new process.
func TestCallable(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f, err := capture.Create(filepath.Join(dir, "a"+capture.Suffix), &capture.Options{Tool: "test", Transport: "stdio", Name: "echo"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	r := &recording{t: t, File: f}
	r.Record(&capture.Event{Kind: capture.KindStart, Session: 1, Start: &capture.Start{Command: []string{exe}, Dir: dir, PID: 1}})
	r.client(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"host","version":"1"}}}`)
	r.server(`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"srv","version":"2"}}}`)
	r.client(`{"jsonrpc":"2.0","id":"list","method":"tools/list"}`)
	r.server(`{"jsonrpc":"2.0","id":"list","result":{"tools":[{"name":"echo","title":"Echo\u202e","annotations":{"readOnlyHint":true},"inputSchema":{"type":"object","properties":{"q":{"type":"string"},"n":{"type":"integer"}},"required":["q"]}},{"name":"odd","inputSchema":{"type":"object","$dynamicRef":"#x"}}]}}`)
	r.call("echo", `{"q":"recorded"}`, "recorded answer")
	opts := &web.Options{Resend: &resend.Options{Dir: filepath.Join(dir, "again"), Env: []string{serverVariable + "=1"}}}
	s := serve(t, &watch.Options{Files: []string{r.done()}}, opts)
	p := s.follow(nil)
	recorded := p.calls("echo", "ok")

	type tool struct {
		Row         uint64
		Name, Title string
		Srv         string
		Hints       []string
	}
	var all struct{ Tools []tool }
	s.get("/api/callable").into(t, &all)
	if len(all.Tools) == 0 {
		t.Fatal("no tools")
	}
	list := all.Tools[0].Row
	want := []tool{{Row: list, Name: "echo", Title: `Echo\u202e`, Srv: "echo", Hints: []string{"read-only"}}, {Row: list, Name: "odd", Srv: "echo"}}
	if diff := cmp.Diff(want, all.Tools); diff != "" {
		t.Errorf("the tools (-want +got):\n%s", diff)
	}
	var one struct {
		Row      uint64
		Name     string
		Schema   struct{ Required []string }
		Target   string
		Recorded []struct{ Q uint64 }
	}
	for _, path := range []string{fmt.Sprintf("/api/callable/%d?name=echo", list), fmt.Sprint("/api/callable/", recorded.Q)} {
		s.get(path).into(t, &one)
		if one.Row != list || one.Name != "echo" || len(one.Schema.Required) != 1 || !strings.HasPrefix(one.Target, exe) || len(one.Recorded) != 1 || one.Recorded[0].Q != recorded.Q {
			t.Errorf("%s: %+v", path, one)
		}
	}
	for _, tt := range []struct {
		name, arguments, want string
	}{
		{"echo", `{"q":"x"}`, `{"problems":[]}`},
		{"echo", `{"n":"x"}`, `{"problems":[{"at":"/n","message":"expected integer, got string \"x\""},{"at":"","message":"missing required property \"q\""}]}`},
		{"echo", `{`, `{"problems":[{"at":"","message":"invalid JSON at byte 1: unexpected end of text, want a member name in quotes"}]}`},
		{"odd", `{}`, `"note":"the input schema cannot be checked here: `},
	} {
		got := s.post("/api/validate", fmt.Sprintf(`{"row":%d,"name":%s,"arguments":%s}`, list, quote(tt.name), quote(tt.arguments)))
		if got.status != http.StatusOK || !strings.Contains(got.body, tt.want) {
			t.Errorf("%s %s: status %d: %s, want %s", tt.name, tt.arguments, got.status, got.body, tt.want)
		}
	}
	call := func(row uint64, name, arguments, target string) result {
		return s.post("/api/call", fmt.Sprintf(`{"row":%d,"name":%s,"arguments":%s,"target":%s}`, row, quote(name), quote(arguments), quote(target)))
	}
	for _, tt := range []struct {
		got    result
		status int
	}{
		{call(list, "echo", `{}`, "rm -rf /"), http.StatusConflict},
		{call(list, "none", `{}`, one.Target), http.StatusNotFound},
		{call(recorded.Q, "echo", `{}`, one.Target), http.StatusNotFound},
		{call(list, "echo", `{`, one.Target), http.StatusUnprocessableEntity},
		{s.get(fmt.Sprintf("/api/callable/%d?name=none", list)), http.StatusNotFound},
	} {
		if tt.got.status != tt.status {
			t.Errorf("status %d, want %d: %s", tt.got.status, tt.status, tt.got.body)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "again")); err == nil {
		t.Error("something was sent")
	}
	var sent struct {
		Row      uint64
		Response string
	}
	call(list, "echo", `{"q": 12345678901234567890}`, one.Target).into(t, &sent)
	if !strings.Contains(sent.Response, `{\"q\": 12345678901234567890}`) {
		t.Errorf("the response is %s", sent.Response)
	}
	if got := s.get(fmt.Sprint("/api/row/", sent.Row)); got.status != http.StatusOK || !strings.Contains(got.body, `"returned":{`) {
		t.Errorf("row %d: status %d: %s", sent.Row, got.status, got.body)
	}
}
