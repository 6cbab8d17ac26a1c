package bridge

import (
	"fmt"
	"testing"
	"testing/synctest"

	"mcpwire/internal/rpc"
)

// newClient returns a client of a caller without a separate limit, or nil if a limit is reached.
func (b *Bridge) newClient(out rpc.Sender, owner string, many bool) *client {
	cl, _ := b.newClientFor("", out, owner, many)
	return cl
}

// inFlight returns the number of pending requests.
func (cl *client) inFlight() int {
	calls, subscriptions := cl.pending()
	return calls + subscriptions
}

// TestIdleOutbox checks that an idle client has no sending goroutine, that messages keep their
// order, and that all of them are sent before the goroutine ends.
func TestIdleOutbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFakeServer(t).bridge(&Options{Shared: true, ClientEra: EraLegacy})
		blocked := make(chan struct{})
		var got []string
		cl := b.newClient(senderFunc(func(m []byte) error {
			<-blocked
			got = append(got, string(m))
			return nil
		}), "", false)
		defer cl.close()
		sending := func() bool {
			cl.outbox.mu.Lock()
			defer cl.outbox.mu.Unlock()
			return cl.outbox.sending
		}
		if sending() {
			t.Error("a goroutine runs without a message")
		}
		var want []string
		for i := range 3 {
			want = append(want, fmt.Sprint(i))
			if err := cl.out.Send([]byte(want[i])); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if !sending() {
			t.Error("no goroutine sends the messages")
		}
		close(blocked)
		synctest.Wait()
		if sending() || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %q, want %q, and that the goroutine has ended", got, want)
		}
		cl.close()
		if err := cl.out.Send([]byte("late")); err == nil {
			t.Error("Send after close: got no error")
		}
		cl.outbox.running.Wait()
	})
}
