package tui

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"mcpwire/internal/detail"
	"mcpwire/internal/wireview"
)

// tabNames are the titles of all tabs: each has its number for every row, whichever of them that has, and the same one in the browser.
func tabNames() []string {
	return []string{"Summary", "Request", "Response", "Raw", "HTTP", "SSE", "Timing", "Lint", "Translated"}
}

// tabsOf returns the tabs that have something to say.
func tabsOf(d *detail.Detail) []tab {
	var list []tab
	names := tabNames()
	add := func(has bool, title string, lines func(m *model, d *detail.Detail) []line) {
		if has {
			list = append(list, tab{title: title, number: slices.Index(names, title) + 1, lines: lines})
		}
	}
	add(true, "Summary", summaryTab)
	add(d.Request != nil, "Request", func(m *model, d *detail.Detail) []line { return payloadLines(m, d, d.Request) })
	add(d.Response != nil || d.Last != nil, "Response", responseTab)
	add(len(d.Raw) > 0, "Raw", rawTab)
	add(d.HTTP != nil, "HTTP", httpTab)
	add(d.SSE != nil, "SSE", sseTab)
	add(len(d.Timing.Segments) > 0 || len(d.Timing.Marks) > 0, "Timing", timingTab)
	add(len(d.Findings) > 0, "Lint", findingsTab)
	add(len(d.Translations) > 0, "Translated", translatedTab)
	return list
}

func summaryTab(m *model, d *detail.Detail) []line {
	t := m.theme
	var out []line
	for _, w := range d.Summary.Sentences {
		out = append(out, line{{t.text, safe(w)}})
	}
	out = append(out, nil)
	names := 0
	for _, f := range d.Summary.Facts {
		names = max(names, min(24, width(safe(f.Name))))
	}
	for _, f := range d.Summary.Facts {
		out = append(out, line{{t.dim, pad(safe(f.Name), names) + "  "}, {t.text, safe(f.Value)}})
	}
	if len(d.Children)+d.OmittedChildren > 0 {
		out = append(out, nil, line{{t.head, "Inside"}})
		if d.OmittedChildren > 0 {
			out = append(out, line{{t.dim, fmt.Sprintf("  %d more came before these and have made room", d.OmittedChildren)}})
		}
		for _, in := range d.Children {
			out = append(out, line{{t.dim, "  " + padLeft(number(in.N), 6) + " " + padLeft(millisText(in.AtMS), 9) + "  "}, {t.text, in.Glyph + " " + safe(in.Summary)}})
		}
	}
	if len(d.Counterparts) > 0 {
		out = append(out, nil, line{{t.head, "On the other side of the bridge"}})
	}
	for _, o := range d.Counterparts {
		out = append(out, line{{t.dim, "  " + padLeft(number(o.N), 6) + " " + pad(string(o.Side), 5)}, {t.text, safe(o.Glyph) + " " + safe(o.Summary)}})
	}
	for _, x := range d.Missing {
		out = append(out, nil, line{{t.finding, fmt.Sprintf("▲ Event #%d cannot be read again: %s", x.N, safe(x.Why))}})
	}
	return out
}

func responseTab(m *model, d *detail.Detail) []line {
	if d.Last == nil {
		return payloadLines(m, d, d.Response)
	}
	out := []line{{{m.theme.head, "What came in the end"}}}
	out = append(out, payloadLines(m, d, d.Last)...)
	if d.Response != nil {
		out = append(out, nil, line{{m.theme.head, "The first answer"}})
		out = append(out, payloadLines(m, d, d.Response)...)
	}
	return out
}

// payloadLines shows a payload, with the findings at the lines that they are about.
func payloadLines(m *model, d *detail.Detail, p *detail.Payload) []line {
	t := m.theme
	head := fmt.Sprintf("#%d · %s · %s", p.N, trace.FormatSize(p.Len), p.Form)
	if p.Cut {
		head += " · only the beginning was recorded"
	}
	if p.Partial {
		head += " · one of a batch"
	}
	if p.Redacted > 0 {
		head += fmt.Sprintf(" · %d hidden by redaction", p.Redacted)
	}
	out := []line{{{t.dim, head}}}
	if p.Anomaly != "" {
		out = append(out, line{{t.finding, "▲ " + safe(p.Anomaly)}})
	}
	for _, l := range p.Lines {
		out = append(out, m.textLine(l))
		for _, i := range l.Findings {
			if i >= 0 && i < len(d.Findings) {
				out = append(out, line{{"", spaces(2 * min(l.Depth, maxIndent))}, {m.severityStyle(d.Findings[i].Severity), "▲ " + safe(d.Findings[i].Rule) + ": " + safe(d.Findings[i].Message)}})
			}
		}
		if l.Blob > 0 && l.Blob <= len(p.Blobs) {
			b := p.Blobs[l.Blob-1]
			out = append(out, line{{"", spaces(2*min(l.Depth, maxIndent) + 2)}, {t.dim, fmt.Sprintf("(%s of %s in Base64)", trace.FormatSize(b.Len), orDefault(safe(b.MediaType), "data"))}})
		}
	}
	if p.OmittedBytes > 0 {
		out = append(out, line{{t.dim, "… and " + trace.FormatSize(p.OmittedBytes) + " more; e saves all of it"}})
	}
	return out
}

