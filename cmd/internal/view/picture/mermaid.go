package picture

import (
	"fmt"
	"strings"

	"mcpwire/cmd/internal/trace"
)

// Mermaid returns the sequence as a diagram for Mermaid (https://mermaid.js.org), which GitHub and
// other programs draw in Markdown.
func (s *Sequence) Mermaid() string {
	var b strings.Builder
	b.WriteString("sequenceDiagram\n")
	for i, l := range s.lanes {
		kind := "participant"
		if l.kind == hostLane {
			kind = "actor"
		}
		fmt.Fprintf(&b, "  %s p%d as %s\n", kind, i, mermaidText(l.name, 40))
	}
	if s.omitted > 0 {
		fmt.Fprintf(&b, "  Note over p0: %s not shown\n", count(s.omitted, "earlier request"))
	}
	called := map[uint64]bool{}
	open := 0
	for i, st := range s.steps {
		if st.kind != gapStep && st.loop != open {
			if open > 0 && !s.continues(open, i) {
				b.WriteString("  end\n")
				open = 0
			}
			if st.loop > 0 && open == 0 && s.contiguous(st.loop, i) {
				fmt.Fprintf(&b, "  loop %s\n", mermaidText(s.loops[st.loop-1], 40))
				open = st.loop
			}
		}
		s.mermaidStep(&b, st, called)
	}
	if open > 0 {
		b.WriteString("  end\n")
	}
	return b.String()
}

// continues reports whether a step at i or after it belongs to a loop.
func (s *Sequence) continues(loop, i int) bool {
	for _, st := range s.steps[i:] {
		if st.loop == loop {
			return true
		}
	}
	return false
}

// contiguous reports whether no other loop begins between the step at i and the last one of a loop.
// Mermaid's loops cannot overlap.
func (s *Sequence) contiguous(loop, i int) bool {
	other := false
	for _, st := range s.steps[i:] {
		switch {
		case st.loop == loop && other:
			return false
		case st.loop > 0 && st.loop != loop:
			other = true
		}
	}
	return true
}

func (s *Sequence) mermaidStep(b *strings.Builder, st step, called map[uint64]bool) {
	text := mermaidText(trace.Join(" ", st.name, st.detail), 90)
	switch {
	case st.kind == gapStep:
		if n := len(s.lanes); n > 0 {
			fmt.Fprintf(b, "  Note over p0,p%d: %s\n", n-1, text)
		}
	case st.kind == markStep || st.from == st.to:
		fmt.Fprintf(b, "  Note over p%d: %s\n", st.from, text)
	case st.kind == callStep:
		called[st.call] = true
		fmt.Fprintf(b, "  p%d->>+p%d: %s\n", st.from, st.to, text)
	case st.kind == replyStep:
		end, arrow := "", "-->>"
		if called[st.call] {
			end = "-"
		}
		if st.tone == "bad" {
			arrow = "--x"
		}
		fmt.Fprintf(b, "  p%d%s%sp%d: %s\n", st.from, arrow, end, st.to, text)
	default:
		fmt.Fprintf(b, "  p%d-)p%d: %s\n", st.from, st.to, text)
	}
}

var mermaidEscaper = strings.NewReplacer("#", "#35;", ";", "#59;", "<", "#60;", ">", "#62;", "%%", "#37;#37;", "\\", "#92;")

// mermaidText returns at most n columns of a text in a form that Mermaid does not interpret.
func mermaidText(s string, n int) string {
	return mermaidEscaper.Replace(trace.Truncate(trace.Escape(s), n))
}
