package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/view/detail"
)

// A renderer converts the parts of a detail to lines.
type renderer struct {
	theme *theme
	zone  *time.Location
	// columns is the width of the text.
	columns int
	// hex shows bytes as hexadecimal digits.
	hex bool
}

// A tab shows one aspect of a detail.
type tab struct {
	title string
	// number is the key that opens the tab.
	number int
	lines  func(r *renderer, d *detail.Detail) []line
}

// A tabBar has the titles of tabs. One of the tabs is open.
type tabBar struct {
	tabs []tab
	// chosen is the title of the tab that the user chose. If the row does not have it, the first
	// tab is open.
	chosen string
}

// open returns the open tab, or nil without tabs.
func (b *tabBar) open() *tab {
	for i := range b.tabs {
		if b.tabs[i].title == b.chosen {
			return &b.tabs[i]
		}
	}
	if len(b.tabs) == 0 {
		return nil
	}
	return &b.tabs[0]
}

func (b *tabBar) has(title string) bool {
	return slices.ContainsFunc(b.tabs, func(t tab) bool { return t.title == title })
}

// move opens the tab n places to the right, or to the left if n is negative.
func (b *tabBar) move(n int) {
	for i := range b.tabs {
		if &b.tabs[i] == b.open() {
			b.chosen = b.tabs[(i+n+len(b.tabs))%len(b.tabs)].title
			return
		}
	}
}

// titles returns the texts of the titles in n columns. They are shortened or omitted if they do
// not fit.
func (b *tabBar) titles(n int) []string {
	open := b.open()
	texts := make([]string, len(b.tabs))
	for short := range 3 {
		sum := 0
		for i := range b.tabs {
			texts[i] = b.tabs[i].text(&b.tabs[i] == open, short)
			sum += width(texts[i])
		}
		if sum <= n {
			break
		}
	}
	return texts
}

// text returns the number and the title of a tab, with the title shortened (1) or omitted (2).
func (t *tab) text(open bool, short int) string {
	if open {
		return fmt.Sprintf("[%d %s]", t.number, t.title)
	}
	title := t.title
	switch short {
	case 1:
		title = title[:3]
	case 2:
		return fmt.Sprintf(" %d ", t.number)
	}
	return fmt.Sprintf(" %d %s ", t.number, title)
}

// click opens the tab whose title is at column x of a bar of n columns.
func (b *tabBar) click(x, n int) {
	at := 1
	for i, text := range b.titles(n - 1) {
		if at += width(text); x >= at-width(text) && x < at {
			b.chosen = b.tabs[i].title
			return
		}
	}
}

// line draws the titles in n columns.
func (b *tabBar) line(t *theme, n int) line {
	l := line{{"", " "}}
	for i, text := range b.titles(n - 1) {
		st := t.dim
		if &b.tabs[i] == b.open() {
			st = t.tab
		}
		l = append(l, span{st, text})
	}
	return l
}

// tabNames returns the titles of all tabs. A tab has the same number for every row, and in the
// browser.
func tabNames() []string {
	return []string{"Summary", "Request", "Response", "Raw", "HTTP", "SSE", "Timing", "Findings", "Translated"}
}

// tabsOf returns the tabs that have content.
func tabsOf(d *detail.Detail) []tab {
	var list []tab
	names := tabNames()
	add := func(has bool, title string, lines func(r *renderer, d *detail.Detail) []line) {
		if has {
			list = append(list, tab{title: title, number: slices.Index(names, title) + 1, lines: lines})
		}
	}
	add(true, "Summary", (*renderer).summary)
	add(d.Request != nil, "Request", (*renderer).request)
	add(d.Response != nil || d.Last != nil, "Response", (*renderer).response)
	add(len(d.Raw) > 0, "Raw", (*renderer).raw)
	add(d.HTTP != nil, "HTTP", (*renderer).http)
	add(d.SSE != nil, "SSE", (*renderer).sse)
	add(len(d.Timing.Segments) > 0 || len(d.Timing.Marks) > 0, "Timing", (*renderer).timing)
	add(len(d.Findings) > 0, "Findings", (*renderer).findings)
	add(len(d.Translations) > 0, "Translated", (*renderer).translated)
	return list
}

