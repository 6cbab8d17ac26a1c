package web_test

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/cmd/internal/view/watch"
	"mcpwire/cmd/internal/view/web"
	"mcpwire/internal/test/race"
)

func TestStream(t *testing.T) {
	dir := t.TempDir()
	r := record(t, dir, "files", nil)
	r.call("search", `{"q":"x"}`, "found")
	path := r.done()
	s := serve(t, &watch.Options{Files: []string{path}}, &web.Options{Tool: "mcpwire test"})
	p := s.follow(nil)
	got := p.calls("search", "ok")
	p.until("the rest", func() bool {
		for _, c := range p.cards {
			return p.synced && len(p.source) == 1 && p.source[0]["state"] == "complete" && c["answered"] != nil
		}
		return false
	})
	if p.events[0] != "hello" || p.hello["reset"] != true || p.hello["hub"] != s.hub.ID() || p.hello["tool"] != "mcpwire test" {
		t.Errorf("it begins with %v, %v", p.events, p.hello)
	}
	want := row{
		Q: got.Q, N: 5, RN: 6, Capture: got.Capture, Server: "files", Kind: "request", At: got.At, Method: "tools/call", Target: "search", ID: "1",
		Status: "ok", Wall: got.Wall, Done: true, Summary: got.Summary, Glyph: "→", Era: "legacy", Rev: "2025-06-18", Findings: got.Findings, Excerpt: got.Excerpt,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the row (-want +got):\n%s", diff)
	}
	if got.Wall == nil || *got.Wall < 0 || got.At < 1e12 || !strings.HasPrefix(got.Summary, "called search") || got.Excerpt == "" || got.Excerpt[0] == '{' {
		t.Errorf("the row is %+v", got)
	}
	for _, c := range p.cards {
		if c["name"] != "files" || c["answered"] != "2025-06-18" || c["pid"] != 4711.0 {
			t.Errorf("the card is %v", c)
		}
	}
}

// TestStreamLive shows that a page that waits gets what is recorded now.
func TestStreamLive(t *testing.T) {
	dir := t.TempDir()
	r := record(t, dir, "live", nil)
	r.flush()
	s := serve(t, &watch.Options{Files: []string{r.Name()}}, nil)
	p := s.follow(nil)
	p.until("the beginning", func() bool { return p.synced && len(p.rows) > 0 })
	id, _ := r.ask("slow", `{}`)
	r.flush()
	pending := p.calls("slow", "pending")
	if pending.Wall != nil || pending.Done {
		t.Errorf("a pending row is %+v", pending)
	}
	r.reply(id, "at last")
	r.flush()
	if got := p.calls("slow", "ok"); got.Q != pending.Q || got.Wall == nil || !got.Done {
		t.Errorf("it became %+v", got)
	}
	if p.resets != 1 {
		t.Errorf("%d resets", p.resets)
	}
}

func TestStreamResume(t *testing.T) {
	dir := t.TempDir()
	r := record(t, dir, "live", nil)
	r.call("first", `{}`, "1")
	r.flush()
	s := serve(t, &watch.Options{Files: []string{r.Name()}}, nil)
	p := s.follow(nil)
	p.calls("first", "ok")
	p.until("all", func() bool { return p.synced && p.id != "" })
	p.close()
	id := settled(s, p.id)
	r.call("second", `{}`, "2")
	r.flush()
	for name, open := range map[string]func() *page{
		"by the header": func() *page { return s.follow(nil, "Last-Event-ID: "+id) },
		"by the query":  func() *page { return s.follow(url.Values{"after": {id}}) },
	} {
		again := open()
		again.calls("second", "ok")
		if again.resets != 0 {
			t.Errorf("%s: everything comes again", name)
		}
		if _, ok := again.find("first"); ok {
			t.Errorf("%s: what is known comes again", name)
		}
		again.close()
	}
	for _, id := range []string{"other-5", "nonsense", s.hub.ID() + "-x", s.hub.ID() + "-0", s.hub.ID() + "-99999999999999999999"} {
		again := s.follow(url.Values{"after": {id}})
		again.calls("first", "ok")
		again.calls("second", "ok")
		if again.resets == 0 {
			t.Errorf("after %q there is no reset", id)
		}
		again.close()
	}
}

