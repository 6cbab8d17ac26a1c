package web_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/cmd/internal/json/jsondiff"
	"mcpwire/cmd/internal/view/watch"
	"mcpwire/cmd/internal/view/web"
)

// recorded serves a capture with two calls, and returns their rows.
func recorded(t *testing.T) (s *site, p *page, first, second row) {
	t.Helper()
	r := record(t, t.TempDir(), "files", nil)
	r.call("search", `{"q":"one","same":1}`, "found 1")
	r.call("find", `{"q":"two","same":1}`, "found 2")
	s = serve(t, &watch.Options{Files: []string{r.done()}}, nil)
	p = s.follow(nil)
	first, second = p.calls("search", "ok"), p.calls("find", "ok")
	p.until("all", func() bool { return p.synced })
	return s, p, first, second
}

func TestRow(t *testing.T) {
	s, _, first, _ := recorded(t)
	var d struct {
		Row     row
		Seq     uint64
		Request struct{ N uint64 }
		Frames  []struct{ N uint64 }
		Session struct{ Name string }
	}
	got := s.get(fmt.Sprint("/api/row/", first.Q))
	got.into(t, &d)
	if diff := cmp.Diff(first, d.Row); diff != "" {
		t.Errorf("the row (-stream +detail):\n%s", diff)
	}
	if d.Seq != first.Q || d.Session.Name != "files" || len(d.Frames) != 2 || d.Frames[0].N != first.N {
		t.Errorf("the detail is %s", got.body)
	}
	if got.header.Get("Content-Type") != "application/json; charset=utf-8" {
		t.Errorf("its type is %q", got.header.Get("Content-Type"))
	}
	for _, path := range []string{"/api/row/99999", "/api/row/x", "/api/row/-1", "/api/row/", "/api/copy/99999?as=call", "/api/resend/99999"} {
		if got := s.get(path); got.status != http.StatusNotFound {
			t.Errorf("%s: status %d", path, got.status)
		}
	}
}

func TestPayload(t *testing.T) {
	s, _, first, _ := recorded(t)
	path := fmt.Sprint("/api/payload/", first.Capture, "/", first.RN)
	const want = `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"found 1"}]}}`
	got := s.get(path)
	if got.status != http.StatusOK || got.body != want {
		t.Errorf("status %d: %s", got.status, got.body)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/octet-stream", "Content-Disposition": "attachment; filename=files-6.bin", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
	} {
		if v := got.header.Get(name); v != want {
			t.Errorf("%s: %q, want %q", name, v, want)
		}
	}
	got = s.get(path, "Range: bytes=2-8")
	if got.status != http.StatusPartialContent || got.body != want[2:9] || got.header.Get("Content-Range") != fmt.Sprintf("bytes 2-8/%d", len(want)) {
		t.Errorf("a range: status %d, %q, %q", got.status, got.body, got.header.Get("Content-Range"))
	}
	for _, path := range []string{"/api/payload/nothing/1", "/api/payload/" + first.Capture + "/12345", "/api/payload/" + first.Capture + "/x"} {
		if got := s.get(path); got.status != http.StatusNotFound {
			t.Errorf("%s: status %d: %s", path, got.status, got.body)
		}
	}
}

func TestFilterCheck(t *testing.T) {
	s := serve(t, nil, nil)
	for _, tt := range []struct{ text, want string }{
		{"tool:search", `{"ok":true,"text":"tool:search"}`},
		{"", `{"ok":true}`},
		{strings.Repeat("x", 5000), `{"ok":true,"text":"` + strings.Repeat("x", 5000) + `"}`},
	} {
		if got := s.get("/api/filter?text=" + url.QueryEscape(tt.text)); got.status != http.StatusOK || got.body != tt.want {
			t.Errorf("%.20q: status %d: %s, want %s", tt.text, got.status, got.body, tt.want)
		}
	}
	var got struct {
		Error struct {
			Message string
			At      int
		}
	}
	s.get("/api/filter?text="+url.QueryEscape(`tool:x dur>`)).into(t, &got)
	if got.Error.Message == "" || got.Error.At < 8 {
		t.Errorf("the error is %+v", got)
	}
}

func TestTools(t *testing.T) {
	s, _, _, _ := recorded(t)
	var got struct {
		Tools, Methods []struct {
			Srv, Name string
			Calls, OK uint64
			Out       int64
			P95, Max  float64
			Hist      [][2]float64
		}
	}
	s.get("/api/tools").into(t, &got)
	if len(got.Tools) != 2 || got.Tools[0].Name != "find" || got.Tools[1].Name != "search" || len(got.Methods) != 2 {
		t.Fatalf("the statistics are %+v", got)
	}
	for _, tool := range got.Tools {
		count := 0.0
		for _, bar := range tool.Hist {
			count += bar[1]
		}
		if tool.Srv != "files" || tool.Calls != 1 || tool.OK != 1 || tool.Out == 0 || tool.P95 > tool.Max || count != 1 {
			t.Errorf("a tool is %+v", tool)
		}
	}
}

