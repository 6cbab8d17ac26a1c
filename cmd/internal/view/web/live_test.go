package web_test

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace/live"
	"mcpwire/cmd/internal/view/watch"
	"mcpwire/internal/base/hooks"
)

// TestTapWithoutFile shows that everything works for a tap that runs without a file, as far as the
// hub has seen it.
func TestTapWithoutFile(t *testing.T) {
	restarted := make(chan bool, 1)
	socket := live.NewServer(&live.Options{Restart: func() { restarted <- true }})
	w := capture.NewWriter(io.Discard, &capture.Options{Tool: "test", Transport: "stdio", Name: "live", Hooks: &hooks.Writer[capture.Event]{Tee: socket}})
	dir := filepath.Join(t.TempDir(), "l")
	if err := socket.Start(dir, live.Greeting{Capture: w.ID(), Name: "live", Transport: "stdio"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close(); socket.Close() })
	r := &recording{t: t, File: &capture.File{Writer: w}}
	r.begin()
	n, rn := r.call("search", `{"q":"x"}`, "found")
	s := serve(t, &watch.Options{SocketDir: dir}, nil)
	p := s.follow(nil)
	got := p.calls("search", "ok")
	p.until("the tap", func() bool {
		return len(p.source) == 1 && p.source[0]["state"] == "live" && p.source[0]["restart"] == true
	})
	if got.N != n || got.RN != rn || got.Capture != w.ID() {
		t.Errorf("the row is %+v", got)
	}
	if got := s.get(fmt.Sprint("/api/payload/", w.ID(), "/", rn)); got.status != http.StatusOK || !strings.Contains(got.body, "found") {
		t.Errorf("the payload: status %d: %s", got.status, got.body)
	}
	if got := s.post("/api/restart/"+w.ID(), ""); got.status != http.StatusOK {
		t.Errorf("restart: status %d: %s", got.status, got.body)
	}
	<-restarted
	_, x := exportPage(t, s, "?filter=tool:search")
	if len(x.Rows) != 1 || x.Rows[0].Target != "search" || x.Rows[0].Rev != "2025-06-18" || !strings.Contains(string(x.Details[fmt.Sprint(x.Rows[0].Q)]), "found") {
		t.Errorf("exported: %+v", x)
	}
	heads, messages := readCapture(t, []byte(s.get("/api/save").body))
	if heads != 1 || len(messages) != 5 {
		t.Errorf("saved: %d heads, messages %q", heads, messages)
	}
	var able struct{ Target, Message string }
	s.get(fmt.Sprint("/api/resend/", got.Q)).into(t, &able)
	if able.Target != "node server.js" || !strings.Contains(able.Message, `"search"`) {
		t.Errorf("what would be sent is %+v", able)
	}
}
