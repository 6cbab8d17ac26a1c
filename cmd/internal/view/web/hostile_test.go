package web_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"mcpwire/capture"
	"mcpwire/cmd/internal/view/watch"
	"mcpwire/internal/test/race"
)

// nasty is what a page must not make anything of but text.
var nasty = []string{
	`</script><script>alert(1)</script>`, `<!--<script>`, `<img src=x onerror=alert(1)>`, "\x1b[31mred\x1b]0;title\x07", "\u202eright to left\u2066", "zero\u200bwidth\u2028line\u2029",
	"a\r\n\r\nevent: hello\ndata: {\"reset\":true}\n\n", "\x00\xff\xfe", `"; Content-Type: text/html`, `javascript:alert(1)`,
}

// TestHostile checks that all data of a capture is served as JSON strings and bytes, and that none
// makes the server hang.
func TestHostile(t *testing.T) {
	r := record(t, t.TempDir(), "hostile", nil)
	for _, text := range nasty {
		r.call(text, `{"q":`+quote(text)+`}`, text)
		r.client(`{"jsonrpc":"2.0","method":` + quote(text) + `}`)
		r.server(text)
		r.Record(&capture.Event{Kind: capture.KindStderr, Session: 1, Data: []byte(text)})
	}
	r.server(strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000))
	deepID, _ := r.ask("deep", `{"a":`+strings.Repeat(`{"a":`, 5_000)+"1"+strings.Repeat("}", 5_000)+"}")
	r.reply(deepID, "x")
	hugeBytes := race.Choose(5_000_000, 50_000_000)
	r.call("huge", `{}`, strings.Repeat("0123456789", hugeBytes/10))
	r.call("last", `{}`, "x")
	s := serve(t, &watch.Options{Files: []string{r.done()}}, nil)
	p := s.follow(nil)
	p.calls("last", "ok")
	p.until("the end", func() bool { return p.synced && len(p.source) > 0 && p.source[0]["state"] == "complete" })
	if p.resets != 1 {
		t.Errorf("%d resets: a text has become an event", p.resets)
	}
	var huge row
	for _, row := range p.rows {
		if row.Target == "huge" {
			huge = row
		}
		got := s.get(fmt.Sprint("/api/row/", row.Q))
		if got.status != http.StatusOK || got.header.Get("Content-Type") != "application/json; charset=utf-8" || got.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Fatalf("row %d: status %d, %v", row.Q, got.status, got.header)
		}
		isJSON(t, got.body)
		if len(got.body) > 8<<20 {
			t.Errorf("row %d has a detail of %d bytes", row.Q, len(got.body))
		}
		if row.RN > 0 {
			for _, n := range []uint64{row.N, row.RN} {
				checkAttachment(t, s.get(fmt.Sprint("/api/payload/", row.Capture, "/", n), "Range: bytes=0-99"))
			}
		}
		for _, as := range []string{"call", "curl"} {
			isJSON(t, s.get(fmt.Sprint("/api/copy/", row.Q, "?as=", as)).body)
		}
	}
	if got := s.get(fmt.Sprint("/api/payload/", huge.Capture, "/", huge.RN)); len(got.body) < hugeBytes {
		t.Errorf("so much comes as %d bytes, status %d", len(got.body), got.status)
	}
	isJSON(t, s.post("/api/diff", fmt.Sprintf(`{"a":%d,"b":%d}`, huge.Q, p.calls("last", "ok").Q)).body)
	isJSON(t, s.get("/api/tools").body)
	text, _ := exportPage(t, s, "")
	body := dataOf(t, text)
	if strings.ContainsAny(body, "<>") || strings.Contains(body, "\u2028") {
		t.Error("the data of the exported page is not escaped")
	}
	if strings.Count(text, "<script") != 2 || strings.Contains(text, "<!--") {
		t.Error("the exported page has another script")
	}
	for _, text := range nasty {
		isJSON(t, s.get("/api/filter?text="+url.QueryEscape(text)).body)
	}
}

func checkAttachment(t *testing.T, got result) {
	t.Helper()
	if got.status != http.StatusPartialContent && got.status != http.StatusRequestedRangeNotSatisfiable {
		t.Errorf("status %d: %.100s", got.status, got.body)
	}
	if got.status == http.StatusPartialContent &&
		(got.header.Get("Content-Type") != "application/octet-stream" || !strings.HasPrefix(got.header.Get("Content-Disposition"), "attachment; filename=hostile-")) {
		t.Errorf("%v", got.header)
	}
}

// TestHostileName shows that the name of a server is treated as text of a peer.
func TestHostileName(t *testing.T) {
	r := record(t, t.TempDir(), "x", nil)
	r.done()
	dir := t.TempDir()
	f, err := capture.Create(dir+"/b"+capture.Suffix, &capture.Options{Name: "a\"\r\nX: y/../<b>", Tool: "t", Transport: "stdio"})
	if err != nil {
		t.Fatal(err)
	}
	n := f.Record(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: []byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)})
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	s := serve(t, &watch.Options{Files: []string{f.Name()}}, nil)
	p := s.follow(nil)
	p.until("a row", func() bool { return len(p.rows) > 0 })
	got := s.get(fmt.Sprint("/api/payload/", f.ID(), "/", n))
	if got.status != http.StatusOK || got.header.Get("Content-Disposition") != "attachment; filename=a-X-y-b-1.bin" || got.header.Get("X") != "" {
		t.Errorf("status %d, %v", got.status, got.header)
	}
}