// maxIndent is how deep JSON is indented: what is deeper is not readable for that.
const maxIndent = 20

// textLine makes a line of the screen of a line of text.
func (m *model) textLine(l detail.Line) line {
	out := line{{"", spaces(2 * min(l.Depth, maxIndent))}}
	if l.Depth > maxIndent {
		out = append(out, span{m.theme.dim, "⋯" + strconv.Itoa(l.Depth) + " "})
	}
	return append(out, m.styledSpans(l.Spans)...)
}

func (m *model) styledSpans(list []detail.Span) line {
	var out line
	for _, s := range list {
		out = append(out, span{m.kindStyle(s.Kind), safeLong(s.Text)})
	}
	return out
}

func (m *model) kindStyle(k detail.SpanKind) style {
	t := m.theme
	switch k {
	case detail.Punct:
		return t.dim
	case detail.Name:
		return t.key
	case detail.String:
		return t.str
	case detail.Number, detail.Literal:
		return t.number
	case detail.Escape, detail.Space, detail.Annotation:
		return t.dim
	case detail.Invisible, detail.InvalidByte:
		return t.failure
	case detail.Secret:
		return t.finding
	}
	return t.text
}

// severityStyle is the style for findings of a severity.
func (m *model) severityStyle(s string) style {
	switch s {
	case "error":
		return m.theme.failure
	case "warning", "warn":
		return m.theme.finding
	}
	return m.theme.notification
}

func rawTab(m *model, d *detail.Detail) []line {
	t := m.theme
	var out []line
	for i, r := range d.Raw {
		if i > 0 {
			out = append(out, nil)
		}
		head := []string{"#" + number(r.N), string(r.Kind), arrow(string(r.Dir)), offsetText(r.AtMS), trace.FormatSize(r.Len)}
		if r.Framing != "" {
			head = append(head, "framing "+safe(string(r.Framing)))
		}
		if r.Part > 0 {
			head = append(head, "part "+strconv.Itoa(r.Part))
		}
		if r.Encoding != "" {
			head = append(head, "coded "+safe(r.Encoding))
		}
		if r.Why != "" {
			head = append(head, "not plain JSON: "+safe(r.Why))
		}
		if r.Cut {
			head = append(head, "only the beginning was recorded")
		}
		out = append(out, line{{t.head, joinNonEmpty(head...)}})
		if m.pane != nil && m.pane.hex && len(r.Hex) > 0 {
			for _, h := range r.Hex {
				out = append(out, m.hexLines(h)...)
			}
			continue
		}
		for _, l := range append(r.Prefix[:len(r.Prefix):len(r.Prefix)], r.Lines...) {
			out = append(out, m.textLine(l))
		}
		if r.OmittedBytes > 0 {
			out = append(out, line{{t.dim, "… and " + trace.FormatSize(r.OmittedBytes) + " more"}})
		}
		if len(r.Redacted) > 0 {
			out = append(out, line{{t.finding, "hidden by redaction: " + safe(strings.Join(r.Redacted, " "))}})
		}
	}
	return append(out, nil, line{{t.dim, "b shows bytes as hexadecimal digits, or as text"}})
}

// hexLines shows 16 bytes, on two lines where there is little room.
func (m *model) hexLines(h detail.HexRow) []line {
	row := func(offset int64, hex, text string, columns int) line {
		return line{{m.theme.dim, fmt.Sprintf("%08x  ", offset)}, {m.theme.text, pad(hex, columns)}, {m.theme.str, " " + safe(text)}}
	}
	const whole, half = 49, 24
	if m.paneBody().w >= 10+whole+17 || len(h.Hex) <= half || len(h.Text) <= 8 {
		return []line{row(h.Offset, h.Hex, h.Text, whole)}
	}
	return []line{row(h.Offset, h.Hex[:half], h.Text[:8], half), row(h.Offset+8, strings.TrimLeft(h.Hex[half:], " "), h.Text[8:], half)}
}

// arrow is the sign for a direction.
func arrow(dir string) string {
	switch dir {
	case "c2s":
		return "→"
	case "s2c":
		return "←"
	}
	return ""
}

func orDefault(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
