package natscluster

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/cluster"
)

// TestLeaders checks when an append to a stream without a leader fails at once.
func TestLeaders(t *testing.T) {
	const stream = "s"
	synctest.Test(t, func(t *testing.T) {
		var l leaders
		admitted := func(want bool, when string) {
			t.Helper()
			if err := l.admit(stream); (err == nil) != want || err != nil && !errors.Is(err, cluster.ErrUnavailable) {
				t.Errorf("%s: admit = %v, want an error: %v", when, err, !want)
			}
		}
		admitted(true, "nothing is known")
		term := l.term(stream)
		l.lost(stream, false)
		admitted(true, "a leader may hand over")
		time.Sleep(handoverTime)
		admitted(true, "the first one after that")
		admitted(false, "the second one")
		l.lost(stream, false)
		admitted(false, "the first one has failed")
		time.Sleep(circuitTime)
		admitted(true, "it is time to try again")
		admitted(false, "one tries")
		if term.Err() != nil {
			t.Error("the term ended without a new leader")
		}
		l.elected(stream)
		admitted(true, "there is a leader")
		if term.Err() == nil {
			t.Error("the term has not ended after the election of another leader")
		}
		l.lost(stream, true)
		admitted(false, "it does not respond")
		time.Sleep(circuitTime)
		admitted(true, "it is time to try again")
		l.responds(stream)
		admitted(true, "it responds")
		admitted(true, "it responds")
	})
}
