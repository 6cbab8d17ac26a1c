package translate_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/internal/translate"
)

// rules hold what both sides of a translated session see against package check's rules.
type rules struct {
	mu     sync.Mutex
	sides  [3]*check.Checker
	n      [3]uint64
	begun  time.Time
	found  map[string]int
	sample map[string]string
}

func newRules() *rules {
	r := &rules{begun: time.Now(), found: map[string]int{}, sample: map[string]string{}}
	r.sides[translate.Downstream], r.sides[translate.Upstream] = check.New(nil), check.New(nil)
	return r
}

// observe takes a message as a pump sees it.
func (r *rules) observe(o translate.Out, in string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := in
	if in == "" {
		text = string(o.Message)
	}
	dir := capture.ToServer
	if (o.To == translate.Downstream) == (in == "") {
		dir = capture.ToClient
	}
	if o.To == translate.Dropped || text == "" {
		return
	}
	r.n[o.To]++
	e := &capture.Event{Kind: capture.KindMessage, N: r.n[o.To], T: time.Since(r.begun), Dir: dir, Data: []byte(text), Framing: capture.FramingLF}
	r.take(o.To, r.sides[o.To].Add(nil, e), text)
}

func (r *rules) take(side translate.Side, findings []check.Finding, text string) {
	for _, f := range findings {
		key := fmt.Sprintf("%d %s %s: %s", side, f.Rule.Severity, f.Rule.ID, f.Message)
		r.found[key]++
		r.sample[key] = text
	}
}

// report fails the test with what was found, but for these rules.
func (r *rules) report(t *testing.T, but ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, side := range []translate.Side{translate.Downstream, translate.Upstream} {
		r.take(side, r.sides[side].Close(), "the end")
	}
	for key, n := range r.found {
		if slices.ContainsFunc(but, func(id string) bool { return strings.Contains(key, " "+id+": ") }) {
			continue
		}
		t.Errorf("%d × %s\n%.300s", n, key, r.sample[key])
	}
}
