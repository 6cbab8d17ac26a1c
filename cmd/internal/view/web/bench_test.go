package web_test

import (
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace/live"
	"mcpwire/cmd/internal/view/watch"
	"mcpwire/internal/base/hooks"
)

// BenchmarkBeginning measures the wait of a page for a hub with 100,000 rows.
func BenchmarkBeginning(b *testing.B) {
	r := record(b, b.TempDir(), "many", nil)
	const rows = 100_000
	for i := range rows {
		if r.call("tool"+strconv.Itoa(i%20), `{"path":"/home/user/project/file.txt","line":`+strconv.Itoa(i)+`}`, "the text of that line"); i%1000 == 0 {
			r.flush()
		}
	}
	s := serve(b, &watch.Options{Files: []string{r.done()}, NoRules: true, MaxRows: rows + 10}, nil)
	p := s.follow(nil)
	p.until("all", func() bool {
		return p.synced && len(p.rows) > rows && len(p.source) > 0 && p.source[0]["state"] == "complete"
	})
	p.close()
	for b.Loop() {
		req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, s.base+"/api/stream", nil)
		if err != nil {
			b.Fatal(err)
		}
		res, err := s.client.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(untilSynced(b, res.Body))
		res.Body.Close()
	}
}

// BenchmarkFilter measures the wait of a page for a hub with 20,000 rows after a change of the
// filter.
func BenchmarkFilter(b *testing.B) {
	r := record(b, b.TempDir(), "many", nil)
	const rows = 20_000
	for i := range rows {
		if r.call("tool"+strconv.Itoa(i%20), `{"path":"/home/user/project/file.txt","line":`+strconv.Itoa(i)+`}`, "the text of that line"); i%1000 == 0 {
			r.flush()
		}
	}
	s := serve(b, &watch.Options{Files: []string{r.done()}, NoRules: true, MaxRows: rows + 10}, nil)
	p := s.follow(nil)
	p.until("all", func() bool {
		return p.synced && len(p.rows) > rows && len(p.source) > 0 && p.source[0]["state"] == "complete"
	})
	p.close()
	for _, filter := range []string{"", "tool:tool7", "dur>500ms", "line"} {
		b.Run(filter, func(b *testing.B) {
			for b.Loop() {
				req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, s.base+"/api/stream?filter="+url.QueryEscape(filter), nil)
				if err != nil {
					b.Fatal(err)
				}
				res, err := s.client.Do(req)
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(untilSynced(b, res.Body))
				res.Body.Close()
			}
		})
	}
}

// untilSynced reads as fast as possible.
func untilSynced(b *testing.B, body io.Reader) (n int64) {
	buf := make([]byte, 64<<10)
	tail := ""
	for {
		k, err := body.Read(buf)
		if err != nil {
			b.Fatal(err)
		}
		n += int64(k)
		if tail += string(buf[:k]); strings.Contains(tail, "event: synced") {
			return n
		}
		tail = tail[max(0, len(tail)-20):]
	}
}

// BenchmarkRow measures the time of a row from a running tap to a page.
func BenchmarkRow(b *testing.B) {
	socket := live.NewServer(nil)
	w := capture.NewWriter(io.Discard, &capture.Options{Tool: "test", Transport: "stdio", Name: "live", Hooks: &hooks.Writer[capture.Event]{Tee: socket}})
	dir := filepath.Join(b.TempDir(), "l")
	if err := socket.Start(dir, live.Greeting{Capture: w.ID(), Name: "live", Transport: "stdio"}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { w.Close(); socket.Close() })
	r := &recording{t: b, File: &capture.File{Writer: w}}
	r.begin()
	s := serve(b, &watch.Options{SocketDir: dir}, nil)
	p := s.follow(nil)
	p.until("the beginning", func() bool { return p.synced && len(p.rows) >= 3 })
	i := 0
	for b.Loop() {
		i++
		tool := "tool" + strconv.Itoa(i)
		r.call(tool, `{}`, "x")
		p.calls(tool, "ok")
	}
}
