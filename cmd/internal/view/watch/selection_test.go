package watch_test

import (
	"fmt"
	"iter"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/filter"
	"mcpwire/cmd/internal/view/watch"
)

func parse(t testing.TB, text string) *filter.Filter {
	t.Helper()
	f, err := filter.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// selected lists a selection, and compares it with the timeline.
func selected(t *testing.T, h *watch.Hub, s *watch.Selection) []string {
	t.Helper()
	list := []string{}
	h.Read(func(m *trace.Model) {
		is := map[*trace.Row]bool{}
		for i := range s.Len() {
			r := s.At(i)
			is[r] = true
			list = append(list, describe(r))
			if got := s.Index(r); got != i {
				t.Errorf("row %d has the index %d", i, got)
			}
		}
		for _, r := range m.Rows() {
			for x := range r.All() {
				if s.Has(x) != is[r] {
					t.Errorf("%s is selected: %v", describe(x), !is[r])
				}
			}
		}
		if s.At(-1) != nil || s.At(s.Len()) != nil || s.Has(nil) {
			t.Error("there are rows beyond the ends")
		}
	})
	return list
}

// TestSelect compares selections with the result of the filter for each row: for existing rows, new
// rows and changed rows.
func TestSelect(t *testing.T) {
	base := t.TempDir()
	var past []*capture.Event
	for i := range 20 {
		past = append(past, call(i, []string{"open", "search"}[i%2])...)
	}
	path := write(t, filepath.Join(base, "a"+suffix), "a", begun, 0, append(past, tail())...)
	for i, text := range []string{
		"tool:search", "-tool:search", "status:pending", "status:ok", "answer", "\"answer 7\"", "-\"answer 1\"", "tool:search \"question 3\"", "nothing", "n:3-6", "status:ok -\"question 1\"",
	} {
		t.Run(text, func(t *testing.T) {
			f := parse(t, text)
			want := func(h *watch.Hub) []string {
				var list []string
				h.Read(func(m *trace.Model) {
					for _, r := range m.Rows() {
						payloads := &loaded{r, t, h}
						if f.Match(t.Context(), payloads) {
							list = append(list, describe(r))
						}
					}
				})
				return append([]string{}, list...)
			}
			live := filepath.Join(base, fmt.Sprint(i))
			p := startTap(t, live, "", nil)
			defer p.stop()
			h := watch.New(&watch.Options{Files: []string{path}, SocketDir: live, NoRules: true})
			stop := run(t, h)
			defer stop()
			early := h.Select(f)
			defer early.Close()
			for i := range 5 {
				p.call(i)
			}
			p.Record(call(30, "search")[0])
			await(t, h, "the rows", func(m *trace.Model) bool { return len(m.Rows()) == 26 })
			late := h.Select(f)
			defer late.Close()
			p.Record(call(30, "search")[1])
			await(t, h, "the last answer", settledRows(26))
			await(t, h, "the search", func(*trace.Model) bool {
				_, busy := late.SearchProgress()
				return !busy
			})
			if share, _ := late.SearchProgress(); share != 1 {
				t.Errorf("%v of the search is done", share)
			}
			for name, s := range map[string]*watch.Selection{"early": early, "late": late} {
				if diff := cmp.Diff(want(h), selected(t, h, s)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
			}
		})
	}
}

// loaded is a row whose payloads are read on demand.
type loaded struct {
	*trace.Row
	t *testing.T
	h *watch.Hub
}

func (l *loaded) Payloads() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for x := range l.All() {
			for _, n := range x.Events {
				e, err := l.h.Event(l.t.Context(), x.Capture.ID, n)
				if err != nil {
					l.t.Error(err)
					return
				}
				if len(e.Data) > 0 && !yield(e.Data) {
					return
				}
			}
		}
	}
}

