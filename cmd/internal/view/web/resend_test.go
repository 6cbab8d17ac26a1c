package web_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mcpwire/capture"
	"mcpwire/cmd/internal/playback/resend"
	"mcpwire/cmd/internal/view/watch"
	"mcpwire/cmd/internal/view/web"
)

// serverVariable makes the test binary a server on stdio.
const serverVariable = "MCPWIRE_TEST_UI_SERVER"

// copyOfServer answers each request with the request.
func copyOfServer() int {
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return 0
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Arguments json.RawMessage }
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil || m.ID == nil {
			continue
		}
		result := `{"content":[{"type":"text","text":` + quote("copy got "+string(m.Params.Arguments)) + `}]}`
		if m.Method == "initialize" {
			result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"copy","version":"1"}}`
		}
		os.Stdout.WriteString(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + result + "}\n")
	}
}

func TestResend(t *testing.T) {
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
	r.call("echo", `{"q":"recorded"}`, "recorded answer")
	again := filepath.Join(dir, "again")
	opts := &web.Options{Resend: &resend.Options{Dir: again, Env: []string{serverVariable + "=1"}}}
	s := serve(t, &watch.Options{Files: []string{r.done()}}, opts)
	p := s.follow(nil)
	orig := p.calls("echo", "ok")

	var able struct{ Target, Message, Note string }
	s.get(fmt.Sprint("/api/resend/", orig.Q)).into(t, &able)
	if !strings.HasPrefix(able.Target, exe) || !strings.Contains(able.Target, dir) || !strings.Contains(able.Message, "recorded") {
		t.Errorf("what would be sent is %+v", able)
	}
	for _, target := range []string{"", "rm -rf /"} {
		got := s.post("/api/resend", fmt.Sprintf(`{"row":%d,"target":%s}`, orig.Q, quote(target)))
		if got.status != http.StatusConflict || !strings.Contains(got.body, quote(able.Target)) {
			t.Errorf("with target %q: status %d: %s", target, got.status, got.body)
		}
	}
	if _, err := os.Stat(again); err == nil {
		t.Error("something was sent")
	}
	var sent struct {
		Capture  string
		N, RN    uint64
		Response string
		Note     string
	}
	edited := strings.Replace(able.Message, "recorded", "edited", 1)
	s.post("/api/resend", fmt.Sprintf(`{"row":%d,"target":%s,"message":%s}`, orig.Q, quote(able.Target), quote(edited))).into(t, &sent)
	if sent.Capture == "" || sent.Capture == orig.Capture || sent.N == 0 || sent.RN == 0 || sent.Note != "" || !strings.Contains(sent.Response, "edited") {
		t.Errorf("the answer is %+v", sent)
	}
	p.until("the new row", func() bool {
		for _, r := range p.rows {
			if r.Capture == sent.Capture && r.N == sent.N && r.Status == "ok" {
				return true
			}
		}
		return false
	})
	init := row{}
	for _, r := range p.rows {
		if r.Kind == "start" {
			init = r
		}
	}
	if got := s.get(fmt.Sprint("/api/resend/", init.Q)); got.status != http.StatusUnprocessableEntity {
		t.Errorf("a start: status %d: %s", got.status, got.body)
	}
}
