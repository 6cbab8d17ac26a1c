package tui

import (
	"fmt"
	"strings"
	"time"

	"mcpwire/internal/detail"
	"mcpwire/internal/wireview"
)

func httpTab(m *model, d *detail.Detail) []line {
	t, h := m.theme, d.HTTP
	var out []line
	for _, x := range []*detail.HTTPHead{h.Request, h.Response} {
		if x == nil {
			continue
		}
		if len(out) > 0 {
			out = append(out, nil)
		}
		st := t.request
		if x == h.Response {
			if st = t.response; x.Status >= 400 {
				st = t.failure
			}
		}
		out = append(out, line{{st.plus(bold), safeLong(x.Line)}, {t.dim, "  #" + number(x.N)}})
		if x.Remote != "" {
			out = append(out, line{{t.dim, "from " + safe(x.Remote)}})
		}
		for _, f := range x.Headers {
			name := t.key
			if f.IsMCP {
				name = t.serverRequest
			}
			out = append(out, append(line{{name, safe(f.Name)}, {t.dim, ": "}}, m.styledSpans(f.Value)...))
			if f.Anomaly != "" {
				out = append(out, line{{t.failure, "  ✖ " + safe(f.Anomaly)}})
			}
		}
		if x.OmittedHeaders > 0 {
			out = append(out, line{{t.dim, fmt.Sprintf("… and %d more headers", x.OmittedHeaders)}})
		}
	}
	out = append(out, nil)
	switch {
	case h.Response == nil && !h.Ended:
		out = append(out, line{{t.pending, "… no response yet"}})
	case h.Stream && !h.Ended:
		out = append(out, line{{t.pending, fmt.Sprintf("… the stream is open, %d events so far", h.Events)}})
	case h.Stream:
		out = append(out, line{{t.dim, fmt.Sprintf("The stream had %d events.", h.Events)}})
	}
	if h.EndReason != "" {
		out = append(out, line{{t.failure, "✖ " + safe(h.EndReason)}})
	}
	if h.BodyBytes > 0 {
		out = append(out, line{{t.dim, trace.FormatSize(h.BodyBytes) + " in bodies that are no message"}})
	}
	return out
}

func sseTab(m *model, d *detail.Detail) []line {
	t := m.theme
	var out []line
	if d.SSE.OmittedEvents > 0 {
		out = append(out, line{{t.dim, fmt.Sprintf("%d more came before these", d.SSE.OmittedEvents)}})
	}
	for _, e := range d.SSE.Events {
		l := line{{t.dim, padLeft("#"+number(e.N), 7) + " " + padLeft(millisText(e.AtMS), 9) + "  "}}
		field := func(name, value string) {
			l = append(l, span{t.key, name + ":"}, span{t.text, " " + safe(value) + "  "})
		}
		if e.Comment != nil {
			l = append(l, span{t.stderr, ": " + safe(*e.Comment) + "  "})
		}
		if e.ID != nil {
			field("id", *e.ID)
		}
		if e.Event != "" {
			field("event", e.Event)
		}
		if e.RetryMS != nil {
			field("retry", fmt.Sprint(*e.RetryMS))
		}
		if len(e.Data) > 0 || e.Len > 0 {
			l = append(l, span{t.key, "data: "})
			l = append(l, m.styledSpans(e.Data)...)
			if e.Len > 0 {
				l = append(l, span{t.dim, "  " + trace.FormatSize(e.Len)})
			}
		}
		out = append(out, l)
	}
	if d.SSE.Open {
		out = append(out, line{{t.pending, "… the stream is open"}})
	}
	return out
}

func timingTab(m *model, d *detail.Detail) []line {
	t, x := m.theme, d.Timing
	out := []line{
		{{t.dim, "began   "}, {t.text, x.At.In(m.zone).Format("2006-01-02 15:04:05.000000")}},
		{{t.dim, "all     "}, {t.text, millisText(x.WallMS)}},
		{{t.dim, "server  "}, {t.text, millisText(x.ServerMS)}},
	}
	if x.ClientMS > 0 {
		out = append(out, line{{t.dim, "client  "}, {t.text, millisText(x.ClientMS)}, {t.dim, "  the server waited for the client or its user"}})
	}
	if x.Open {
		out = append(out, line{{t.pending, "… and it goes on"}})
	}
	out = append(out, nil)
	whole := x.WallMS
	label := 0
	for _, s := range x.Segments {
		whole = max(whole, s.ToMS)
		label = max(label, min(18, width(safe(s.Label))))
	}
	columns := min(60, max(8, m.paneBody().w-label-24))
	for _, s := range x.Segments {
		out = append(out, line{{t.text, pad(safe(s.Label), label) + " "}, m.segmentBar(s, whole, columns), {t.dim, " " + padLeft(millisText(s.FromMS), 9) + " " + padLeft(millisText(s.ToMS-s.FromMS), 9)}})
	}
	if len(x.Marks) > 0 {
		out = append(out, nil)
	}
	for _, k := range x.Marks {
		out = append(out, line{{t.dim, padLeft("#"+number(k.N), 7) + " " + padLeft(millisText(k.MS), 9) + "  "}, {t.text, safe(k.Label)}})
	}
	return out
}

// segmentBar draws a part of the time as a bar.
func (m *model) segmentBar(s detail.Segment, whole float64, columns int) span {
	at := func(ms float64) int {
		if whole <= 0 {
			return 0
		}
		return min(columns-1, max(0, int(ms/whole*float64(columns))))
	}
	from, to := at(s.FromMS), at(s.ToMS)
	st, sign := m.theme.bar, "█"
	switch s.Kind {
	case trace.SegmentClient:
		st, sign = m.theme.waiting, "▒"
	case trace.SegmentTask:
		sign = "━"
	case trace.SegmentStream:
		sign = "─"
	}
	bar := strings.Repeat(sign, to-from+1)
	if s.Open {
		bar = strings.Repeat(sign, to-from) + "›"
	}
	return span{st, spaces(from) + bar + spaces(columns-to-1)}
}

func findingsTab(m *model, d *detail.Detail) []line {
	t := m.theme
	var out []line
	for i, l := range d.Findings {
		if i > 0 {
			out = append(out, nil)
		}
		out = append(out, line{{m.severityStyle(l.Severity).plus(bold), "▲ " + safe(l.Severity) + "  " + safe(l.Rule)}, {t.text, "  " + safe(l.Title)}})
		for _, f := range []struct{ name, value string }{{"seen", l.Message}, {"at", l.Pointer}, {"why", l.Why}, {"mend", l.Fix}, {"spec", l.URL}} {
			if f.value != "" {
				out = append(out, line{{t.dim, "  " + pad(f.name, 5)}, {t.text, safe(f.value)}})
			}
		}
		out = append(out, line{{t.dim, "  event"}, {t.text, " #" + number(l.Event)}})
	}
	return out
}

// millis is a number of milliseconds for people.
// later is millis for what comes after something else, or "" for that itself.
func offsetText(ms float64) string {
	if ms == 0 {
		return ""
	}
	return "after " + millisText(ms)
}

func millisText(ms float64) string {
	return trace.FormatDuration(time.Duration(min(max(ms, -9e12), 9e12) * float64(time.Millisecond)).Round(100 * time.Nanosecond))
}