func (r *renderer) summary(d *detail.Detail) []line {
	t := r.theme
	var out []line
	for _, w := range d.Summary.Sentences {
		out = append(out, line{{t.text, safe(w)}})
	}
	out = r.content(out, "Asked", d.Asked, d)
	out = r.content(out, "Came back", d.Returned, d)
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
			out = append(out, line{{t.dim, fmt.Sprintf("  %d earlier ones were removed", d.OmittedChildren)}})
		}
		for _, in := range d.Children {
			out = append(out, line{{t.dim, "  " + padLeft(number(in.N), 6) + " " + padLeft(millisText(in.AtMS), 9) + "  "}, {t.text, in.Glyph + " " + safe(in.Summary)}})
		}
	}
	if len(d.Counterparts) > 0 {
		out = append(out, nil, line{{t.head, "On the other side of the bridge"}})
	}
	for _, o := range d.Counterparts {
		out = append(out, line{{t.dim, "  " + padLeft(number(o.N), 6) + " " + pad(trace.SideLabel(o.Side), 5)}, {t.text, safe(o.Glyph) + " " + safe(o.Summary)}})
	}
	for _, x := range d.Missing {
		out = append(out, nil, line{{t.finding, fmt.Sprintf("▲ Event #%d cannot be read again: %s", x.N, safe(x.Why))}})
	}
	return out
}

func (r *renderer) request(d *detail.Detail) []line { return r.payload(d, d.Request) }

func (r *renderer) response(d *detail.Detail) []line {
	if d.Last == nil {
		return r.payload(d, d.Response)
	}
	out := []line{{{r.theme.head, "Final response"}}}
	out = append(out, r.payload(d, d.Last)...)
	if d.Response != nil {
		out = append(out, nil, line{{r.theme.head, "First response"}})
		out = append(out, r.payload(d, d.Response)...)
	}
	return out
}

// payload shows a payload, with findings at their lines.
func (r *renderer) payload(d *detail.Detail, p *detail.Payload) []line {
	t := r.theme
	head := fmt.Sprintf("#%d · %s · %s", p.N, trace.FormatSize(p.Len), p.Form)
	if p.Cut {
		head += " · only the beginning was recorded"
	}
	if p.Partial {
		head += " · one of a batch"
	}
	if p.Redacted > 0 {
		head += fmt.Sprintf(" · %d redacted", p.Redacted)
	}
	out := []line{{{t.dim, head}}}
	if p.Anomaly != "" {
		out = append(out, line{{t.finding, "▲ " + safe(p.Anomaly)}})
	}
	for _, l := range p.Lines {
		out = append(out, r.textLine(l))
		for _, i := range l.Findings {
			if i >= 0 && i < len(d.Findings) {
				out = append(out, line{{"", spaces(2 * min(l.Depth, maxIndent))}, {r.theme.ofSeverity(d.Findings[i].Severity), "▲ " + safe(d.Findings[i].Rule) + ": " + safe(d.Findings[i].Message)}})
			}
		}
		if l.Blob > 0 && l.Blob <= len(p.Blobs) {
			b := p.Blobs[l.Blob-1]
			out = append(out, line{{"", spaces(2*min(l.Depth, maxIndent) + 2)}, {t.dim, fmt.Sprintf("(%s of %s in Base64)", trace.FormatSize(b.Len), cmp.Or(safe(b.MediaType), "data"))}})
		}
	}
	if p.OmittedBytes > 0 {
		out = append(out, line{{t.dim, "… and " + trace.FormatSize(p.OmittedBytes) + " more; Ctrl+S saves all of it"}})
	}
	return out
}

// maxIndent limits the indentation of JSON. Deeper levels would be unreadable.
const maxIndent = 20

