//go:build unix

package stdio

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestGate(t *testing.T) {
	t.Parallel()
	var released, woken int
	g := gate{release: func() { released++ }}
	wake := func() { woken++ }
	if !g.enter() {
		t.Fatal("a new gate does not admit")
	}
	g.stop(wake)
	g.stop(wake)
	if g.enter() {
		t.Error("a stopped gate admits")
	}
	g.shut()
	if released != 0 {
		t.Error("released under a user")
	}
	g.leave()
	g.shut()
	if released != 1 || woken != 1 {
		t.Errorf("released %d times, woken %d times; want once each", released, woken)
	}

	idle := gate{release: func() { released++ }}
	idle.stop(func() { t.Error("woke nobody") })
	idle.shut()
	if released != 2 {
		t.Error("an empty gate was not released")
	}
}

func TestGateRace(t *testing.T) {
	t.Parallel()
	for range 200 {
		var released atomic.Int32
		g := gate{release: func() { released.Add(1) }}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for g.enter() {
					if released.Load() != 0 {
						t.Error("released under a user")
					}
					g.leave()
				}
			})
		}
		wg.Go(func() { g.stop(func() {}) })
		wg.Go(g.shut)
		wg.Wait()
		if n := released.Load(); n != 1 {
			t.Fatalf("released %d times", n)
		}
	}
}
