package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"mcpwire/capture"
	"mcpwire/cmd/internal/view/watch"
)

// An exportedPage is the data in an exported page.
type exportedPage struct {
	Hello struct {
		Reset  bool
		Filter string
	}
	Exported int64
	Rows     []row
	Sessions []struct{ Capture, Name string }
	Sources  []map[string]any
	Tools    struct{ Tools, Methods []any }
	Details  map[string]json.RawMessage
	Left     struct {
		Rows, Details int
		Note          string
	}
}

// dataOf returns the data in an exported page.
func dataOf(t *testing.T, page string) string {
	t.Helper()
	_, rest, ok := strings.Cut(page, `<script type="application/json" id="mcpwire-data">`)
	data, _, closed := strings.Cut(rest, "</script>")
	if !ok || !closed {
		t.Fatalf("there is no data in %.500s", page)
	}
	return data
}

func exportPage(t *testing.T, s *site, query string) (text string, x exportedPage) {
	t.Helper()
	got := s.get("/api/export.html" + query)
	if got.status != http.StatusOK {
		t.Fatalf("status %d: %s", got.status, got.body)
	}
	if h := got.header.Get("Content-Disposition"); !strings.HasPrefix(h, "attachment; filename=mcpwire-") || !strings.HasSuffix(h, ".html") {
		t.Errorf("Content-Disposition is %q", h)
	}
	checkHardened(t, got.header)
	if err := json.Unmarshal([]byte(dataOf(t, got.body)), &x); err != nil {
		t.Fatal(err)
	}
	return got.body, x
}

func TestExport(t *testing.T) {
	s, _, first, _ := recorded(t)
	text, x := exportPage(t, s, "")
	if len(x.Rows) < 5 || len(x.Sessions) != 1 || x.Sessions[0].Name != "files" || len(x.Sources) != 1 || len(x.Tools.Tools) != 2 || !x.Hello.Reset || x.Exported == 0 {
		t.Errorf("the data is %+v", x)
	}
	if len(x.Details) != len(x.Rows) || x.Left.Rows+x.Left.Details != 0 || x.Left.Note != "" {
		t.Errorf("%d details for %d rows, left %+v", len(x.Details), len(x.Rows), x.Left)
	}
	for _, r := range x.Rows {
		if r.Target == "search" {
			if r.N != first.N || r.Status != "ok" || r.Rev != "2025-06-18" {
				t.Errorf("a row is %+v", r)
			}
			if d := string(x.Details[fmt.Sprint(r.Q)]); !strings.Contains(d, "found 1") {
				t.Errorf("its detail is %s", d)
			}
		}
	}
	if path, _ := x.Sources[0]["path"].(string); path != "" {
		t.Errorf("the path %s is in it", path)
	}
	if strings.Count(text, "<script") != 2 || strings.Contains(text, "/static/") {
		t.Errorf("the page is %s", text)
	}
	_, x = exportPage(t, s, "?filter=tool:search")
	if len(x.Rows) != 1 || x.Rows[0].Target != "search" || x.Rows[0].Rev != "2025-06-18" || len(x.Details) != 1 || x.Hello.Filter != "tool:search" || len(x.Tools.Tools) != 1 {
		t.Errorf("with a filter, the data is %+v", x)
	}
	if got := s.get("/api/export.html?filter=tool:("); got.status != http.StatusBadRequest {
		t.Errorf("a bad filter: status %d", got.status)
	}
}

// TestExportIsRedacted shows that an export is redacted even if the capture is not.
func TestExportIsRedacted(t *testing.T) {
	const secret = "hunter2-hunter2-hunter2"
	r := record(t, t.TempDir(), "open", &capture.Options{Redact: &capture.Redaction{Off: true}})
	r.Record(&capture.Event{Kind: capture.KindRequest, Exchange: 1, Session: 1, Dir: capture.ToServer, Request: &capture.Request{
		Method: "POST", URL: "/mcp", Proto: "HTTP/1.1", Headers: []capture.Header{{Name: "Authorization", Value: "Bearer " + secret}}}})
	r.call("search", `{"password":"`+secret+`"}`, "the text says "+secret)
	r.call("search", `{"q":"Bearer `+secret+`"}`, `{"access_token":"`+secret+`"}`)
	r.Record(&capture.Event{Kind: capture.KindStderr, Session: 1, Data: []byte("using token=" + secret)})
	// the finding of a rule quotes it
	r.client(`{"jsonrpc":"2.0","method":"notifications/` + secret + `"}`)
	s := serve(t, &watch.Options{Files: []string{r.done()}}, nil)
	p := s.follow(nil)
	p.until("the end", func() bool { return len(p.source) > 0 && p.source[0]["state"] == "complete" && len(p.rows) > 0 })
	live := s.get(fmt.Sprint("/api/payload/", p.rows[1].Capture, "/", 6))
	if !strings.Contains(live.body, secret) {
		t.Fatalf("the capture itself has no secret: %s", live.body)
	}
	for _, query := range []string{"", "?filter=tool:search", "?filter=" + secret} {
		text, x := exportPage(t, s, query)
		if strings.Contains(text, secret) || strings.Contains(text, "hunter2") {
			t.Errorf("with %q, the page has the secret", query)
		}
		if len(x.Rows) < 1 {
			t.Errorf("with %q, %d rows", query, len(x.Rows))
		}
		for _, part := range x.Details {
			if hex := fmt.Sprintf("%x", secret[:8]); strings.Contains(strings.ReplaceAll(string(part), " ", ""), hex) {
				t.Errorf("the secret is there in hexadecimal digits")
			}
		}
	}
}

// TestExportIsBounded shows that a large export has the newest rows, and reports what was omitted.
func TestExportIsBounded(t *testing.T) {
	r := record(t, t.TempDir(), "many", nil)
	r.call("large", `{}`, strings.Repeat("large ", 50_000))
	for i := range 300 {
		r.call("t", fmt.Sprintf(`{"i":%d}`, i), "x")
	}
	r.call("large", `{}`, strings.Repeat("large ", 50_000))
	s := serve(t, &watch.Options{Files: []string{r.done()}, NoRules: true}, nil)
	p := s.follow(nil)
	p.until("the end", func() bool { return len(p.source) > 0 && p.source[0]["state"] == "complete" && len(p.rows) > 300 })
	s.server.SetMaxExport(250)
	text, x := exportPage(t, s, "")
	roots := 0
	for _, r := range x.Rows {
		if r.P == 0 {
			roots++
		}
	}
	if roots != 250 || x.Left.Rows < 50 || !strings.Contains(x.Left.Note, "truncated payloads: 1") {
		t.Errorf("%d rows, left %+v", roots, x.Left)
	}
	if len(x.Details)+x.Left.Details != len(x.Rows) {
		t.Errorf("%d details, %d left, of %d rows", len(x.Details), x.Left.Details, len(x.Rows))
	}
	if len(text) > 4<<20 {
		t.Errorf("it has %d bytes", len(text))
	}
}
