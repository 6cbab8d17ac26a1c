package mcptest

import (
	"slices"
	"strings"
	"time"

	"mcpwire/jsonrpc"
)

// How long an update waits: for the answer to a request, and for what else may come.
const (
	answerWait = 2 * time.Second
	quietWait  = 100 * time.Millisecond
)

// recordStep takes what comes after a step instead of comparing it.
func (gc *goldenCase) recordStep(p *Peer, st *step) {
	p.t.Helper()
	if st.kind == stepEOF {
		gc.mergeStep(p, st, p.mustReadRest())
		return
	}
	text := st.text
	if st.kind == stepSend {
		text, _ = p.vars.expand(text) // it was sent
	}
	gc.mergeStep(p, st, p.readReplies(text))
}

// recordEnd ends the input. If something still comes then, that gets a step of its own.
func (gc *goldenCase) recordEnd(p *Peer) {
	p.t.Helper()
	if gc.steps[len(gc.steps)-1].kind == stepEOF {
		return
	}
	p.CloseWrite()
	if got := p.mustReadRest(); len(got) > 0 {
		gc.lines = append(gc.lines, "@eof")
		gc.steps = append(gc.steps, step{kind: stepEOF, line: len(gc.lines) - 1})
		gc.mergeStep(p, &gc.steps[len(gc.steps)-1], got)
	}
}

// mustReadRest returns what comes until the other side hangs up, which it must.
func (p *Peer) mustReadRest() []string {
	p.t.Helper()
	got, err := p.readRest()
	if err != nil {
		p.fatalf("%v", err)
	}
	return got
}

// readReplies returns what comes after a message was sent: its answer, if it wants one, and what follows within quietWait. It ends after the peer's
// Timeout in any case.
func (p *Peer) readReplies(sent string) []string {
	var request jsonrpc.Message
	waiting := jsonrpc.Parse([]byte(sent), &request, maxDepth) == nil && request.Kind == jsonrpc.KindRequest
	var got []string
	for end := time.Now().Add(p.Timeout); time.Now().Before(end); {
		wait := quietWait
		if waiting {
			wait = answerWait
		}
		a, ok := p.next(wait)
		if !ok || a.err != nil {
			break
		}
		got = append(got, a.text)
		var m jsonrpc.Message
		if jsonrpc.Parse([]byte(a.text), &m, maxDepth) == nil && m.Kind >= jsonrpc.KindResponse && m.ID.Equal(request.ID) {
			waiting = false
		}
	}
	return got
}

// mergeStep makes patterns of what came after a step, out of those that were expected.
func (gc *goldenCase) mergeStep(p *Peer, st *step, replies []string) {
	p.t.Helper()
	if gc.unordered {
		replies = st.orderByPattern(p, replies)
	}
	for i, text := range replies {
		got := p.parseMessage("update", text)
		m := &match{vars: p.vars}
		if i >= len(st.want) {
			st.got = append(st.got, string(m.merge(nil, nil, got)))
			continue
		}
		pattern := st.want[i].pattern
		want := p.parsePattern("update", pattern)
		if fits := compare(want, got, p.vars); len(fits.diffs) == 0 {
			p.vars = fits.vars
		} else {
			pattern = string(m.merge(nil, &want, got))
		}
		st.got = append(st.got, pattern)
	}
}

// orderByPattern puts what came in the order of the patterns that it matches. What matches none fills the gaps, and stands behind.
func (st *step) orderByPattern(p *Peer, got []string) []string {
	p.t.Helper()
	rest := slices.Clone(got)
	places := make([]string, len(st.want))
	for i, e := range st.want {
		want := p.parsePattern("update", e.pattern)
		j := slices.IndexFunc(rest, func(text string) bool {
			return len(compare(want, p.parseMessage("update", text), p.vars).diffs) == 0
		})
		if j >= 0 {
			places[i] = rest[j]
			rest = slices.Delete(rest, j, j+1)
		}
	}
	for i, text := range places {
		if text == "" && len(rest) > 0 {
			places[i], rest = rest[0], rest[1:]
		}
	}
	places = slices.DeleteFunc(places, func(text string) bool { return text == "" })
	return append(places, rest...)
}

// format is the session with what came in the place of what was expected. Comments stay where they are.
func (gc *goldenCase) format() []byte {
	replaced := map[int]string{} // of the expected messages, by line; "" is nothing
	added := map[int][]string{}
	for _, st := range gc.steps {
		at := st.line
		for i, e := range st.want {
			if replaced[e.line] = ""; i < len(st.got) {
				replaced[e.line], at = "< "+st.got[i], e.line
			}
		}
		for _, text := range st.got[min(len(st.want), len(st.got)):] {
			added[at] = append(added[at], "< "+text)
		}
	}
	var lines []string
	for i, line := range gc.lines {
		switch text, expected := replaced[i]; {
		case !expected:
			lines = append(lines, line)
		case text != "":
			lines = append(lines, text)
		}
		lines = append(lines, added[i]...)
	}
	return []byte(strings.Join(lines, "\n") + "\n")
}
