package natscluster_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"mcpwire/cluster/natscluster"
)

// TestLost checks that the backend counts messages that were dropped because too many were pending,
// including those of a subscription that has ended.
func TestLost(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b := openTest(t, natscluster.Options{Embed: &natscluster.Embed{Dir: t.TempDir()}})
	hold, begun := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	first := true
	stop, err := b.Bus().Subscribe(ctx, "t", func([]byte) {
		if first {
			first = false
			close(begun)
			<-hold
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	publish := func(n int) {
		t.Helper()
		for range n {
			if err := b.Bus().Publish(ctx, "t", []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		// What was published before has arrived when this subscription exists.
		end, err := b.Bus().Subscribe(ctx, "other", func([]byte) {})
		if err != nil {
			t.Fatal(err)
		}
		end()
	}
	publish(1)
	<-begun
	const dropped = 10
	publish(4096 + dropped)
	lost := b.Lost()
	if lost != dropped && lost != dropped+1 { // the first one may count as waiting
		t.Errorf("got %d lost messages, want %d", lost, dropped)
	}
	release()
	stop()
	if got := b.Lost(); got != lost {
		t.Errorf("got %d lost messages after the subscription, want %d", got, lost)
	}
}
