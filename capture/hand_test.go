package capture_test

import (
	"bytes"
	"sync"
	"testing"

	"mcpwire/capture"
)

// TestHand hands payloads over: each is in the capture as it was, or counted as lost, and given back once.
func TestHand(t *testing.T) {
	var (
		mu    sync.Mutex
		freed = map[string]int{}
	)
	hand := func(w *capture.Writer, name string, data []byte) uint64 {
		return w.RecordOwned(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: data}, func() {
			mu.Lock()
			defer mu.Unlock()
			freed[name]++
			for i := range data { // whoever reads it now finds nothing
				data[i] = 0
			}
		})
	}
	payload := func(n int) []byte { return append(append([]byte(`"`), bytes.Repeat([]byte("x"), n-2)...), '"') }

	var out bytes.Buffer
	w := capture.NewWriter(&out, &capture.Options{Unredacted: true, MaxQueue: 4 << 20})
	hand(w, "small", payload(100))
	hand(w, "large", payload(1<<20))
	hand(w, "above the limit", payload(3<<20)) // recorded in part
	hand(w, "no room", payload(2<<20))         // lost, unless the disk was quick
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if n := hand(w, "closed", payload(1<<20)); n != 0 {
		t.Errorf("after Close: got number %d", n)
	}
	for _, name := range []string{"small", "large", "above the limit", "no room", "closed"} {
		if freed[name] != 1 {
			t.Errorf("%s: given back %d times", name, freed[name])
		}
	}
	var seen, lost uint64
	for e, err := range capture.NewReader(&out, nil).Events() {
		if err != nil {
			t.Fatal(err)
		}
		switch e.Kind {
		case capture.KindMessage:
			seen++
			if rest := bytes.Trim(e.Data, `x"`); len(rest) > 0 {
				t.Errorf("event %d is not what was handed over", e.N)
			}
		case capture.KindGap:
			lost += e.Gap.Lost
		}
	}
	if seen+lost != 4 || seen < 2 {
		t.Errorf("%d events and %d lost, want 4 in all", seen, lost)
	}
}
