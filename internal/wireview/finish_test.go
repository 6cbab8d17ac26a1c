package trace_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/internal/wireview"
)

func TestFinishCapture(t *testing.T) {
	m := trace.New(nil)
	add := func(id string, n uint64, data string) {
		m.Add(&capture.Head{ID: id}, &capture.Event{
			Kind: capture.KindMessage, Dir: capture.ToServer, Capture: id, N: n, T: time.Duration(n), Data: []byte(data),
		})
	}
	for n := range uint64(2) {
		add("a", n+1, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"x"}}`, n))
		add("b", n+1, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"x"}}`, n))
	}
	var changed []uint64
	for _, c := range m.FinishCapture("a") {
		changed = append(changed, c.Row.N)
	}
	if diff := cmp.Diff([]uint64{1, 2}, changed); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	got := map[string]trace.Status{}
	for _, r := range m.Rows() {
		got[fmt.Sprint(r.Capture.ID, r.N)] = r.Status
	}
	want := map[string]trace.Status{"a1": trace.Unanswered, "a2": trace.Unanswered, "b1": trace.Pending, "b2": trace.Pending}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
	if again := m.FinishCapture("a"); len(again) != 0 {
		t.Errorf("%d changes the second time", len(again))
	}
	if none := m.FinishCapture("no such"); len(none) != 0 {
		t.Errorf("%d changes of a capture that there is not", len(none))
	}
}

// TestUnansweredWaits: a request without an answer took until the last event of its session, and says
// so everywhere; an answer that comes all the same counts instead.
func TestUnansweredWaits(t *testing.T) {
	m := trace.New(nil)
	head := &capture.Head{ID: "a"}
	add := func(n uint64, at time.Duration, kind capture.Kind, dir capture.Dir, data string) {
		e := &capture.Event{Kind: kind, Dir: dir, Capture: "a", N: n, T: at}
		if data != "" {
			e.Data = []byte(data)
		}
		m.Add(head, e)
	}
	add(1, time.Second, capture.KindMessage, capture.ToServer, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)
	add(2, 2*time.Second, capture.KindMessage, capture.ToServer, `{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	add(3, 3*time.Second, capture.KindMessage, capture.ToClient, `{"jsonrpc":"2.0","id":2,"result":{}}`)
	add(4, 401*time.Second, capture.KindEOF, capture.ToServer, "")
	row := m.Find("a", 1)
	if _, known := row.Elapsed(); known || row.Wall() != 0 {
		t.Errorf("before the end: %v, known %v", row.Wall(), known)
	}
	m.Finish()
	if took, known := row.Elapsed(); !known || took != 400*time.Second {
		t.Errorf("took %v, known %v", took, known)
	}
	rec := trace.NewRecord(row)
	if rec.LatencyMS == nil || *rec.LatencyMS != 400_000 || rec.Status != trace.Unanswered {
		t.Errorf("recorded: %v, %s", rec.LatencyMS, rec.Status)
	}
	if diff := cmp.Diff([]trace.Segment{{Kind: trace.SegmentServer, From: time.Second, To: 401 * time.Second}}, row.AppendSegments(nil)); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	stat := func() *trace.Stat { return m.Tools()[0] }
	if s := stat(); s.Unanswered != 1 || s.LongestWait != 400*time.Second || s.Latency.Count() != 0 {
		t.Errorf("statistics: %d unanswered for %v, %d answered", s.Unanswered, s.LongestWait, s.Latency.Count())
	}
	if got := m.TotalRows(); got != 3 {
		t.Errorf("%d rows captured, want 3", got)
	}
	add(5, 402*time.Second, capture.KindMessage, capture.ToClient, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	if s := stat(); row.Status == trace.Unanswered && (s.Unanswered != 1 || row.Latency != 400*time.Second) ||
		row.Status != trace.Unanswered && (s.Unanswered != 0 || s.LongestWait != 0 || row.Latency != 401*time.Second) {
		t.Errorf("afterwards: %s in %v, %d unanswered for %v", row.Status, row.Latency, s.Unanswered, s.LongestWait)
	}
}

// TestCapturedRows: those that have made room count.
func TestCapturedRows(t *testing.T) {
	m := trace.New(&trace.Options{MaxRows: 10})
	for n := range uint64(25) {
		m.Add(&capture.Head{ID: "a"}, &capture.Event{Kind: capture.KindNote, Capture: "a", N: n + 1, Data: []byte("x")})
	}
	if got := m.TotalRows(); got != 25 || len(m.Rows()) != 10 {
		t.Errorf("%d rows captured and %d kept, want 25 and 10", got, len(m.Rows()))
	}
}
