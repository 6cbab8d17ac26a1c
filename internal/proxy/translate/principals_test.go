package translate

import (
	"fmt"
	"testing"
	"time"
)

// TestPrincipals checks whose call is the cause of a request of the server.
func TestPrincipals(t *testing.T) {
	now := time.Now()
	type pending = map[string]bool
	for _, tt := range []struct {
		name    string
		prepare func(p *Principals)
		pending pending
		want    string
		known   bool
	}{
		{"unused", func(*Principals) {}, nil, "", true},
		{"one principal, no call", func(p *Principals) { p.Use("a") }, nil, "a", true},
		{"one principal", func(p *Principals) { p.Use("a"); p.Use("a") }, pending{"a": true}, "a", true},
		{"no principals", func(p *Principals) { p.Use(""); p.Use("") }, pending{"": true}, "", true},
		{"two principals, no call", func(p *Principals) { p.Use("a"); p.Use("b") }, nil, "", false},
		{"two principals, one call", func(p *Principals) { p.Use("a"); p.Use("b") }, pending{"b": true}, "b", true},
		{"two principals, two calls", func(p *Principals) { p.Use("a"); p.Use("b") }, pending{"a": true, "b": true}, "", false},
		{"without and with a principal", func(p *Principals) { p.Use(""); p.Use("b") }, pending{"": true, "b": true}, "", false},
		{"given up by another", func(p *Principals) { p.Use("a"); p.Use("b"); p.GiveUp("a", now) }, pending{"b": true}, "", false},
		{"given up by the same", func(p *Principals) { p.Use("a"); p.Use("b"); p.GiveUp("b", now) }, pending{"b": true}, "b", true},
		{"given up long ago", func(p *Principals) { p.Use("a"); p.Use("b"); p.GiveUp("a", now.Add(-givenUpTime)) }, pending{"b": true}, "b", true},
		{"given up before the session was lost", func(p *Principals) { p.Use("a"); p.Use("b"); p.GiveUp("a", now); p.Lost() }, pending{"b": true}, "b", true},
		{"given up by too many", func(p *Principals) {
			p.Use("a")
			for i := range maxGaveUp {
				p.Use(fmt.Sprint(i))
				p.GiveUp(fmt.Sprint(i), now.Add(-givenUpTime/2))
			}
			p.GiveUp("a", now)
			clear(p.gaveUp)
		}, pending{"b": true}, "", false},
		{"the map forgets what is over", func(p *Principals) {
			p.Use("a")
			for i := range maxGaveUp {
				p.Use(fmt.Sprint(i))
				p.GiveUp(fmt.Sprint(i), now.Add(-2*givenUpTime))
			}
			p.GiveUp("b", now)
		}, pending{"b": true}, "b", true},
	} {
		var p Principals
		tt.prepare(&p)
		got, known := p.Cause(tt.pending, now)
		if got != tt.want || known != tt.known {
			t.Errorf("%s: got %q, %v, want %q, %v", tt.name, got, known, tt.want, tt.known)
		}
		if len(p.gaveUp) > maxGaveUp {
			t.Errorf("%s: %d principals are remembered", tt.name, len(p.gaveUp))
		}
	}
}
