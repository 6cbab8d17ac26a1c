package mcptest

import (
	"testing"
	"time"
)

// scriptTimeout is how long a script may go on when the test has ended, beyond what its waits take.
const scriptTimeout = 30 * time.Second

// Script runs play on a goroutine of its own, with a peer that plays the server, and returns the other end of its connection: for the client under
// test to dial. In play, what fails ends play alone, and hangs up, so that the client's calls fail too. Play must not call methods of t that end
// the test, such as t.Fatal.
//
// The connection stays open when play has returned. When the test ends, play must have been played to its end, and the client should have hung up;
// messages that came and that play did not expect fail the test.
func Script(t testing.TB, script func(p *Peer)) *End {
	t.Helper()
	clientEnd, serverEnd := Pipe()
	p := newPeer(t, serverEnd)
	p.script = true
	done := make(chan struct{})
	go func() {
		defer close(done)
		script(p)
	}()
	t.Cleanup(func() {
		t.Helper()
		defer clientEnd.Close()
		clientEnd.CloseWrite()
		timer := time.NewTimer(scriptTimeout)
		defer timer.Stop()
		select {
		case <-done:
		case <-timer.C:
			t.Errorf("the script has not returned within %v of the end of the test", scriptTimeout)
			return
		}
		p.closeAndCheck()
	})
	return clientEnd
}
