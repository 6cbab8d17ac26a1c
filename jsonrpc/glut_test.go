package jsonrpc

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// However much senders have queued, the leader does not wait for room: the peer may read on only once the leader has read what it says.
func TestLeaderDoesNotWaitForSenders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := memoryPipe(10)
		var w writer
		var wg sync.WaitGroup
		w.init(sourceOf(NewFramer(near, nil)), 100, new(failures), &wg)
		post := func(n int) error {
			b := []byte(strings.Repeat("x", n))
			return w.postWithin(t.Context(), 0, &b)
		}
		var senders sync.WaitGroup
		for range 20 {
			senders.Go(func() {
				if err := post(90); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if n := w.queued(); n > 100+90 {
			t.Errorf("%d bytes are queued: senders that waited together were let in together", n)
		}
		b := []byte(strings.Repeat("y", 1000)) // the last that has room is as large as it likes
		if err := w.post(&b); err != nil {
			t.Fatal(err)
		}
		if w.leaderBlocked() {
			t.Error("the leader would wait for what senders have queued")
		}
		answer := []byte(strings.Repeat("z", 201))
		if err := w.put(&answer); err != nil {
			t.Fatal(err)
		}
		if !w.leaderBlocked() {
			t.Error("the leader would not wait though the peer takes none of its answers")
		}
		for range 400 {
			far.in.take()
			synctest.Wait()
		}
		senders.Wait()
		wg.Wait()
		if w.queued() != 0 || w.leaderBlocked() {
			t.Errorf("%d bytes are left, stuck: %v", w.queued(), w.leaderBlocked())
		}
	})
}