func (r *renderer) textLine(l detail.Line) line {
	out := line{{"", spaces(2 * min(l.Depth, maxIndent))}}
	if l.Depth > maxIndent {
		out = append(out, span{r.theme.dim, "⋯" + strconv.Itoa(l.Depth) + " "})
	}
	return append(out, r.styledSpans(l.Spans)...)
}

func (r *renderer) styledSpans(list []detail.Span) line {
	var out line
	for _, s := range list {
		out = append(out, span{r.theme.ofSpan(s.Kind), safeLong(s.Text)})
	}
	return out
}

func (t *theme) ofSpan(k detail.SpanKind) style {
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

func (t *theme) ofSeverity(s string) style {
	switch s {
	case "error":
		return t.failure
	case "warning", "warn":
		return t.finding
	}
	return t.notification
}

func (r *renderer) raw(d *detail.Detail) []line {
	t := r.theme
	var out []line
	for i, x := range d.Raw {
		if i > 0 {
			out = append(out, nil)
		}
		after := ""
		if x.AtMS != 0 {
			after = "after " + millisText(x.AtMS)
		}
		head := []string{"#" + number(x.N), string(x.Kind), arrow(string(x.Dir)), after, trace.FormatSize(x.Len)}
		if x.Framing != "" {
			head = append(head, "framing "+safe(string(x.Framing)))
		}
		if x.Part > 0 {
			head = append(head, "part "+strconv.Itoa(x.Part))
		}
		if x.Encoding != "" {
			head = append(head, "coded "+safe(x.Encoding))
		}
		if x.Why != "" {
			head = append(head, "not plain JSON: "+safe(x.Why))
		}
		if x.Cut {
			head = append(head, "only the beginning was recorded")
		}
		out = append(out, line{{t.head, trace.Join(" ", head...)}})
		if r.hex && len(x.Hex) > 0 {
			for _, h := range x.Hex {
				out = append(out, r.hexLines(h)...)
			}
			continue
		}
		for _, l := range append(x.Prefix[:len(x.Prefix):len(x.Prefix)], x.Lines...) {
			out = append(out, r.textLine(l))
		}
		if x.OmittedBytes > 0 {
			out = append(out, line{{t.dim, "… and " + trace.FormatSize(x.OmittedBytes) + " more"}})
		}
		if len(x.Redacted) > 0 {
			out = append(out, line{{t.finding, "redacted: " + safe(strings.Join(x.Redacted, " "))}})
		}
	}
	return append(out, nil, line{{t.dim, "b shows bytes as hexadecimal digits, or as text"}})
}

// hexLines shows 16 bytes, on two lines if one is too wide.
func (r *renderer) hexLines(h detail.HexRow) []line {
	row := func(offset int64, hex, text string, columns int) line {
		return line{{r.theme.dim, fmt.Sprintf("%08x  ", offset)}, {r.theme.text, pad(hex, columns)}, {r.theme.str, " " + safe(text)}}
	}
	const whole, half = 49, 24
	if r.columns >= 10+whole+17 || len(h.Hex) <= half || len(h.Text) <= 8 {
		return []line{row(h.Offset, h.Hex, h.Text, whole)}
	}
	return []line{row(h.Offset, h.Hex[:half], h.Text[:8], half), row(h.Offset+8, strings.TrimLeft(h.Hex[half:], " "), h.Text[8:], half)}
}

func arrow(dir string) string {
	switch dir {
	case "c2s":
		return "→"
	case "s2c":
		return "←"
	}
	return ""
}

func (r *renderer) http(d *detail.Detail) []line {
	t, h := r.theme, d.HTTP
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
			out = append(out, append(line{{name, safe(f.Name)}, {t.dim, ": "}}, r.styledSpans(f.Value)...))
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
		out = append(out, line{{t.dim, trace.FormatSize(h.BodyBytes) + " in bodies that are not messages"}})
	}
	return out
}