// settled returns the id of the last event that is sent for now.
func settled(s *site, id string) string {
	s.t.Helper()
	for {
		p := s.follow(url.Values{"after": {id}})
		p.until("what there is", func() bool { return p.synced })
		p.close()
		if len(p.rows) == 0 {
			return id
		}
		id = p.id
	}
}

func TestStreamFilter(t *testing.T) {
	dir := t.TempDir()
	r := record(t, dir, "live", nil)
	r.call("search", `{"q":"needle"}`, "1")
	r.call("other", `{"q":"hay"}`, "2")
	r.flush()
	s := serve(t, &watch.Options{Files: []string{r.Name()}}, nil)
	for _, tt := range []struct{ filter, want string }{
		{"tool:search", "search"},
		{"needle", "search"},
		{"-tool:search method:tools/call", "other"},
		{"-needle hay", "other"},
		{`jq:(.params.arguments.q == "hay")`, "other"},
	} {
		t.Run(tt.filter, func(t *testing.T) {
			p := s.follow(url.Values{"filter": {tt.filter}})
			p.calls(tt.want, "ok")
			p.until("all", func() bool { return p.synced && (len(p.search) == 0 || p.search[len(p.search)-1]["busy"] == false) })
			if len(p.rows) != 1 {
				t.Errorf("the rows are %v", p.rows)
			}
			p.close()
		})
	}
}

// TestStreamFilterLeaves shows that a page forgets a row that no longer matches the filter.
func TestStreamFilterLeaves(t *testing.T) {
	dir := t.TempDir()
	r := record(t, dir, "live", nil)
	id, _ := r.ask("slow", `{}`)
	r.flush()
	s := serve(t, &watch.Options{Files: []string{r.Name()}}, nil)
	p := s.follow(url.Values{"filter": {"status:pending tool:slow"}})
	p.calls("slow", "pending")
	r.reply(id, "over")
	r.flush()
	p.until("it to go", func() bool { return len(p.rows) == 0 })
	next, _ := r.ask("slow", `{"again":true}`)
	r.flush()
	if got := p.calls("slow", "pending"); got.ID != next {
		t.Errorf("the row is %+v", got)
	}
}

// TestStreamFilterResume checks that rows that stopped matching while a page was disconnected are
// removed as well.
func TestStreamFilterResume(t *testing.T) {
	dir := t.TempDir()
	r := record(t, dir, "live", nil)
	id, _ := r.ask("slow", `{}`)
	r.flush()
	s := serve(t, &watch.Options{Files: []string{r.Name()}}, nil)
	query := url.Values{"filter": {"status:pending tool:slow"}}
	p := s.follow(query)
	p.calls("slow", "pending")
	p.until("all", func() bool { return p.synced && p.id != "" })
	p.close()
	after := settled(s, p.id)
	r.reply(id, "over")
	r.flush()
	query.Set("after", after)
	again := s.follow(query)
	again.rows = p.rows
	again.until("it to go", func() bool { return len(again.rows) == 0 })
	if again.resets != 0 {
		t.Error("everything comes again")
	}
	// A search in payloads begins anew, and so does the page.
	query.Set("filter", "slow")
	again = s.follow(query)
	again.calls("slow", "ok")
	if again.resets != 1 {
		t.Errorf("%d resets", again.resets)
	}
}

func TestStreamBadFilter(t *testing.T) {
	s := serve(t, nil, nil)
	for _, f := range []string{"tool:(", "dur>x"} {
		if got := s.get("/api/stream?filter=" + url.QueryEscape(f)); got.status != http.StatusBadRequest || !strings.HasPrefix(got.body, `{"error":{"message":"`) {
			t.Errorf("filter %.10s: status %d: %s", f, got.status, got.body)
		}
	}
}

// TestStreamGone checks that the page is notified of evicted rows.
func TestStreamGone(t *testing.T) {
	dir := t.TempDir()
	r := record(t, dir, "live", nil)
	r.flush()
	s := serve(t, &watch.Options{Files: []string{r.Name()}, MaxRows: 100}, nil)
	all, some := s.follow(nil), s.follow(url.Values{"filter": {"tool:t*"}})
	for i := range 300 {
		r.call("t"+strconv.Itoa(i), `{}`, "x")
	}
	r.flush()
	for _, p := range []*page{all, some} {
		p.calls("t299", "ok")
		p.until("the old ones to go", func() bool { return len(p.rows) <= 100 })
		if _, ok := p.find("t150"); ok {
			t.Error("an old row is there")
		}
	}
}