func TestSessionsAndSources(t *testing.T) {
	_, p, first, _ := recorded(t)
	p.until("the sources", func() bool { return len(p.source) == 1 && p.source[0]["state"] == "complete" })
	p.until("the sessions", func() bool { return len(p.cards) == 1 })
	for _, c := range p.cards {
		if c["capture"] != first.Capture || c["name"] != "files" {
			t.Errorf("the session is %v", c)
		}
	}
	if p.source[0]["id"] != first.Capture || p.source[0]["name"] != "files" {
		t.Errorf("the source is %v", p.source)
	}
}

func TestCopy(t *testing.T) {
	s, _, first, _ := recorded(t)
	var c struct {
		Text  string
		Notes []string
	}
	s.get(fmt.Sprint("/api/copy/", first.Q, "?as=call")).into(t, &c)
	if !strings.HasPrefix(c.Text, "mcpwire call ") || !strings.Contains(c.Text, "search") {
		t.Errorf("the command is %q", c.Text)
	}
	if got := s.get(fmt.Sprint("/api/copy/", first.Q, "?as=curl")); got.status != http.StatusUnprocessableEntity {
		t.Errorf("curl for stdio: status %d: %s", got.status, got.body)
	}
	if got := s.get(fmt.Sprint("/api/copy/", first.Q, "?as=tea")); got.status != http.StatusBadRequest {
		t.Errorf("tea: status %d", got.status)
	}
}

func TestDiff(t *testing.T) {
	s, _, first, second := recorded(t)
	var got struct {
		Request, Response []jsondiff.Change
		Notes             []string
	}
	s.post("/api/diff", fmt.Sprintf(`{"a":%d,"b":%d}`, first.Q, second.Q)).into(t, &got)
	var changed []string
	for _, c := range append(got.Request, got.Response...) {
		changed = append(changed, c.Pointer+" "+c.Old+" "+c.New)
	}
	want := []string{"/id 1 2", `/params/arguments/q "one" "two"`, `/params/name "search" "find"`, "/id 1 2", `/result/content/0/text "found 1" "found 2"`}
	if diff := cmp.Diff(sorted(want), sorted(changed)); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	for body, want := range map[string]int{
		`{"a":1,"b":99999}`: http.StatusNotFound, `{"a":"x"}`: http.StatusBadRequest, `nonsense`: http.StatusBadRequest, ``: http.StatusBadRequest,
		`{"other":1}`: http.StatusBadRequest,
	} {
		if got := s.post("/api/diff", body); got.status != want {
			t.Errorf("%s: status %d, want %d", body, got.status, want)
		}
	}
}

func TestSave(t *testing.T) {
	// The capture itself keeps its secrets.
	r := record(t, t.TempDir(), "open", &capture.Options{Redact: &capture.Redaction{Off: true}})
	r.call("search", `{"q":"x","password":"hunter2-hunter2"}`, "found")
	r.call("other", `{"q":"y"}`, "the password is hunter2-hunter2")
	s := serve(t, &watch.Options{Files: []string{r.done()}}, nil)
	p := s.follow(nil)
	p.calls("other", "ok")
	p.until("the end", func() bool { return len(p.source) > 0 && p.source[0]["state"] == "complete" })

	got := s.get("/api/save")
	if got.status != http.StatusOK || got.header.Get("Content-Disposition") != "attachment; filename=open-saved.mcpcap.ndjson" || got.header.Get("Content-Type") != "application/octet-stream" {
		t.Fatalf("status %d, %v", got.status, got.header)
	}
	heads, messages := readCapture(t, []byte(got.body))
	if heads != 1 || len(messages) != 7 {
		t.Errorf("%d heads, messages %q", heads, messages)
	}
	if strings.Contains(got.body, `"password":"hunter2`) || strings.Contains(got.body, `"redact":"off"`) {
		t.Errorf("it has a secret: %s", got.body)
	}
	got = s.get("/api/save?filter=tool:search")
	heads, messages = readCapture(t, []byte(got.body))
	if heads != 1 || len(messages) != 5 || !strings.Contains(got.body, `"search"`) || strings.Contains(got.body, `"other"`) {
		t.Errorf("with a filter: %d heads, messages %q", heads, messages)
	}
	if got := s.get("/api/save?filter=tool:nothing"); got.status != http.StatusNotFound {
		t.Errorf("nothing: status %d", got.status)
	}
	if got := s.get("/api/save?filter=tool:("); got.status != http.StatusBadRequest {
		t.Errorf("a bad filter: status %d", got.status)
	}
}

