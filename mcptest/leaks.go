package mcptest

import (
	"testing"

	"go.uber.org/goleak"
)

// CheckLeaks fails the test if goroutines that have been started since still run when it ends, and shows their stacks. It gives them half a second
// to return. Call it first, so that it looks last, behind the cleanup of [Serve] and [NewPeer]:
//
//	func TestServer(t *testing.T) {
//		mcptest.CheckLeaks(t)
//		p := mcptest.NewPeer(t, mcptest.Serve(t, newServer(t)))
//		…
//
// It sees all goroutines of the process, so a test that runs in parallel with others cannot use it. A bubble of testing/synctest needs no such
// check: it panics if a goroutine is left waiting when its test has ended.
func CheckLeaks(t testing.TB) {
	t.Helper()
	since := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		t.Helper()
		if err := goleak.Find(since); err != nil {
			t.Errorf("goroutines are left behind: %v", err)
		}
	})
}
