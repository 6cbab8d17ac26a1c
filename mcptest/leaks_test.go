package mcptest_test

import (
	"strings"
	"testing"

	"mcpwire/mcptest"
)

func TestCheckLeaks(t *testing.T) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	got := failures(t, func(t testing.TB) {
		mcptest.CheckLeaks(t)
		go leave(stop, stopped)
	})
	if len(got) != 1 || !strings.HasPrefix(got[0], "goroutines are left behind: ") || !strings.Contains(got[0], "mcptest_test.leave") {
		t.Errorf("failures: %q", got)
	}
	// The one that runs already is not this test's.
	got = failures(t, func(t testing.TB) {
		mcptest.CheckLeaks(t)
		p := mcptest.NewPeer(t, mcptest.Serve(t, echo))
		p.Send("1")
		p.Expect("1")
		mcptest.Script(t, func(p *mcptest.Peer) { p.ExpectClose() })
	})
	if len(got) > 0 {
		t.Errorf("failures without a leak: %q", got)
	}
	close(stop)
	<-stopped
}

func leave(stop, stopped chan struct{}) {
	<-stop
	close(stopped)
}
