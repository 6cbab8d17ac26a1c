package streamable

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestDecide shows that a caller gets its share and leaves the rest to others.
func TestDecide(t *testing.T) {
	const perCaller, max = 512, 64
	for _, tt := range []struct {
		name        string
		n, inFlight int64
		max         int64
		want        *rejection
	}{
		{"first request", 1, 1, max, nil},
		{"one caller, below its share", 43, 43, max, nil},
		{"one caller, above its share", 44, 44, max, rateLimitedRequests},
		{"first request of a second caller", 1, 44, max, nil},
		{"second request of a second caller", 2, 45, max, nil},
		{"second caller, last slot", 1, 64, max, nil},
		{"second caller, no slot left", 1, 65, max, overloadedRequests},
		{"above MaxInFlightPerCaller", 513, 600, 4096, rateLimitedRequests},
		{"above both limits", 513, 5000, 4096, rateLimitedRequests},
		{"one slot", 1, 1, 1, nil},
		{"one slot, second request", 2, 2, 1, overloadedRequests},
	} {
		if got := decide(tt.n, perCaller, tt.inFlight, tt.max); got != tt.want {
			t.Errorf("%s: decide(%d of %d, %d of %d) = %v, want %v", tt.name, tt.n, perCaller, tt.inFlight, tt.max, got, tt.want)
		}
	}
}

// TestShares shows that callers that send as many requests as possible get equal shares, and that
// another caller is still admitted.
func TestShares(t *testing.T) {
	const places = 4096
	for _, hogs := range []int{1, 2, 10, 100, 800} {
		inFlight, got := int64(0), make([]int64, hogs)
		for again := true; again; {
			again = false
			for i := range got {
				if decide(got[i]+1, places, inFlight+1, places) == nil {
					got[i]++
					inFlight++
					again = true
				}
			}
		}
		least, most := got[0], got[0]
		for _, n := range got {
			least, most = min(least, n), max(most, n)
		}
		if most-least > 1 || decide(1, places, inFlight+1, places) != nil {
			t.Errorf("%d callers have %d to %d in flight, and %d slots are free", hogs, least, most, places-inFlight)
		}
	}
}

