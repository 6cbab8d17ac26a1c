package check

import (
	"fmt"
	"testing"

	"mcpwire/capture"
)

// TestEvictOldCaptures shows that a capture in use is not evicted, however many others come.
func TestEvictOldCaptures(t *testing.T) {
	ck := New(nil)
	add := func(id string, e capture.Event) []Finding {
		e.Capture = id
		return ck.Add(&capture.Head{ID: id, Transport: capture.TransportStdio}, &e)
	}
	message := func(id string, n uint64, text string) []Finding {
		return add(id, capture.Event{Kind: capture.KindMessage, N: n, Dir: capture.ToClient, Framing: capture.FramingLF, Session: n, Data: []byte(text)})
	}
	stray := `{"jsonrpc":"2.0","id":7,"result":{}}`
	add("gap", capture.Event{Kind: capture.KindGap, N: 1, Gap: &capture.Gap{Lost: 1}})
	for i := range 2 * maxCaptures {
		id := fmt.Sprint(i)
		add(id, capture.Event{Kind: capture.KindHead, Head: &capture.Head{ID: id, Transport: capture.TransportStdio}})
		if found := message(id, 1, stray); len(found) == 0 {
			t.Fatalf("no finding about the stray response in capture %d", i)
		}
		if found := message("gap", uint64(i)+2, stray); len(found) > 0 {
			t.Fatalf("after %d captures, a response in a capture with a gap is a finding: %s", i+1, found[0].Message)
		}
		if len(ck.captures) > maxCaptures {
			t.Fatalf("%d captures", len(ck.captures))
		}
	}
	// Events may have come before the eviction.
	if found := message("0", 2, stray); len(found) > 0 {
		t.Errorf("a response in an evicted capture is a finding: %s", found[0].Message)
	}
}

// TestEvictOldSharedHTTP shows that traffic in use keeps its session, however much other traffic
// comes.
func TestEvictOldSharedHTTP(t *testing.T) {
	ck := New(&Options{Limits: Limits{MaxSessions: 8}})
	key := func(n uint64) sessionKey { return sessionKey{capture: "c", number: n} }
	known := ck.sharedHTTPOf(key(0))
	for n := range uint64(100) {
		ck.sharedHTTPOf(key(n + 1))
		if ck.sharedHTTPOf(key(0)) != known {
			t.Fatalf("after %d others, the session is evicted", n+1)
		}
		if len(ck.sharedHTTP) > 8 {
			t.Fatalf("%d are kept", len(ck.sharedHTTP))
		}
	}
	if ck.sessionsEvicted == 0 {
		t.Error("later sessions count as complete")
	}
}