// TestOpenUnpacksNoMoreThanItMay shows that a dropped capture that is compressed is unpacked only
// up to the limit.
func TestOpenUnpacksNoMoreThanItMay(t *testing.T) {
	s := serve(t, nil, nil)
	s.server.SetMaxUnpacked(100 << 10)
	p := s.follow(nil)
	p.until("hello", func() bool { return p.synced })
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	io.WriteString(w, `{"k":"head","v":1,"id":"A","at":"2026-11-20T12:00:00Z"}`+"\n")
	io.WriteString(w, strings.Repeat(`{"k":"note","n":1,"t":0,"raw":"x"}`+"\n", 10_000))
	w.Close()
	s.post("/api/open?name=x.mcpcap.ndjson.gz", packed.String()).into(t, new(map[string]any))
	p.until("the source", func() bool {
		return len(p.source) == 1 && strings.Contains(fmt.Sprint(p.source[0]["err"]), "unpacks to too much")
	})
}

func TestOpen(t *testing.T) {
	r := record(t, t.TempDir(), "dropped", nil)
	r.call("search", `{}`, "found")
	text, err := os.ReadFile(r.done())
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, nil, nil)
	p := s.follow(nil)
	p.until("hello", func() bool { return p.synced })
	var opened struct{ Path string }
	s.post("/api/open?name="+url.QueryEscape(`../../etc/my capture.mcpcap.ndjson`), string(text)).into(t, &opened)
	p.calls("search", "ok")
	dir := s.server.DropDir()
	if filepath.Dir(opened.Path) != dir || dir == "" || !strings.HasSuffix(opened.Path, "my-capture-opened.mcpcap.ndjson") {
		t.Errorf("it is at %s", opened.Path)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("its folder is %v, %v", info, err)
	}
	for _, body := range []string{"", "not a capture", strings.Repeat("x", 100_000), `{"k":"msg"}`} {
		if got := s.post("/api/open?name=x", body); got.status != http.StatusUnprocessableEntity {
			t.Errorf("%.20q: status %d: %s", body, got.status, got.body)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("there are %v, %v", left, err)
	}
	s.stop()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is there when the server is not: %v", err)
	}
}

func TestOpenTooLarge(t *testing.T) {
	s := serve(t, nil, nil)
	s.server.SetMaxOpen(1000)
	if got := s.post("/api/open?name=x", strings.Repeat("x", 1001)); got.status != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d: %s", got.status, got.body)
	}
	if left, err := os.ReadDir(s.server.DropDir()); err != nil || len(left) != 0 {
		t.Errorf("there are %v, %v", left, err)
	}
}

func TestFileNames(t *testing.T) {
	for _, tt := range []struct{ name, want string }{
		{"files", "files-1.bin"},
		{"../../etc/passwd", "etc-passwd-1.bin"},
		{"a\r\nSet-Cookie: x", "a-Set-Cookie-x-1.bin"},
		{`x";evil="`, "x-evil-1.bin"},
		{".hidden", "hidden-1.bin"},
		{"", "server-1.bin"},
		{"\u202eΩΩ", "server-1.bin"},
		{strings.Repeat("long", 1000), strings.Repeat("long", 16) + "-1.bin"},
	} {
		if got := web.FileName(tt.name, "1.bin"); got != tt.want {
			t.Errorf("%.20q: %q, want %q", tt.name, got, tt.want)
		}
	}
	for _, tt := range []struct{ name, want string }{
		{"a.mcpcap.ndjson.gz", "a-opened.mcpcap.ndjson.gz"},
		{`C:\x\a.mcpcap.ndjson.zst`, "a-opened.mcpcap.ndjson.zst"},
		{"a.ndjson", "a-ndjson-opened.mcpcap.ndjson"},
		{"/", "server-opened.mcpcap.ndjson"},
	} {
		if got := web.OpenName(tt.name); got != tt.want {
			t.Errorf("%.20q: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestRestartWithoutTap(t *testing.T) {
	s, _, first, _ := recorded(t)
	if got := s.post("/api/restart/"+first.Capture, ""); got.status != http.StatusConflict {
		t.Errorf("status %d: %s", got.status, got.body)
	}
}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }

// isJSON fails the test if a text is not JSON.
func isJSON(t *testing.T, text string) {
	t.Helper()
	if !json.Valid([]byte(text)) {
		t.Errorf("this is no JSON: %.300s", text)
	}
}