func TestStreamsAreLimited(t *testing.T) {
	s := serve(t, nil, nil)
	var open []*page
	for range web.MaxStreams {
		p := s.follow(nil)
		p.until("hello", func() bool { return p.hello != nil })
		open = append(open, p)
	}
	if got := s.get("/api/stream"); got.status != http.StatusServiceUnavailable {
		t.Fatalf("status %d, want 503", got.status)
	}
	open[0].close()
	for deadline := time.Now().Add(hang); s.server.OpenStreams() == web.MaxStreams; {
		if time.Now().After(deadline) {
			t.Fatal("a stream that is closed keeps its place")
		}
		s.get("/api/tools")
	}
	p := s.follow(nil)
	p.until("hello", func() bool { return p.hello != nil })
}

// TestSlowPage shows that a page that does not read gets the newest state when it does, and nothing
// in between.
func TestSlowPage(t *testing.T) {
	dir := t.TempDir()
	r := record(t, dir, "live", nil)
	r.flush()
	s := serve(t, &watch.Options{Files: []string{r.Name()}, MaxRows: 2000}, nil)
	slow, fast := s.follow(nil), s.follow(nil)
	for i := range race.Choose(4_000, 20_000) {
		r.call("tool", `{"i":`+strconv.Itoa(i)+`,"filler":"`+strings.Repeat("x", 200)+`"}`, "x")
		if i%1000 == 0 {
			r.flush()
		}
	}
	r.call("last", `{}`, "x")
	r.flush()
	fast.calls("last", "ok")
	for {
		if r, ok := slow.find("last"); ok && r.Status == "ok" {
			break
		}
		if _, err := slow.next(); err != nil {
			t.Fatal(err)
		}
	}
	slow.until("the old ones to go", func() bool { return len(slow.rows) <= 2000 })
}

// TestShutdownEndsStreams shows that a stream does not delay the end.
func TestShutdownEndsStreams(t *testing.T) {
	s := serve(t, nil, nil)
	p := s.follow(nil)
	p.until("hello", func() bool { return p.hello != nil })
	s.stop() // fails the test if streams were cut off
	for {
		if _, err := p.next(); err != nil {
			break
		}
	}
}

// TestStreamFacets shows that the page gets the number of captured rows also with a filter.
func TestStreamFacets(t *testing.T) {
	r := record(t, t.TempDir(), "files", nil)
	r.call("search", `{}`, "found")
	r.call("find", `{}`, "found")
	s := serve(t, &watch.Options{Files: []string{r.done()}}, nil)
	p := s.follow(url.Values{"filter": {"tool:find"}})
	// The first facets may be sent before the capture has been read.
	p.until("facets of the whole capture, which count more rows than the filter shows", func() bool {
		server, status := p.facets["server"], p.facets["status"]
		return p.synced && len(p.rows) > 0 && len(server) == 1 && number(server[0]["n"]) > uint64(len(p.rows)) &&
			len(status) > 0 && status[0]["v"] == "ok"
	})
	if got := p.facets["server"][0]["v"]; got != "files" {
		t.Errorf("server: got %v, want files", got)
	}
}

func TestStreamTotal(t *testing.T) {
	r := record(t, t.TempDir(), "files", nil)
	for range 3 {
		r.call("search", `{}`, "found")
	}
	r.call("other", `{}`, "found")
	s := serve(t, &watch.Options{Files: []string{r.done()}}, nil)
	all := s.follow(nil)
	all.until("the rows", func() bool {
		return all.synced && len(all.rows) > 4 && len(all.source) > 0 && all.source[0]["state"] == "complete"
	})
	roots := 0
	for _, row := range all.rows {
		if row.P == 0 {
			roots++
		}
	}
	p := s.follow(url.Values{"filter": {"tool:other"}})
	p.until("the total", func() bool {
		return p.synced && len(p.rows) > 0 && p.total.Rows == uint64(roots)
	})
	if len(p.rows) >= roots {
		t.Errorf("the filter leaves %d rows of %d", len(p.rows), roots)
	}
}