// TestSlot shows that a slot is counted once in each of its states and not after its release, and
// that a caller without slots is removed.
func TestSlot(t *testing.T) {
	var a admission
	o := &Options{Limits: Limits{MaxPerCaller: 2}}
	o.setDefaults()
	a.init(o)
	var got []string
	note := func(what string) {
		got = append(got, fmt.Sprintf("%s: %s", what, a.inUse()))
	}
	admit := func(s *slot, caller string) {
		if e := a.admit(s, caller, new(postRequest), false); e != nil {
			t.Fatal("rejected:", e.reason)
		}
	}
	slots := make([]slot, 6)
	for i := range slots {
		admit(&slots[i], fmt.Sprint("caller ", i%2))
	}
	note("six admitted")
	if e := slots[0].admitRequest(); e != nil {
		t.Fatal(e.reason)
	}
	if e := slots[0].admitBatch(3); e != nil {
		t.Fatal(e.reason)
	}
	note("one with a batch of four")
	if e := slots[0].admitBatch(5000); e != rateLimitedRequests {
		t.Errorf("a batch above the limit: %v", e)
	}
	note("a rejected batch")
	moved := slots[0].detach()
	if !slots[0].release() {
		t.Error("the memory of a detached slot is in use")
	}
	note("detached")
	for i, want := range []*rejection{nil, nil, rateLimitedStreams} {
		if e := slots[1+2*i].stand(); e != want {
			t.Errorf("stream %d: %v, want %v", i, e, want)
		}
	}
	note("two of three streams")
	standing := slots[1].detach()
	note("one of them detached")
	if n := len(a.markAborted()); n != 4 {
		t.Errorf("%d requests are aborted, want 4: all but the streams", n)
	}
	var reusable []bool
	for i := range slots {
		// the second release has no effect
		reusable = append(reusable, slots[i].release(), slots[i].release())
	}
	// Streams are not aborted, and slots[0] was detached before.
	if diff := cmp.Diff([]bool{true, true, true, true, false, false, true, true, false, false, false, false}, reusable); diff != "" {
		t.Errorf("reusable (-want +got):\n%s", diff)
	}
	note("all released but the detached ones")
	standing.release()
	note("the detached stream too")
	moved.release()
	note("all released")
	admit(&slots[5], "caller 0")
	if !slots[5].release() {
		t.Error("a new request in a reused slot is aborted")
	}
	want := []string{
		"six admitted: 6 active, 0 requests, 0 streams of 0 callers, 6 in flight of 2 callers, 6 listed",
		"one with a batch of four: 6 active, 4 requests, 0 streams of 0 callers, 9 in flight of 2 callers, 6 listed",
		"a rejected batch: 6 active, 4 requests, 0 streams of 0 callers, 9 in flight of 2 callers, 6 listed",
		"detached: 6 active, 4 requests, 0 streams of 0 callers, 9 in flight of 2 callers, 6 listed",
		"two of three streams: 6 active, 4 requests, 2 streams of 1 callers, 7 in flight of 2 callers, 4 listed",
		"one of them detached: 6 active, 4 requests, 2 streams of 1 callers, 7 in flight of 2 callers, 4 listed",
		"all released but the detached ones: 2 active, 4 requests, 1 streams of 1 callers, 4 in flight of 2 callers, 1 listed",
		"the detached stream too: 1 active, 4 requests, 0 streams of 0 callers, 4 in flight of 1 callers, 1 listed",
		"all released: 0 active, 0 requests, 0 streams of 0 callers, 0 in flight of 0 callers, 0 listed",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	select {
	case <-a.idle:
		t.Error("idle before it is closed")
	default:
	}
	admit(&slots[0], "caller 0")
	a.close()
	if e := a.admit(&slots[1], "caller 0", nil, false); e != rejectedByShutdown {
		t.Errorf("during a shutdown: %v", e)
	}
	slots[0].release()
	<-a.idle
	a.close()
}

// inUse formats all counters.
func (a *admission) inUse() string {
	callers, inFlight, listed := 0, 0, 0
	for i := range a.shards {
		shard := &a.shards[i]
		shard.mu.Lock()
		for _, c := range shard.byID {
			callers++
			inFlight += c.inFlight
		}
		for s := shard.listed; s != nil; s = s.next {
			listed++
		}
		shard.mu.Unlock()
	}
	a.streamsPerCaller.mu.Lock()
	defer a.streamsPerCaller.mu.Unlock()
	return fmt.Sprintf("%d active, %d requests, %d streams of %d callers, %d in flight of %d callers, %d listed",
		a.active.Load(), a.requests.Load(), a.streams.Load(), len(a.streamsPerCaller.byID), inFlight, callers, listed)
}

// InUse formats all counters of h's requests and streams, and reports whether all are zero.
func InUse(h *Handler) (text string, nothing bool) {
	text = h.admission.inUse()
	return text, text == new(admission).inUse() && h.admission.unread.bytes.Load() == 0
}

// TestUnreadBudget checks that the responses that many clients do not read stay within the limit,
// with those that wait, that a client that reads then gets room, and that the memory is returned to
// the system once after the clients have left.
func TestUnreadBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, size = 256 << 20, 16 << 20
		var a admission
		a.init(&Options{Limits: Limits{MaxUnread: limit}})
		var returned atomic.Int64
		b := &a.unread
		b.returnMemory = func() { returned.Add(1) }
		left := make(chan struct{})
		var dropped atomic.Int64
		for i := range 40 {
			go func() {
				caller := fmt.Sprint(i)
				if !b.acquire(t.Context(), caller, size) {
					dropped.Add(1)
					return
				}
				<-left
				b.release(caller, size)
			}()
		}
		synctest.Wait()
		if n := b.bytes.Load(); n > limit || n < limit/2 {
			t.Errorf("%d bytes are unread, want up to %d", n, limit)
		}
		time.Sleep(2 * unreadTimeout)
		if got, want := dropped.Load(), int64(28); got != want {
			t.Errorf("%d responses were dropped, want %d", got, want)
		}
		close(left)
		synctest.Wait()
		if !b.acquire(t.Context(), "reader", limit/2) || b.bytes.Load() != limit/2 {
			t.Errorf("%d bytes are in use after the clients have left", b.bytes.Load())
		}
		b.release("reader", limit/2)
		time.Sleep(2 * returnPause)
		synctest.Wait()
		if returned.Load() != 2 {
			t.Errorf("memory was returned %d times, want once after the clients and once after the reader", returned.Load())
		}
		for range 10 { // these need not be returned at once
			b.acquire(t.Context(), "reader", minReturned/2)
			b.release("reader", minReturned/2)
		}
		time.Sleep(2 * returnPause)
		synctest.Wait()
		if returned.Load() != 2 {
			t.Errorf("memory was returned %d times after small responses", returned.Load()-2)
		}
	})
}
