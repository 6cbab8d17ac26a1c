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

// record takes what comes after a step instead of comparing it.
func (s *session) record(p *Peer, st *step) {
	p.t.Helper()
	if st.kind == stepEOF {
		s.merge(p, st, p.ended())
		return
	}
	text := st.text
	if st.kind == stepSend {
		text, _ = p.vars.expand(text) // it was sent
	}
	s.merge(p, st, p.settled(text))
}

// recordEnd ends the input. If something still comes then, that gets a step of its own.
func (s *session) recordEnd(p *Peer) {
	p.t.Helper()
	if s.steps[len(s.steps)-1].kind == stepEOF {
		return
	}
	p.CloseWrite()
	if came := p.ended(); len(came) > 0 {
		s.lines = append(s.lines, "@eof")
		s.steps = append(s.steps, step{kind: stepEOF, line: len(s.lines) - 1})
		s.merge(p, &s.steps[len(s.steps)-1], came)
	}
}

// ended returns what comes until the other side hangs up, which it must.
func (p *Peer) ended() []string {
	p.t.Helper()
	came, err := p.rest()
	if err != nil {
		p.fatalf("%v", err)
	}
	return came
}

// settled returns what comes after a message was sent: its answer, if it wants one, and what follows within quietWait. It ends after the peer's
// Timeout in any case.
func (p *Peer) settled(sent string) []string {
	var request jsonrpc.Message
	waiting := jsonrpc.Parse([]byte(sent), &request, maxDepth) == nil && request.Kind == jsonrpc.KindRequest
	var came []string
	for end := time.Now().Add(p.Timeout); time.Now().Before(end); {
		wait := quietWait
		if waiting {
			wait = answerWait
		}
		a, ok := p.next(wait)
		if !ok || a.err != nil {
			break
		}
		came = append(came, a.text)
		var m jsonrpc.Message
		if jsonrpc.Parse([]byte(a.text), &m, maxDepth) == nil && m.Kind >= jsonrpc.KindResponse && m.ID.Equal(request.ID) {
			waiting = false
		}
	}
	return came
}

// merge makes patterns of what came after a step, out of those that were expected.
func (s *session) merge(p *Peer, st *step, came []string) {
	p.t.Helper()
	if s.unordered {
		came = st.arrange(p, came)
	}
	for i, text := range came {
		got := p.message("update", text)
		m := &match{vars: p.vars}
		if i >= len(st.want) {
			st.came = append(st.came, string(m.merge(nil, nil, got)))
			continue
		}
		pattern := st.want[i].pattern
		want := p.pattern("update", pattern)
		if fits := compare(want, got, p.vars); len(fits.problems) == 0 {
			p.vars = fits.vars
		} else {
			pattern = string(m.merge(nil, &want, got))
		}
		st.came = append(st.came, pattern)
	}
}

// arrange puts what came in the order of the patterns that it matches. What matches none fills the gaps, and stands behind.
func (st *step) arrange(p *Peer, came []string) []string {
	p.t.Helper()
	left := slices.Clone(came)
	places := make([]string, len(st.want))
	for i, e := range st.want {
		want := p.pattern("update", e.pattern)
		j := slices.IndexFunc(left, func(text string) bool {
			return len(compare(want, p.message("update", text), p.vars).problems) == 0
		})
		if j >= 0 {
			places[i] = left[j]
			left = slices.Delete(left, j, j+1)
		}
	}
	for i, text := range places {
		if text == "" && len(left) > 0 {
			places[i], left = left[0], left[1:]
		}
	}
	places = slices.DeleteFunc(places, func(text string) bool { return text == "" })
	return append(places, left...)
}

// text is the session with what came in the place of what was expected. Comments stay where they are.
func (s *session) text() []byte {
	instead := map[int]string{} // of the expected messages, by line; "" is nothing
	behind := map[int][]string{}
	for _, st := range s.steps {
		at := st.line
		for i, e := range st.want {
			if instead[e.line] = ""; i < len(st.came) {
				instead[e.line], at = "< "+st.came[i], e.line
			}
		}
		for _, text := range st.came[min(len(st.want), len(st.came)):] {
			behind[at] = append(behind[at], "< "+text)
		}
	}
	var lines []string
	for i, line := range s.lines {
		switch text, expected := instead[i]; {
		case !expected:
			lines = append(lines, line)
		case text != "":
			lines = append(lines, text)
		}
		lines = append(lines, behind[i]...)
	}
	return []byte(strings.Join(lines, "\n") + "\n")
}