// TestSelectLate reads captures whose rows are earlier than those of others that were read before:
// rows, selections and a feed that begins anew have them in the order of time, except that those of
// an old capture come last.
func TestSelectLate(t *testing.T) {
	dir := t.TempDir()
	path := func(id string) string { return filepath.Join(dir, id+suffix) }
	write(t, path("a"), "a", begun, 3, tail())
	h := running(t, &watch.Options{Files: []string{path("a")}, NoRules: true})
	sel := h.Select(parse(t, "method:tools/call"))
	defer sel.Close()
	open := func(id string, begun time.Time) {
		t.Helper()
		write(t, path(id), id, begun, 1, tail())
		if err := h.Open(path(id)); err != nil {
			t.Fatal(err)
		}
		await(t, h, id, func(*trace.Model) bool { return sourceState(h, path(id)) == watch.Complete })
	}
	await(t, h, "a", func(*trace.Model) bool { return sourceState(h, path("a")) == watch.Complete })
	open("b", begun.Add(300*time.Millisecond))
	open("old", begun.Add(-time.Hour))
	open("c", begun.Add(400*time.Millisecond))
	want := []string{"a/1 request a ok", "b/1 request b ok", "c/1 request c ok", "a/3 request a ok", "a/5 request a ok", "old/1 request old ok"}
	if diff := cmp.Diff(want, rows(h)); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, selected(t, h, sel)); diff != "" {
		t.Errorf("selected rows (-want +got):\n%s", diff)
	}
	f := h.Subscribe(0)
	defer f.Close()
	var sent []string
	if err := f.Next(t.Context(), func(b *watch.Batch) {
		for _, r := range b.Changed {
			sent = append(sent, fmt.Sprintf("%s/%d", r.Capture.ID, r.N))
		}
	}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a/1", "b/1", "c/1", "a/3", "a/5", "old/1"}, sent); diff != "" {
		t.Errorf("rows of a reset (-want +got):\n%s", diff)
	}
	h.Read(func(m *trace.Model) {
		for _, r := range m.Rows() {
			if got := m.RowOf(r.Seq); got != r {
				t.Errorf("RowOf(%d) = %v, want row %d of %s", r.Seq, got, r.N, r.Capture.ID)
			}
		}
		if got := m.RowOf(1000); got != nil {
			t.Errorf("RowOf(1000) = row %d of %s, want nil", got.N, got.Capture.ID)
		}
	})
}

// TestSelectDropped shows that evicted rows are removed from selections.
func TestSelectDropped(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "a"+suffix), "a", begun, 3000, tail())
	h := watch.New(&watch.Options{Files: []string{path}, MaxRows: 100, NoRules: true})
	var list []*watch.Selection
	for _, text := range []string{"", "tool:a", "question"} {
		s := h.Select(parse(t, text))
		defer s.Close()
		list = append(list, s)
	}
	none := h.Select(nil)
	run(t, h)
	await(t, h, "the capture", func(*trace.Model) bool { return sourceState(h, path) == watch.Complete })
	for i, s := range append(list, none) {
		if got := len(selected(t, h, s)); got != 100 {
			t.Errorf("selection %d has %d rows, want 100", i, got)
		}
	}
	s := list[1]
	s.Close()
	s.Close()
	none.Close()
	h.Read(func(*trace.Model) {
		if s.Len() != 0 || s.At(0) != nil {
			t.Error("a closed selection has rows")
		}
	})
}

// TestSelectBatch shows that every message of a batch counts for its own row.
func TestSelectBatch(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "a"+suffix), "a", begun, 0,
		&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: []byte(`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping","params":{"x":"needle"}}]`)}, tail())
	h := running(t, &watch.Options{Files: []string{path}, NoRules: true})
	await(t, h, "the capture", func(*trace.Model) bool { return sourceState(h, path) == watch.Complete })
	s := h.Select(parse(t, "needle"))
	defer s.Close()
	await(t, h, "the search", func(*trace.Model) bool { return s.Len() == 2 })
}

