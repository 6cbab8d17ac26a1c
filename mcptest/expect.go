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
	want := p.parsePattern("Expect", pattern)
	text := p.nextMessage("Expect", want.String())
	got := p.parseMessage("Expect", text)
	m := compare(want, got, p.vars)
	if len(m.diffs) > 0 {
		p.fatalf("Expect: another message came\n%swant: %s\ngot:  %s", m.diffText(), clip(want.String(), maxShownBytes), clip(text, maxShownBytes))
	}
	p.vars = m.vars
}

// ExpectUnordered waits for as many messages as there are patterns, and takes them in any order: each message is that of the first pattern that it
// matches and that has none yet.
func (p *Peer) ExpectUnordered(patterns ...string) {
	p.t.Helper()
	var left []value
	for _, pattern := range patterns {
		left = append(left, p.parsePattern("ExpectUnordered", pattern))
	}
	for len(left) > 0 {
		text := p.nextMessage("ExpectUnordered", patternTexts(left)...)
		got := p.parseMessage("ExpectUnordered", text)
		var closest *match
		for i, want := range left {
			m := compare(want, got, p.vars)
			if closest == nil || len(m.diffs) < len(closest.diffs) {
				closest = m
			}
			if len(m.diffs) == 0 {
				p.vars = m.vars
				left = slices.Delete(left, i, i+1)
				break
			}
		}
		if len(closest.diffs) > 0 {
			p.fatalf("ExpectUnordered: a message came that matches none of those left; the closest differs so:\n%sgot:  %s%s",
				closest.diffText(), clip(text, maxShownBytes), wantLines(patternTexts(left)))
		}
	}
}

// ExpectRaw waits for the next message, which must be the frame, byte for byte. There are no variables in it.
func (p *Peer) ExpectRaw(frame string) {
	p.t.Helper()
	if got := p.nextMessage("ExpectRaw", frame); got != frame {
		at := 0
		for at < len(got) && at < len(frame) && got[at] == frame[at] {
			at++
		}
		p.fatalf("ExpectRaw: the message that came differs from byte %d on\nwant: %s\ngot:  %s", at, clip(frame, maxShownBytes), clip(got, maxShownBytes))
	}
}

// Receive waits for the next message and returns it as it came.
func (p *Peer) Receive() string {
	p.t.Helper()
	return p.nextMessage("Receive")
}

// ExpectSilence sees that no message comes for as long as d. In a bubble of testing/synctest that takes no time and is certain. Elsewhere it really
// waits, and a message that comes later goes unnoticed: it is surer to send a request and to expect its answer as the next message.
func (p *Peer) ExpectSilence(d time.Duration) {
	p.t.Helper()
	switch a, ok := p.next(d); {
	case !ok:
	case a.err != nil:
		p.fatalf("ExpectSilence: %s", endText(a.err))
	default:
		p.fatalf("ExpectSilence: a message came\ngot:  %s", clip(a.text, maxShownBytes))
	}
}

// ExpectClose waits for the other side to hang up, before which no message may come.
func (p *Peer) ExpectClose() {
	p.t.Helper()
	switch a, ok := p.next(p.Timeout); {
	case !ok:
		p.fatalf("ExpectClose: the other side has not hung up within %v", p.Timeout)
	case a.err == nil:
		p.fatalf("ExpectClose: a message came\ngot:  %s", clip(a.text, maxShownBytes))
	case !errors.Is(a.err, io.EOF):
		p.fatalf("ExpectClose: %v", a.err)
	}
}

// endText says in words why no message came.
func endText(err error) string {
	if errors.Is(err, io.EOF) {
		return "the other side has hung up"
	}
	return err.Error()
}

// nextMessage returns the next message. patterns are those that are waited for.
func (p *Peer) nextMessage(op string, patterns ...string) string {
	p.t.Helper()
	a, ok := p.next(p.Timeout)
	switch {
	case !ok:
		p.fatalf("%s: nothing came within %v%s", op, p.Timeout, wantLines(patterns))
	case a.err != nil:
		p.fatalf("%s: %s%s", op, endText(a.err), wantLines(patterns))
	}
	return a.text
}

// wantLines lists patterns in a failure.
func wantLines(patterns []string) string {
	text := ""
	for _, pattern := range patterns {
		text += "\nwant: " + clip(pattern, maxShownBytes)
	}
	return text
}

func patternTexts(list []value) []string {
	var all []string
	for _, v := range list {
		all = append(all, v.String())
	}
	return all
}

func (p *Peer) parsePattern(op, text string) value {
	p.t.Helper()
	v, err := parse(text)
	if err != nil {
		p.fatalf("%s: the pattern is not JSON: %v\npattern: %s", op, err, clip(text, maxShownBytes))
	}
	return v
}

func (p *Peer) parseMessage(op, text string) value {
	p.t.Helper()
	v, err := parse(text)
	if err != nil {
		p.fatalf("%s: what came is not JSON: %v\ngot:  %s", op, err, clip(text, maxShownBytes))
	}
	return v
}
