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
			client, _ := client0(t, f.bridge(&Options{ClientEra: EraLegacy, ServerEra: EraLegacy}))
			client.send(discover)
			client.reads(`"code":-32601`)
			client.send(hello)
			handshake(client, f.next())
		})
	})
	t.Run("modern", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFarm(t)
			client, _ := client0(t, f.bridge(&Options{ClientEra: EraModern, ServerEra: EraModern}))
			client.send(hello, confirmed)
			client.reads(`"code":-32022`)
			client.send(discover)
			f.next().wants(discover)
		})
	})
}