// TestSelectSession shows that facts about a session that become known later apply to its earlier
// rows.
func TestSelectSession(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "a"+suffix), "a", begun, 0,
		&capture.Event{Kind: capture.KindStart, Start: &capture.Start{Command: []string{"x"}}},
		&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: []byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)},
		&capture.Event{Kind: capture.KindMessage, Dir: capture.ToClient, Data: []byte(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}`)},
		tail())
	h := watch.New(&watch.Options{Files: []string{path}, NoRules: true})
	s := h.Select(parse(t, "rev:2025-06-18"))
	defer s.Close()
	run(t, h)
	await(t, h, "the capture", func(*trace.Model) bool { return sourceState(h, path) == watch.Complete })
	if got := len(selected(t, h, s)); got != 2 {
		t.Errorf("%d rows, want 2", got)
	}
}

// BenchmarkSelect selects among 100,000 rows.
func BenchmarkSelect(b *testing.B) {
	path := write(b, filepath.Join(b.TempDir(), "a"+suffix), "a", begun, 100_000, tail())
	h := running(b, &watch.Options{Files: []string{path}, NoRules: true})
	began := time.Now()
	await(b, h, "the capture", func(*trace.Model) bool { return sourceState(h, path) == watch.Complete })
	b.ReportMetric(float64(200_000)/time.Since(began).Seconds(), "events/s-loaded")
	for _, text := range []string{"tool:a", "status:failed", "dur>100ms tool:/^a/", "\"answer 99999\""} {
		b.Run(text, func(b *testing.B) {
			f := parse(b, text)
			for b.Loop() {
				s := h.Select(f)
				for busy := true; busy; {
					_, busy = s.SearchProgress()
				}
				s.Close()
			}
		})
	}
}

// TestSelectManyEvents checks that text in a late event of a row is found, although the row keeps
// only the numbers of its first events.
func TestSelectManyEvents(t *testing.T) {
	events := []*capture.Event{{Kind: capture.KindRequest, Dir: capture.ToServer, Exchange: 1, Request: &capture.Request{Method: "POST", URL: "/mcp"}}}
	for i := range 60 {
		events = append(events, &capture.Event{Kind: capture.KindBody, Dir: capture.ToServer, Exchange: 1, Data: fmt.Appendf(nil, `{"x":"piece%dx"}`, i)})
	}
	path := write(t, filepath.Join(t.TempDir(), "a"+suffix), "a", begun, 0, append(events, tail())...)
	h := running(t, &watch.Options{Files: []string{path}, NoRules: true})
	await(t, h, "the capture", func(*trace.Model) bool { return sourceState(h, path) == watch.Complete })
	for _, text := range []string{"piece3x", "piece55x"} {
		s := h.Select(parse(t, text))
		await(t, h, text, func(*trace.Model) bool { _, busy := s.SearchProgress(); return !busy && s.Len() == 1 })
		s.Close()
	}
}

// TestSelectWhole shows that a selection of a capture whose rows were partly evicted has the rows that
// a hub with room for all of them selects, and counts those that it has no room for.
func TestSelectWhole(t *testing.T) {
	const calls = 3000
	var events []*capture.Event
	for i := range calls {
		pair := call(i, fmt.Sprint("tool", i%7))
		if i%97 == 0 {
			pair[1].Data = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"error":{"code":-32603,"message":"boom"}}`, i)
		}
		events = append(events, pair...)
	}
	path := write(t, filepath.Join(t.TempDir(), "a"+suffix), "a", begun, 0, append(events, tail())...)
	whole := running(t, &watch.Options{Files: []string{path}, MaxRows: calls + 10})
	small := running(t, &watch.Options{Files: []string{path}, MaxRows: 200})
	for _, h := range []*watch.Hub{whole, small} {
		await(t, h, "the capture", func(*trace.Model) bool { return sourceState(h, path) == watch.Complete })
	}
	for _, text := range []string{"status:error", "\"answer 55\"", "n:1-20", "tool:tool3", "-status:ok", "-status:ok -boom", "finding:error", "tool:*", "nothing"} {
		t.Run(text, func(t *testing.T) {
			f := parse(t, text)
			all := whole.Select(f)
			defer all.Close()
			await(t, whole, "the search", func(*trace.Model) bool { _, busy := all.SearchProgress(); return !busy })
			want := selected(t, whole, all)
			s := small.SelectWhole(f)
			defer s.Close()
			if !s.Whole() || s.Hub() == small {
				t.Fatal("the selection has only rows that were not evicted")
			}
			await(t, small, "the search", func(*trace.Model) bool { _, busy := s.SearchProgress(); return !busy })
			var matches uint64
			s.Hub().Read(func(*trace.Model) { matches = s.Matches() })
			if matches != uint64(len(want)) {
				t.Errorf("%d rows match, want %d", matches, len(want))
			}
			got := selected(t, s.Hub(), s)
			if len(want) > 100 && len(got) >= 50 && len(got) <= 200 { // no room for all: the newest
				want = want[len(want)-len(got):]
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			seqs := map[bool]int{}
			s.Hub().Read(func(*trace.Model) {
				for i := range s.Len() {
					seqs[s.Hub().HasSeq(s.At(i).Seq) && !small.HasSeq(s.At(i).Seq)]++
				}
			})
			if seqs[false] > 0 {
				t.Errorf("%d rows have numbers of another hub", seqs[false])
			}
		})
	}
}

