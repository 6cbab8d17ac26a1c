package trace

import (
	"fmt"
	"slices"
	"strings"

	"mcpwire/capture"
)

const maxCommand = 16 // arguments that are kept

// otherEvent takes an event that is neither a message nor about HTTP.
func (m *Model) otherEvent(s *Session, e *capture.Event) {
	kinds := map[capture.Kind]Kind{
		capture.KindStart: Start, capture.KindExit: Exit, capture.KindEOF: EOF, capture.KindStderr: Stderr,
		capture.KindInvalid: Invalid, capture.KindNote: Note, capture.KindGap: Gap, capture.KindTranslate: Translate,
	}
	kind, ok := kinds[e.Kind]
	if !ok {
		return // of a later version of the format
	}
	if kind == Translate && e.Translation != nil && m.linkTranslation(s.Capture, e) {
		return
	}
	rt := m.roundTrip(s, e.Exchange)
	if kind == Invalid && e.Dir == capture.ToClient && e.Exchange == 0 {
		kind = Stdout
	}
	r := m.newRow(kind, s, e)
	r.Excerpt, r.RequestBytes = excerpt(e.Data), wireLen(e)
	parent := rt.parent()
	switch kind {
	case Start:
		m.processStart(s, r, e.Start)
	case Exit:
		m.processExit(s, r, e.Exit)
	case Gap:
		r.Excerpt = gapText(e.Gap)
	case Translate:
		if e.Translation == nil {
			return
		}
		r.Excerpt = clip(e.Translation.Rule, maxExcerpt)
		parent = s.Capture.byEvent[e.Translation.Of]
	}
	m.addRow(r, parent)
	m.attachHTTP(rt, r)
	if kind == Exit {
		m.abandonPending(s)
	}
}

func (m *Model) processStart(s *Session, r *Row, st *capture.Start) {
	if st == nil {
		return
	}
	s.PID, s.Command, s.StartN = st.PID, nil, r.N
	for _, a := range st.Command[:min(len(st.Command), maxCommand)] {
		s.Command = append(s.Command, clip(a, maxName))
	}
	s.Exited, s.ExitCode, s.Signal = false, 0, ""
	s.Capture.newestProcess = s
	r.Excerpt = clip(strings.Join(s.Command, " "), maxExcerpt)
	r.Target = fmt.Sprint("pid ", st.PID)
}

func (m *Model) processExit(s *Session, r *Row, exit *capture.Exit) {
	if exit == nil {
		return
	}
	s.Exited, s.ExitCode, s.Signal = true, exit.Code, clip(exit.Signal, maxName)
	r.Code = exit.Code
	r.Excerpt = fmt.Sprint("code ", exit.Code)
	if exit.Signal != "" {
		r.Excerpt = "signal " + s.Signal
	}
}

// abandonPending ends what waits in a session whose process is gone.
func (m *Model) abandonPending(s *Session) {
	var open []*Row
	for _, r := range s.pending {
		open = append(open, r)
	}
	slices.SortFunc(open, func(a, b *Row) int {
		if a.Seq < b.Seq {
			return -1
		}
		return 1
	})
	hits := m.hits
	m.hits = 0
	for _, r := range open {
		call := r.call
		m.abandon(r)
		if call == nil {
			continue
		}
		r.call, m.rowByCall[call] = call, r // a tap answers in place of the server that is gone, see late
	}
	m.hits = hits
}

func gapText(g *capture.Gap) string {
	if g == nil {
		return ""
	}
	n := "some events"
	switch {
	case g.Lost == 1:
		n = "1 event"
	case g.Lost > 1:
		n = fmt.Sprint(g.Lost, " events")
	}
	why := map[string]string{
		capture.GapQueue: "recorded faster than written", capture.GapWrite: "writing failed", capture.GapLimit: "the line is too long",
		capture.GapUnwatched: "nobody watched",
		capture.GapMalformed: "the line is no event", capture.GapTruncated: "the capture breaks off here",
	}[g.Why]
	if why == "" {
		why = clip(g.Why, maxName)
	}
	return fmt.Sprintf("%s missing, %s: %s", n, FormatSize(g.Bytes), why)
}