func (r *renderer) sse(d *detail.Detail) []line {
	t := r.theme
	var out []line
	if d.SSE.OmittedEvents > 0 {
		out = append(out, line{{t.dim, fmt.Sprintf("%d earlier ones", d.SSE.OmittedEvents)}})
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
			l = append(l, r.styledSpans(e.Data)...)
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

func (r *renderer) timing(d *detail.Detail) []line {
	t, x := r.theme, d.Timing
	out := []line{
		{{t.dim, "began   "}, {t.text, x.At.In(r.zone).Format("2006-01-02 15:04:05.000000")}},
		{{t.dim, "all     "}, {t.text, millisText(x.WallMS)}},
		{{t.dim, "server  "}, {t.text, millisText(x.ServerMS)}},
	}
	if x.ClientMS > 0 {
		out = append(out, line{{t.dim, "client  "}, {t.text, millisText(x.ClientMS)}, {t.dim, "  the server waited for the client or its user"}})
	}
	if x.Open {
		out = append(out, line{{t.pending, "… still running"}})
	}
	out = append(out, nil)
	whole := x.WallMS
	label := 0
	for _, s := range x.Segments {
		whole = max(whole, s.ToMS)
		label = max(label, min(18, width(safe(s.Label))))
	}
	columns := min(60, max(8, r.columns-label-24))
	for _, s := range x.Segments {
		out = append(out, line{{t.text, pad(safe(s.Label), label) + " "}, r.segmentBar(s, whole, columns), {t.dim, " " + padLeft(millisText(s.FromMS), 9) + " " + padLeft(millisText(s.ToMS-s.FromMS), 9)}})
	}
	if len(x.Marks) > 0 {
		out = append(out, nil)
	}
	for _, k := range x.Marks {
		out = append(out, line{{t.dim, padLeft("#"+number(k.N), 7) + " " + padLeft(millisText(k.MS), 9) + "  "}, {t.text, safe(k.Label)}})
	}
	return out
}

func (r *renderer) segmentBar(s detail.Segment, whole float64, columns int) span {
	at := func(ms float64) int {
		if whole <= 0 {
			return 0
		}
		return min(columns-1, max(0, int(ms/whole*float64(columns))))
	}
	from, to := at(s.FromMS), at(s.ToMS)
	st, sign := r.theme.bar, string(segmentSigns[s.Kind])
	if s.Kind == trace.SegmentClient {
		st = r.theme.waiting
	}
	bar := strings.Repeat(sign, to-from+1)
	if s.Open {
		bar = strings.Repeat(sign, to-from) + "›"
	}
	return span{st, spaces(from) + bar + spaces(columns-to-1)}
}

func (r *renderer) findings(d *detail.Detail) []line {
	t := r.theme
	var out []line
	for i, l := range d.Findings {
		if i > 0 {
			out = append(out, nil)
		}
		out = append(out, line{{r.theme.ofSeverity(l.Severity).plus(bold), "▲ " + safe(l.Severity) + "  " + safe(l.Rule)}, {t.text, "  " + safe(l.Title)}})
		for _, f := range []struct{ name, value string }{{"seen", l.Message}, {"at", l.Pointer}, {"why", l.Why}, {"fix", l.Fix}, {"spec", l.URL}} {
			if f.value != "" {
				out = append(out, line{{t.dim, "  " + pad(f.name, 5)}, {t.text, safe(f.value)}})
			}
		}
		out = append(out, line{{t.dim, "  event"}, {t.text, " #" + number(l.Event)}})
	}
	return out
}

func millisText(ms float64) string {
	return trace.FormatDuration(time.Duration(min(max(ms, -9e12), 9e12) * float64(time.Millisecond)).Round(100 * time.Nanosecond))
}

// twoColumns is the width from which two messages are side by side.
const twoColumns = 96

// translated shows the translations of a bridge: before and after side by side or, on a narrow
// screen, one below the other.
func (r *renderer) translated(d *detail.Detail) []line {
	t := r.theme
	var out []line
	for i := range d.Translations {
		x := &d.Translations[i]
		if i > 0 {
			out = append(out, nil)
		}
		out = append(out, r.translatedHead(x))
		switch {
		case x.Lines == nil:
			out = append(out, r.unaligned(d, x)...)
		case x.Changed == 0:
			out = append(out, line{{t.added, "  = unchanged"}})
			fallthrough
		default:
			out = append(out, r.aligned(x, r.columns)...)
		}
	}
	if len(d.Counterparts) > 0 {
		out = append(out, nil, line{{t.dim, "o goes to the other side, and back"}})
	}
	return out
}

func (r *renderer) translatedHead(x *detail.Translation) line {
	t := r.theme
	sign, st := "→", t.request
	if x.Dir == "s2c" {
		sign, st = "←", t.response
	}
	l := line{{st, sign + " "}}
	side := func(p *detail.TranslatedMessage) {
		if p == nil {
			l = append(l, span{t.dim, "nothing"})
			return
		}
		l = append(l, span{t.head, strings.TrimSpace(string(p.Side) + fmt.Sprintf(" #%d", p.N))}, span{t.dim, " " + trace.FormatSize(p.Len)})
	}
	side(x.Before)
	l = append(l, span{t.dim, " ⇄ "})
	side(x.After)
	return append(l, span{t.text, "  " + safe(x.Rule)})
}

// unaligned shows two messages that are not both JSON.
func (r *renderer) unaligned(d *detail.Detail, x *detail.Translation) []line {
	var out []line
	for i, p := range []*detail.TranslatedMessage{x.Before, x.After} {
		if p != nil {
			out = append(out, line{{r.theme.dim, []string{"before", "after"}[i]}})
			out = append(out, r.payload(d, p.Payload)...)
		}
	}
	return out
}

// aligned shows pairs of lines in one or two columns.
func (r *renderer) aligned(x *detail.Translation, columns int) []line {
	t := r.theme
	var out []line
	for _, p := range x.Lines {
		if p[0] == 0 && p[1] == 0 {
			out = append(out, line{{t.dim, fmt.Sprintf("  ⋯ %d lines unchanged", p[2])}})
			continue
		}
		before, after := r.sideLine(x.Before, p[0], p[2], "−", t.failure), r.sideLine(x.After, p[1], p[2], "+", t.added)
		switch {
		case columns >= twoColumns:
			out = append(out, sideBySide(t, before, after, (columns-3)/2)...)
		case p[2] == 0 && before != nil:
			out = append(out, before)
		default:
			for _, l := range []line{before, after} {
				if l != nil {
					out = append(out, l)
				}
			}
		}
	}
	if x.Before.OmittedBytes > 0 || x.After.OmittedBytes > 0 {
		out = append(out, line{{t.dim, "… and more, not shown"}})
	}
	return out
}

// sideLine returns a line of one message, with a sign if the lines differ. It returns nil for a
// missing line.
func (r *renderer) sideLine(p *detail.TranslatedMessage, n, differs int, sign string, st style) line {
	if n <= 0 || n > len(p.Lines) {
		return nil
	}
	if differs == 0 {
		return append(line{{"", "  "}}, r.textLine(p.Lines[n-1])...)
	}
	return append(line{{st, sign + " "}}, r.textLine(p.Lines[n-1])...)
}

// sideBySide puts two lines side by side, each wrapped at a number of columns.
func sideBySide(t *theme, a, b line, columns int) []line {
	left, right := wrapSide(a, columns), wrapSide(b, columns)
	var out []line
	for i := range max(len(left), len(right)) {
		var l line
		if i < len(left) {
			l = append(l, left[i]...)
		}
		l = append(l, span{"", spaces(columns - l.width())}, span{t.dim, " │ "})
		if i < len(right) {
			l = append(l, right[i]...)
		}
		out = append(out, l)
	}
	return out
}

func wrapSide(l line, columns int) []line {
	if l == nil {
		return nil
	}
	return l.wrap(columns, min(l.indent()+2, columns/2))
}
