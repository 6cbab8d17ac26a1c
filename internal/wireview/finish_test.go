package wireview_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/internal/wireview"
)

func TestFinishCapture(t *testing.T) {
	m := wireview.New(nil)
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
	got := map[string]wireview.Status{}
	for _, r := range m.Rows() {
		got[fmt.Sprint(r.Capture.ID, r.N)] = r.Status
	}
	want := map[string]wireview.Status{"a1": wireview.Unanswered, "a2": wireview.Unanswered, "b1": wireview.Pending, "b2": wireview.Pending}
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