// TestSelectWholeStops shows that closing a selection ends the reading of files, and that rows
// without a file are not read again.
func TestSelectWholeStops(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "a"+suffix), "a", begun, 3000, tail())
	h := watch.New(&watch.Options{Files: []string{path}, MaxRows: 100, NoRules: true})
	stop := run(t, h)
	await(t, h, "the capture", func(*trace.Model) bool { return sourceState(h, path) == watch.Complete })
	s := h.SelectWhole(parse(t, "tool:a"))
	s.Close()
	stop() // waits for all goroutines
	if s := h.SelectWhole(parse(t, "tool:a")); s.Whole() {
		t.Error("a hub that has stopped reads files")
	}
	live := filepath.Join(t.TempDir(), "live")
	p := startTap(t, live, "", nil)
	h = running(t, &watch.Options{SocketDir: live, MaxRows: 100, NoRules: true})
	for i := range 200 {
		p.call(i)
	}
	await(t, h, "the rows", func(m *trace.Model) bool { return m.EvictedRows() > 0 })
	s = h.SelectWhole(parse(t, "tool:search"))
	defer s.Close()
	if s.Whole() || s.Hub() != h {
		t.Error("a tap without a file cannot be read again")
	}
}

// TestForwarded shows that a message and what a tap with --intercept made of it are one row, with the
// forwarded message inside, in the timeline, in selections and in feeds. The rows of a bridge remain.
func TestForwarded(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "held"+suffix)
	on := func(side capture.Side, e *capture.Event) *capture.Event {
		own := *e
		own.Side, own.Session = side, 1
		if side == capture.Upstream {
			own.Session = 2
		}
		return &own
	}
	link := func(of, to uint64, rule string) *capture.Event {
		return &capture.Event{Kind: capture.KindTranslate, Session: 1, Translation: &capture.Translation{Of: of, To: []uint64{to}, Rule: rule}}
	}
	message := func(dir capture.Dir, text string) *capture.Event {
		return &capture.Event{Kind: capture.KindMessage, Dir: dir, Data: []byte(text)}
	}
	const down, up = capture.Downstream, capture.Upstream
	one, two, three := call(1, "one"), call(2, "two"), call(3, "three")
	log := message(capture.ToClient, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"hello"}}`)
	edited := message(capture.ToServer, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"two","arguments":{"q":"edited"}}}`)
	write(t, path, "held", begun, 0,
		on(down, one[0]), on(up, one[0]), link(1, 2, "passed"), on(up, one[1]), on(down, one[1]), link(4, 5, "forwarded"),
		on(up, log), on(down, log), link(7, 8, "forwarded"),
		on(down, two[0]), on(up, edited), link(10, 11, "edited"), on(up, two[1]), on(down, two[1]), link(13, 14, "forwarded"),
		on(down, three[0]), on(up, three[0]), link(16, 17, "same"), tail(),
	)
	h := running(t, &watch.Options{NoRules: true})
	calls, payload := h.Select(parse(t, "method:tools/call")), h.Select(parse(t, `"edited"`))
	defer calls.Close()
	defer payload.Close()
	f := h.Subscribe(0)
	defer f.Close()
	if err := h.Open(path); err != nil {
		t.Fatal(err)
	}
	(&replica{}).follow(t, f, h, func(*trace.Model) bool { return sourceState(h, path) == watch.Complete })
	var got []string
	h.Read(func(m *trace.Model) {
		for _, r := range m.Rows() {
			for x := range r.All() {
				got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s", describe(x), x.Session.Side, x.Role)))
			}
		}
	})
	want := []string{
		"held/1 request one ok downstream", "held/2 request one ok upstream forwarded",
		"held/7 log info  upstream", "held/8 log info  downstream forwarded",
		"held/10 request two ok downstream", "held/11 request two ok upstream forwarded",
		"held/16 request three unanswered downstream", "held/17 request three unanswered upstream",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"held/1 request one ok", "held/10 request two ok", "held/16 request three unanswered", "held/17 request three unanswered"}, selected(t, h, calls)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"held/10 request two ok"}, selected(t, h, payload)); diff != "" {
		t.Errorf("rows with the edited text (-want +got):\n%s", diff)
	}
}
