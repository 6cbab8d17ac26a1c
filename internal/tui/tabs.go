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
	add(len(d.Lint) > 0, "Lint", lintTab)
	add(len(d.Translated) > 0, "Translated", translatedTab)
	return list
}

func summaryTab(m *model, d *detail.Detail) []line {
	t := m.theme
	var out []line
	for _, w := range d.Summary.Words {
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
	if len(d.Inside)+d.Gone > 0 {
		out = append(out, nil, line{{t.head, "Inside"}})
		if d.Gone > 0 {
			out = append(out, line{{t.dim, fmt.Sprintf("  %d more came before these and have made room", d.Gone)}})
		}
		for _, in := range d.Inside {
			out = append(out, line{{t.dim, "  " + padLeft(number(in.N), 6) + " " + padLeft(millis(in.AtMS), 9) + "  "}, {t.text, in.Glyph + " " + safe(in.Summary)}})
		}
	}
	if len(d.Others) > 0 {
		out = append(out, nil, line{{t.head, "On the other side of the bridge"}})
	}
	for _, o := range d.Others {
		out = append(out, line{{t.dim, "  " + padLeft(number(o.N), 6) + " " + pad(string(o.Side), 5)}, {t.text, safe(o.Glyph) + " " + safe(o.Summary)}})
	}
	for _, x := range d.Missing {
		out = append(out, nil, line{{t.lint, fmt.Sprintf("▲ Event #%d cannot be read again: %s", x.N, safe(x.Why))}})
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
	head := fmt.Sprintf("#%d · %s · %s", p.N, wireview.Size(p.Len), p.Form)
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
	if p.Wrong != "" {
		out = append(out, line{{t.lint, "▲ " + safe(p.Wrong)}})
	}
	for _, l := range p.Lines {
		out = append(out, m.textLine(l))
		for _, i := range l.Lints {
			if i >= 0 && i < len(d.Lint) {
				out = append(out, line{{"", spaces(2 * min(l.Depth, maxIndent))}, {m.severity(d.Lint[i].Severity), "▲ " + safe(d.Lint[i].Rule) + ": " + safe(d.Lint[i].Message)}})
			}
		}
		if l.Blob > 0 && l.Blob <= len(p.Blobs) {
			b := p.Blobs[l.Blob-1]
			out = append(out, line{{"", spaces(2*min(l.Depth, maxIndent) + 2)}, {t.dim, fmt.Sprintf("(%s of %s in Base64)", wireview.Size(b.Len), orText(safe(b.Media), "data"))}})
		}
	}
	if p.Left > 0 {
		out = append(out, line{{t.dim, "… and " + wireview.Size(p.Left) + " more; e saves all of it"}})
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
	return append(out, m.spans(l.Spans)...)
}

func (m *model) spans(list []detail.Span) line {
	var out line
	for _, s := range list {
		out = append(out, span{m.kindStyle(s.Kind), safeLong(s.Text)})
	}
	return out
}

func (m *model) kindStyle(k detail.Kind) style {
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
	case detail.Escape, detail.Space, detail.Remark:
		return t.dim
	case detail.Hidden, detail.Bad:
		return t.fail
	case detail.Secret:
		return t.lint
	}
	return t.text
}

// severity is the style for findings of a severity.
func (m *model) severity(s string) style {
	switch s {
	case "error":
		return m.theme.fail
	case "warning", "warn":
		return m.theme.lint
	}
	return m.theme.note
}

func rawTab(m *model, d *detail.Detail) []line {
	t := m.theme
	var out []line
	for i, r := range d.Raw {
		if i > 0 {
			out = append(out, nil)
		}
		head := []string{"#" + number(r.N), string(r.Kind), arrow(string(r.Dir)), later(r.AtMS), wireview.Size(r.Len)}
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
		out = append(out, line{{t.head, join(head...)}})
		if m.pane != nil && m.pane.hex && len(r.Hex) > 0 {
			for _, h := range r.Hex {
				out = append(out, m.hexLines(h)...)
			}
			continue
		}
		for _, l := range append(r.Prefix[:len(r.Prefix):len(r.Prefix)], r.Lines...) {
			out = append(out, m.textLine(l))
		}
		if r.Left > 0 {
			out = append(out, line{{t.dim, "… and " + wireview.Size(r.Left) + " more"}})
		}
		if len(r.Redacted) > 0 {
			out = append(out, line{{t.lint, "hidden by redaction: " + safe(strings.Join(r.Redacted, " "))}})
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
	if m.paneText().w >= 10+whole+17 || len(h.Hex) <= half || len(h.Text) <= 8 {
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

func orText(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
