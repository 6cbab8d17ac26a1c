package live_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/internal/live"
)

// TestUnwatched: a tap without a file records only how it began while nobody watches, and everything from when somebody does.
func TestUnwatched(t *testing.T) {
	s := live.NewServer(nil)
	w := capture.NewWriter(io.Discard, &capture.Options{Tee: s, Want: s.Wants})
	t.Cleanup(func() { w.Close() })
	if err := s.Start(folder(t), live.Greeting{Capture: w.ID()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	large := ping(0)
	large.Data = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":0,"method":"ping","params":{"x":"%s"}}`, strings.Repeat("x", 600<<10))
	w.Record(ping(1))
	w.Record(large)
	w.Record(large) // 3: there is no room for it any more
	w.Record(ping(4))
	w.Record(&capture.Event{Kind: capture.KindNote, Data: []byte("always")})
	flush(t, w)
	if s.Wants(600 << 10) {
		t.Error("more than 1 MiB is wanted though nobody watches")
	}
	c := dial(t, s.Path())
	if !s.Wants(50 << 20) {
		t.Error("a large event is not wanted though somebody watches")
	}
	w.Record(large)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for e, err := range capture.NewReader(c, nil).Events() {
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprint(e.Kind, e.N)
		if e.Gap != nil {
			text += fmt.Sprint(" ", e.Gap.Why, e.Gap.Lost)
		}
		got = append(got, text)
		if e.Kind == capture.KindTail {
			break
		}
	}
	if diff := cmp.Diff([]string{"head0", "msg1", "msg2", "gap3 unwatched1", "msg4", "note5", "msg6", "tail7"}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
