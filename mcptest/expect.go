package mcptest

import (
	"errors"
	"io"
	"slices"
	"time"
)

// Expect waits for the next message, which must match the pattern.
func (p *Peer) Expect(pattern string) {
	p.t.Helper()
	want := p.pattern("Expect", pattern)
	text := p.must("Expect", want.String())
	got := p.message("Expect", text)
	m := compare(want, got, p.vars)
	if len(m.problems) > 0 {
		p.fatalf("Expect: another message came\n%swant: %s\ngot:  %s", m.lines(), clip(want.String(), maxShown), clip(text, maxShown))
	}
	p.vars = m.vars
}

// ExpectUnordered waits for as many messages as there are patterns, and takes them in any order: each message is that of the first pattern that it
// matches and that has none yet.
func (p *Peer) ExpectUnordered(patterns ...string) {
	p.t.Helper()
	var left []value
	for _, pattern := range patterns {
		left = append(left, p.pattern("ExpectUnordered", pattern))
	}
	for len(left) > 0 {
		text := p.must("ExpectUnordered", texts(left)...)
		got := p.message("ExpectUnordered", text)
		var closest *match
		for i, want := range left {
			m := compare(want, got, p.vars)
			if closest == nil || len(m.problems) < len(closest.problems) {
				closest = m
			}
			if len(m.problems) == 0 {
				p.vars = m.vars
				left = slices.Delete(left, i, i+1)
				break
			}
		}
		if len(closest.problems) > 0 {
			p.fatalf("ExpectUnordered: a message came that matches none of those left; the closest differs so:\n%sgot:  %s%s",
				closest.lines(), clip(text, maxShown), wanted(texts(left)))
		}
	}
}

// ExpectRaw waits for the next message, which must be the frame, byte for byte. There are no variables in it.
func (p *Peer) ExpectRaw(frame string) {
	p.t.Helper()
	if got := p.must("ExpectRaw", frame); got != frame {
		at := 0
		for at < len(got) && at < len(frame) && got[at] == frame[at] {
			at++
		}
		p.fatalf("ExpectRaw: the message that came differs from byte %d on\nwant: %s\ngot:  %s", at, clip(frame, maxShown), clip(got, maxShown))
	}
}

// Receive waits for the next message and returns it as it came.
func (p *Peer) Receive() string {
	p.t.Helper()
	return p.must("Receive")
}

// ExpectSilence sees that no message comes for as long as d. In a bubble of testing/synctest that takes no time and is certain. Elsewhere it really
// waits, and a message that comes later goes unnoticed: it is surer to send a request and to expect its answer as the next message.
func (p *Peer) ExpectSilence(d time.Duration) {
	p.t.Helper()
	switch a, ok := p.next(d); {
	case !ok:
	case a.err != nil:
		p.fatalf("ExpectSilence: %s", ending(a.err))
	default:
		p.fatalf("ExpectSilence: a message came\ngot:  %s", clip(a.text, maxShown))
	}
}

// ExpectClose waits for the other side to hang up, before which no message may come.
func (p *Peer) ExpectClose() {
	p.t.Helper()
	switch a, ok := p.next(p.Timeout); {
	case !ok:
		p.fatalf("ExpectClose: the other side has not hung up within %v", p.Timeout)
	case a.err == nil:
		p.fatalf("ExpectClose: a message came\ngot:  %s", clip(a.text, maxShown))
	case !errors.Is(a.err, io.EOF):
		p.fatalf("ExpectClose: %v", a.err)
	}
}

// ending says in words why no message came.
func ending(err error) string {
	if errors.Is(err, io.EOF) {
		return "the other side has hung up"
	}
	return err.Error()
}

// must returns the next message. patterns are those that are waited for.
func (p *Peer) must(what string, patterns ...string) string {
	p.t.Helper()
	a, ok := p.next(p.Timeout)
	switch {
	case !ok:
		p.fatalf("%s: nothing came within %v%s", what, p.Timeout, wanted(patterns))
	case a.err != nil:
		p.fatalf("%s: %s%s", what, ending(a.err), wanted(patterns))
	}
	return a.text
}

// wanted lists patterns in a failure.
func wanted(patterns []string) string {
	text := ""
	for _, pattern := range patterns {
		text += "\nwant: " + clip(pattern, maxShown)
	}
	return text
}

func texts(list []value) []string {
	var all []string
	for _, v := range list {
		all = append(all, v.String())
	}
	return all
}

func (p *Peer) pattern(what, text string) value {
	p.t.Helper()
	v, err := parse(text)
	if err != nil {
		p.fatalf("%s: the pattern is not JSON: %v\npattern: %s", what, err, clip(text, maxShown))
	}
	return v
}

func (p *Peer) message(what, text string) value {
	p.t.Helper()
	v, err := parse(text)
	if err != nil {
		p.fatalf("%s: what came is not JSON: %v\ngot:  %s", what, err, clip(text, maxShown))
	}
	return v
}
