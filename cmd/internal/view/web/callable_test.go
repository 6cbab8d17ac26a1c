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
	"mcpwire/cmd/internal/playback/resend"
	"mcpwire/cmd/internal/view/watch"
	"mcpwire/cmd/internal/view/web"
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
		{"odd", `{}`, `"note":"Only the server checks the arguments. The tool's schema cannot be checked here: it uses $dynamicRef`},
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

// TestValidateDialects shows that arguments are checked by schemas of every dialect, and what the form
// says about a schema that cannot be used.
func TestValidateDialects(t *testing.T) {
	properties := `"type":"object","properties":{"base":{"type":"integer"},"math":{"$ref":"#/definitions/op"}},"required":["base"],"definitions":{"op":{"enum":["add","sub"]}}}`
	const bad, unchecked = `{"problems":[{"at":"/base","message":`, `"note":"Only the server checks the arguments. The tool's schema cannot be checked here: `
	var defs []string
	type test struct{ name, schema, arguments, want string }
	var tests []test
	for _, dialect := range []string{
		"http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-06/schema#", "http://json-schema.org/draft-07/schema#", "http://json-schema.org/draft-07/schema",
		"https://json-schema.org/draft/2019-09/schema", "https://json-schema.org/draft/2020-12/schema",
	} {
		schema := `{"$schema":` + quote(dialect) + `,` + properties
		tests = append(tests, test{dialect, schema, `{"base":1,"math":"add"}`, `{"problems":[]}`}, test{dialect, schema, `{"base":"x"}`, bad}, test{dialect, schema, `{"base":1,"math":"mul"}`, `"at":"/math"`})
	}
	recursive := `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":{"$ref":"#"}}}`
	tests = append(tests,
		test{"recursive draft-07", recursive, `{}`, unchecked + `it is too large, or refers to itself"`},
		test{"recursive", strings.Replace(recursive, `"$schema":"http://json-schema.org/draft-07/schema#",`, "", 1), `{"a":{"a":1}}`, `"at":"/a/a"`},
		test{"unknown dialect", `{"$schema":"https://example.com/mine","type":"object"}`, `{}`, unchecked},
		test{"remote", `{"type":"object","properties":{"a":{"$ref":"https://example.com/s"}}}`, `{}`, unchecked + `the reference \"https://example.com/s\" does not lead into it"`},
		test{"unevaluated", `{"type":"object","properties":{"a":{}},"unevaluatedProperties":false}`, `{"b":1}`, `{"problems":[{`},
		test{"long arguments", `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}`, `{"a":"` + strings.Repeat("x", 65<<10) + `"}`, `"note":"Not all is checked here: the value has more than`})
	for i, tt := range tests {
		defs = append(defs, fmt.Sprintf(`{"name":"t%d","inputSchema":%s}`, i, tt.schema))
	}
	r := record(t, t.TempDir(), "s", nil)
	r.client(`{"jsonrpc":"2.0","id":"list","method":"tools/list"}`)
	r.server(`{"jsonrpc":"2.0","id":"list","result":{"tools":[` + strings.Join(defs, ",") + `]}}`)
	r.call("last", `{}`, "")
	s := serve(t, &watch.Options{Files: []string{r.done()}}, nil)
	s.follow(nil).calls("last", "ok")
	var all struct{ Tools []struct{ Row uint64 } }
	s.get("/api/callable").into(t, &all)
	for i, tt := range tests {
		got := s.post("/api/validate", fmt.Sprintf(`{"row":%d,"name":"t%d","arguments":%s}`, all.Tools[0].Row, i, quote(tt.arguments)))
		if !strings.Contains(got.body, tt.want) || strings.Contains(got.body, "fullschema") {
			t.Errorf("%s %.60s: %s, want %s", tt.name, tt.arguments, got.body, tt.want)
		}
	}
}
