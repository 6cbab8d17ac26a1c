package bridge

import (
	"testing"
	"testing/synctest"
)

// TestRefusedEra: a client that speaks both eras may try the one that it is not to use first, and then the other on the same connection.
func TestRefusedEra(t *testing.T) {
	t.Run("legacy", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFarm(t)
			near, _ := client0(t, f.bridge(&Options{Near: EraLegacy, Far: EraLegacy}))
			near.send(discover)
			near.reads(`"code":-32601`)
			near.send(hello)
			shake(near, f.next())
		})
	})
	t.Run("modern", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFarm(t)
			near, _ := client0(t, f.bridge(&Options{Near: EraModern, Far: EraModern}))
			near.send(hello, confirmed)
			near.reads(`"code":-32022`)
			near.send(discover)
			f.next().wants(discover)
		})
	})
}