// TestStreamWhole shows that a filter finds rows that were evicted, and that their details, pictures
// and exports work. The count of all rows, and the facets, include evicted rows also without a filter.
func TestStreamWhole(t *testing.T) {
	const calls, failures, maxRows = 3000, 30, 400
	r := record(t, t.TempDir(), "files", nil)
	for i := range calls {
		id, _ := r.ask("t"+strconv.Itoa(i), `{"q":"term `+strconv.Itoa(i)+`"}`)
		if i%(calls/failures) == 0 {
			r.server(`{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32603,"message":"boom"}}`)
		} else {
			r.reply(id, "x")
		}
	}
	s := serve(t, &watch.Options{Files: []string{r.done()}, MaxRows: maxRows}, nil)
	status := func(p *page, value string) uint64 {
		for _, f := range p.facets["status"] {
			if f["v"] == value {
				return number(f["n"])
			}
		}
		return 0
	}
	all := s.follow(nil)
	all.until("the facets", func() bool { return all.synced && status(all, "error") == failures })
	if got := all.total; got.Rows < calls || got.Evicted < calls-maxRows || got.Whole {
		t.Errorf("without a filter: %+v", got)
	}
	for filter, want := range map[string]uint64{"status:error": failures, `"term 55"`: 11, "tool:=t55": 1, "n:1-3": 2, "tool:*": calls, "nothing": 0} {
		t.Run(filter, func(t *testing.T) {
			p := s.follow(url.Values{"filter": {filter}})
			defer p.close()
			p.until("the end of the search", func() bool {
				return len(p.search) > 0 && p.search[len(p.search)-1]["busy"] == false && p.total.Read >= p.total.Rows && (want > maxRows || uint64(len(p.rows)) == want)
			})
			if got := p.total; !got.Whole || got.Matches != want {
				t.Errorf("got %+v, want %d matches", got, want)
			}
			for q, row := range p.rows {
				if got := s.get("/api/row/" + strconv.FormatUint(q, 10)); got.status != http.StatusOK || !strings.Contains(got.body, `"n":`+strconv.FormatUint(row.N, 10)) {
					t.Fatalf("the detail of row %d: status %d: %.200s", q, got.status, got.body)
				}
				break
			}
			if want == 0 {
				return
			}
			query := "filter=" + url.QueryEscape(filter)
			if got := s.get("/api/picture/overview?" + query); got.status != http.StatusOK {
				t.Errorf("the overview has status %d: %s", got.status, got.body)
			}
			saved := s.get("/api/save?" + query)
			if want > maxRows {
				if saved.status != http.StatusUnprocessableEntity {
					t.Errorf("saving a part of what matches has status %d", saved.status)
				}
				return
			}
			if _, messages := readCapture(t, []byte(saved.body)); uint64(len(messages)) < want {
				t.Errorf("the saved capture has %d messages", len(messages))
			}
		})
	}
}

// TestStreamCrowded shows that one search of all rows too many says how many are running, and finds
// the rows that were not evicted, and that it searches all rows once another one has ended.
func TestStreamCrowded(t *testing.T) {
	r := record(t, t.TempDir(), "files", nil)
	for i := range 1000 {
		id, _ := r.ask("t"+strconv.Itoa(i), `{}`)
		r.reply(id, "x")
	}
	const maxWholes = 4
	s := serve(t, &watch.Options{Files: []string{r.done()}, MaxRows: 400}, nil)
	all := s.follow(nil)
	all.until("the rows", func() bool { return all.synced && all.total.Evicted > 0 })
	search := func(text string) *page {
		p := s.follow(url.Values{"filter": {text}})
		p.until("the total", func() bool { return p.synced })
		return p
	}
	var running []*page
	for i := range maxWholes {
		p := search("tool:t" + strconv.Itoa(i))
		running = append(running, p)
		if !p.total.Whole || p.total.Running != 0 {
			t.Errorf("search %d: %+v, want one of all rows", i, p.total)
		}
	}
	if p := search("tool:t1"); !p.total.Whole {
		t.Errorf("a filter that is searched already: %+v, want all rows", p.total)
	}
	if p := search("tool:=t999"); p.total.Whole || p.total.Running != maxWholes || len(p.rows) != 1 {
		t.Errorf("one more: %+v and %d rows, want %d running, and 1 row", p.total, len(p.rows), maxWholes)
	}
	running[0].close()
	for {
		p := search("tool:=t998")
		if p.total.Whole {
			break
		}
		p.close()
	}
}

// number is a number in JSON, 0 if it is left out.
func number(v any) uint64 {
	f, _ := v.(float64)
	return uint64(f)
}
