package picture

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
	"mcpwire/internal/text/plural"
)

// Limits of an Overview.
const (
	maxTools    = 12 // in a list
	maxLives    = 16
	timeBuckets = 72
)

// An Overview summarizes the traffic of a model: requests over time, latencies by tool, sizes of
// definitions, and the lives of servers.
type Overview struct {
	// Evicted is the number of earlier rows that the caller no longer has.
	Evicted int

	calls, failed, pending int
	latency                trace.Histogram
	scale                  trace.TimeScale
	buckets                [timeBuckets]struct{ ok, failed int }
	tools                  []toolStat
	moreTools              int
	definitions            []definition
	definitionTools        int
	definitionBytes        int64
	definitionTokens       int
	definitionByServer     []definition
	lives                  []life
	moreLives              int
	servers                int
}

// A toolStat has the latencies of a tool, or of a method if no tool was called.
type toolStat struct {
	server, name  string
	color         int
	calls, failed uint64
	p50, p95, p99 time.Duration
}

// A definition is the size of a tool's definition, or of all of a server.
type definition struct {
	server, name string
	color        int
	bytes        int64
	tokens       int
}

// A life is a session, from its first to its last event.
type life struct {
	name, detail string
	color        int
	from, to     time.Time
	rows         uint64
	// exit is how the process ended: "" if it did not, or no end is known.
	exit   string
	failed bool
}

// NewOverview returns the overview of rows of a timeline, oldest first, and of all of the model's
// statistics. The caller must hold the lock of the model.
func NewOverview(m *trace.Model, rows []*trace.Row) *Overview {
	o := &Overview{}
	colors := map[string]int{}
	for _, c := range m.Captures() {
		colors[c.Name] = c.ServerIndex
		for _, s := range c.Sessions() {
			colors[s.ServerName()] = s.ServerIndex()
		}
	}
	o.addSessions(m)
	var busy []trace.Interval
	for _, r := range rows {
		busy = append(busy, busyTimes(r)...)
	}
	for _, l := range o.lives {
		busy = append(busy, trace.Interval{From: l.from, To: l.from}, trace.Interval{From: l.to, To: l.to})
	}
	o.scale = newTimeScale(busy)
	for _, r := range rows {
		o.addCall(r)
	}
	o.addTools(m, colors)
	return o
}

// addCall counts a request of a client.
func (o *Overview) addCall(r *trace.Row) {
	if r.Kind != trace.Request || r.Dir == capture.ToClient || r.Session.Side == capture.Upstream {
		return
	}
	o.calls++
	bucket := &o.buckets[min(timeBuckets-1, int(o.scale.Place(r.At)*timeBuckets))]
	switch {
	case r.Status.IsFailure():
		o.failed++
		bucket.failed++
		return
	case !r.Done:
		o.pending++
	default:
		if !r.IsStream() {
			o.latency.Add(r.ServerTime())
		}
	}
	bucket.ok++
}

func (o *Overview) addTools(m *trace.Model, colors map[string]int) {
	color := func(label string) int {
		name := strings.TrimSuffix(strings.TrimSuffix(label, " downstream"), " upstream")
		return colors[name]
	}
	stats := m.Tools()
	if !slices.ContainsFunc(stats, func(s *trace.Stat) bool { return s.Calls > 0 }) {
		stats = append(stats, m.Methods()...)
	}
	byServer := map[string]*definition{}
	for _, s := range stats {
		if s.DefinitionBytes > 0 && !strings.HasSuffix(s.Server, " upstream") {
			n := s.DefinitionTokens()
			o.definitions = append(o.definitions, definition{s.Server, s.Name, color(s.Server), s.DefinitionBytes, n})
			o.definitionTools++
			o.definitionBytes += s.DefinitionBytes
			o.definitionTokens += n
			d := byServer[s.Server]
			if d == nil {
				d = &definition{server: s.Server, color: color(s.Server)}
				byServer[s.Server] = d
			}
			d.bytes += s.DefinitionBytes
			d.tokens += n
		}
		if s.Calls > 0 {
			l := &s.Latency
			o.tools = append(o.tools, toolStat{s.Server, s.Name, color(s.Server), s.Calls, s.Errors + s.ToolErrors + s.Unanswered, l.Quantile(0.5), l.Quantile(0.95), l.Quantile(0.99)})
		}
	}
	for _, d := range byServer {
		o.definitionByServer = append(o.definitionByServer, *d)
	}
	bySize := func(a, b definition) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.server, b.server), cmp.Compare(a.name, b.name))
	}
	slices.SortFunc(o.definitions, bySize)
	slices.SortFunc(o.definitionByServer, bySize)
	o.definitions = o.definitions[:min(maxTools, len(o.definitions))]
	slices.SortFunc(o.tools, func(a, b toolStat) int {
		return cmp.Or(cmp.Compare(b.calls, a.calls), cmp.Compare(a.server, b.server), cmp.Compare(a.name, b.name))
	})
	o.moreTools = max(0, len(o.tools)-maxTools)
	o.tools = o.tools[:min(maxTools, len(o.tools))]
}

func (o *Overview) addSessions(m *trace.Model) {
	names := map[string]bool{}
	for _, c := range m.Captures() {
		sessions := c.Sessions()
		if !slices.ContainsFunc(sessions, func(s *trace.Session) bool { return s.Side == capture.Upstream }) {
			names[c.Name] = true
		}
		for _, s := range sessions {
			if s.Side == capture.Upstream {
				names[s.ServerName()] = true
			}
			if s.Rows == 0 || s.First.IsZero() {
				continue
			}
			l := life{name: s.Label(), color: s.ServerIndex(), from: s.First, to: s.Last, rows: s.Rows, detail: s.Negotiated}
			if s.Exited {
				l.exit = "exit " + strconv.Itoa(s.ExitCode)
				if s.Signal != "" {
					l.exit = s.Signal
				}
				l.failed = s.ExitCode != 0 || s.Signal != ""
			}
			o.lives = append(o.lives, l)
		}
	}
	o.servers = len(names)
	slices.SortStableFunc(o.lives, func(a, b life) int { return a.from.Compare(b.from) })
	if o.moreLives = max(0, len(o.lives)-maxLives); o.moreLives > 0 {
		o.lives = o.lives[o.moreLives:]
	}
}

// Measures of an overview, in px.
const (
	cardGap   = 16.0
	cardPad   = 18.0
	lineStep  = 22.0
	kpiHeight = 78.0
	chartTall = 172.0
)

// SVG returns the picture. width is about how wide it may be, in px; zero means 980.
func (o *Overview) SVG(width int) string {
	c := &canvas{}
	w := defaultWidth
	if width > 0 {
		w = min(max(float64(width), 340), 1500)
	}
	wide := w >= 760
	half := (w - 3*cardGap) / 2
	if !wide {
		half = w - 2*cardGap
	}
	kpis := o.kpis()
	perRow := len(kpis)
	if !wide {
		perRow = 3
		if w < 520 {
			perRow = 2
		}
	}
	kpiRows := float64((len(kpis) + perRow - 1) / perRow)
	top := cardGap + 36
	chartY := top + kpiRows*(kpiHeight+cardGap)
	toolsH := 78 + lineStep*float64(max(len(o.tools), 1))
	if o.moreTools > 0 {
		toolsH += 16
	}
	defsH := 78 + lineStep*float64(max(len(o.definitions), 1))
	listY := chartY + chartTall + cardGap
	livesY := listY + max(toolsH, defsH) + cardGap
	if !wide {
		livesY = listY + toolsH + defsH + 2*cardGap
	} else {
		toolsH = max(toolsH, defsH)
		defsH = toolsH
	}
	livesH := 62 + lineStep*float64(max(len(o.lives), 1))
	height := livesY + livesH + cardGap
	c.begin(w, height, "Overview: "+count(o.calls, "request")+" of "+plural.Of(o.servers, "server"), o.subtitle())
	c.text("p-title", cardGap+2, 32, "start", "Overview")
	if wide {
		c.text("p-dim", cardGap+100, 32, "start", o.subtitle())
	}
	c.text("p-dim", w-cardGap-2, 32, "end", "mcpwire")
	kw := (w - cardGap*float64(perRow+1)) / float64(perRow)
	for i, k := range kpis {
		x := cardGap + float64(i%perRow)*(kw+cardGap)
		y := top + float64(i/perRow)*(kpiHeight+cardGap)
		c.rect("p-card", x, y, kw, kpiHeight, 12)
		c.text("p-dim", x+cardPad, y+24, "start", k.label)
		c.text("p-big "+k.class, x+cardPad, y+51, "start", k.value)
		c.text("p-time", x+cardPad, y+67, "start", fit(k.note, kw-2*cardPad+10, 10.5))
	}
	o.drawCalls(c, cardGap, chartY, w-2*cardGap)
	o.drawTools(c, cardGap, listY, half, toolsH)
	if wide {
		o.drawDefinitions(c, 2*cardGap+half, listY, half, defsH)
	} else {
		o.drawDefinitions(c, cardGap, listY+toolsH+cardGap, half, defsH)
	}
	o.drawLives(c, cardGap, livesY, w-2*cardGap, livesH)
	return c.end()
}

func (o *Overview) subtitle() string {
	if len(o.scale.Segments) == 0 {
		return "no traffic yet"
	}
	return o.scale.From.UTC().Format("2006-01-02 15:04:05 UTC") + "  ·  " + trace.FormatDuration(o.scale.To.Sub(o.scale.From)) + withoutEvicted(o.Evicted)
}

// A kpi is a figure at the top.
type kpi struct{ label, value, note, class string }

func (o *Overview) kpis() []kpi {
	share, class := "none", "p-ok"
	if o.failed > 0 {
		share, class = fmt.Sprintf("%.1f %% of all", 100*float64(o.failed)/float64(max(o.calls, 1))), "p-bad"
	}
	pending := "all are answered"
	if o.pending > 0 {
		pending = plural.Of(o.pending, "pending request")
	}
	p := func(q float64) string {
		if o.latency.Count() == 0 {
			return "–"
		}
		return trace.FormatDuration(o.latency.Quantile(q))
	}
	return []kpi{
		{"Requests", trace.FormatCount(o.calls), pending, ""},
		{"Failed", trace.FormatCount(o.failed), share, class},
		{"Median", p(0.5), "p95 " + p(0.95), ""},
		{"p99", p(0.99), "longest " + p(1), ""},
		{"Servers", trace.FormatCount(o.servers), plural.Of(len(o.lives)+o.moreLives, "session"), ""},
		o.definitionKPI(),
	}
}

func (o *Overview) definitionKPI() kpi {
	if o.definitionBytes == 0 {
		return kpi{"Definitions", "–", "no tools listed", ""}
	}
	return kpi{"Definitions", trace.FormatCount(o.definitionTokens), "o200k tokens, " + trace.FormatSize(o.definitionBytes), ""}
}

// count formats a count of things: "12,345 rows".
func count(n int, what string) string {
	return trace.FormatCount(n) + strings.TrimPrefix(plural.Of(n, what), strconv.Itoa(n))
}

// drawCalls draws requests over time.
func (o *Overview) drawCalls(c *canvas, x, y, w float64) {
	c.rect("p-card", x, y, w, chartTall, 12)
	c.text("p-heading", x+cardPad, y+26, "start", "Requests over time")
	if w > 440 {
		legend(c, x+w-cardPad, y+26, []span{{"p-f-bad", "failed"}, {"p-f-ask", "answered or pending"}})
	}
	left, right := x+cardPad+30, x+w-cardPad
	base, tall := y+chartTall-34, chartTall-80
	most := 1
	for _, b := range o.buckets {
		most = max(most, b.ok+b.failed)
	}
	top := niceCount(most)
	for _, share := range []float64{0, 0.5, 1} {
		at := base - tall*share
		c.line("p-grid", left, at, right, at)
		if n := float64(top) * share; n == math.Trunc(n) {
			c.text("p-time", left-8, at+3.5, "end", trace.FormatCount(int(n)))
		}
	}
	step := (right - left) / timeBuckets
	for i, b := range o.buckets {
		if b.ok+b.failed == 0 {
			continue
		}
		bx, bw := left+float64(i)*step+0.8, max(step-1.6, 1.5)
		all := max(tall*float64(b.ok+b.failed)/float64(top), 2)
		bad := 0.0
		if b.failed > 0 {
			bad = max(all*float64(b.failed)/float64(b.ok+b.failed), 2)
		}
		if all > bad {
			c.rect("p-f-ask", bx, base-all, bw, all-bad, min(2, bw/3))
		}
		if bad > 0 {
			c.rect("p-f-bad", bx, base-bad, bw, bad, min(2, bw/3))
		}
	}
	o.drawAxis(c, left, right, base)
}

// drawAxis draws times below a chart, and marks where idle time is left out.
func (o *Overview) drawAxis(c *canvas, left, right, y float64) {
	c.line("p-axis", left, y, right, y)
	for _, t := range ticks(&o.scale, right-left) {
		at := left + t.x*(right-left)
		if t.gap {
			c.path("p-gapline", fmt.Sprintf("M%s %sv-12", number(at), number(y+4)))
			c.text("p-time", at, y+16, "middle", "// "+t.text)
			continue
		}
		c.line("p-axis", at, y, at, y+4)
		c.text("p-time", at, y+16, "middle", t.text)
	}
}

// niceCount returns a round number of at least n.
func niceCount(n int) int {
	for unit := 2; ; unit *= 10 {
		for _, k := range []int{2, 3, 4, 5, 6, 8, 10} {
			if k*unit/2 >= n {
				return k * unit / 2
			}
		}
	}
}

// legend draws signs with texts that end at x. The class of a span is that of its sign.
func legend(c *canvas, x, y float64, list []span) {
	for _, s := range list {
		c.text("p-dim", x, y, "end", s.text)
		x -= textWidth(s.text, 11) + 12
		c.rect(s.class, x, y-8, 8, 8, 2)
		x -= 12
	}
}

// drawTools draws the latencies of tools on a logarithmic scale.
func (o *Overview) drawTools(c *canvas, x, y, w, h float64) {
	c.rect("p-card", x, y, w, h, 12)
	c.text("p-heading", x+cardPad, y+26, "start", "Latency by tool")
	if len(o.tools) == 0 {
		c.text("p-dim", x+cardPad, y+62, "start", "No call yet.")
		return
	}
	low, high := time.Duration(math.MaxInt64), time.Duration(0)
	for _, t := range o.tools {
		if t.p50 > 0 {
			low = min(low, t.p50)
		}
		high = max(high, t.p99)
	}
	low, high = decades(low, high)
	nameW := min(w*0.36, 180)
	left, right := x+cardPad+nameW+10, x+w-cardPad-92
	place := func(d time.Duration) float64 {
		share := (math.Log10(float64(max(d, low))) - math.Log10(float64(low))) / (math.Log10(float64(high)) - math.Log10(float64(low)))
		return left + min(max(share, 0), 1)*(right-left)
	}
	first := y + 62
	last := first + lineStep*float64(len(o.tools)-1)
	labeled := math.Inf(-1)
	for d := low; d <= high; d *= 10 {
		at := place(d)
		c.line("p-grid", at, first-16, at, last+10)
		if at-labeled >= 48 {
			c.text("p-time", at, first-22, "middle", trace.FormatDuration(d))
			labeled = at
		}
	}
	c.text("p-time", x+w-cardPad, first-22, "end", "calls")
	shared := map[string]int{}
	for _, t := range o.tools {
		shared[t.name]++
	}
	for i, t := range o.tools {
		at := first + lineStep*float64(i)
		c.circle(serverClass(t.color), x+cardPad+4, at-4, 3.5)
		c.spans(x+cardPad+14, at, "start", nameSpans(t.name, shared[t.name], t.server, nameW-14)...)
		if t.p99 > 0 {
			c.line("p-range p-l-ask", place(t.p50), at-4, place(t.p99), at-4)
			c.line("p-arrow p-l-ask", place(t.p99), at-9, place(t.p99), at+1)
			c.circle("p-ground", place(t.p95), at-4, 4.2)
			c.path("p-arrow p-open p-l-ask", circlePath(place(t.p95), at-4, 3.4))
			c.circle(serverClass(t.color), place(t.p50), at-4, 4.2)
		}
		c.text("p-dim", x+w-cardPad, at, "end", trace.FormatCount(int(t.calls)))
		if t.failed > 0 {
			c.text("p-dim p-bad", x+w-cardPad-textWidth(trace.FormatCount(int(t.calls)), 11)-6, at, "end", "✖"+trace.FormatCount(int(t.failed)))
		}
	}
	note := "● p50   ○ p95   | p99, time of the server"
	if o.moreTools > 0 {
		note += ", " + plural.Of(o.moreTools, "more tool")
	}
	c.text("p-time", x+cardPad, y+h-12, "start", note)
}

// nameSpans returns the name of a tool, with its server if several tools have the name.
func nameSpans(name string, tools int, server string, width float64) []span {
	name = fit(name, width, 12)
	list := []span{{"p-name", name}}
	if room := width - boldTextWidth(name, 12) - 6; tools > 1 && room > 24 {
		list = append(list, span{"p-dim", fit(server, room, 11)})
	}
	return list
}

func circlePath(x, y, r float64) string {
	return fmt.Sprintf("M%s %sa%s %s 0 1 0 %s 0a%s %s 0 1 0 -%s 0", number(x-r), number(y), number(r), number(r), number(2*r), number(r), number(r), number(2*r))
}

// decades returns powers of ten around two durations.
func decades(low, high time.Duration) (from, to time.Duration) {
	if high <= 0 || low > high {
		return time.Millisecond, time.Second
	}
	from = time.Microsecond
	for from*10 <= low {
		from *= 10
	}
	to = from * 10
	for to < high {
		to *= 10
	}
	return from, to
}

func (o *Overview) drawDefinitions(c *canvas, x, y, w, h float64) {
	c.rect("p-card", x, y, w, h, 12)
	c.text("p-heading", x+cardPad, y+26, "start", "Definitions")
	if len(o.definitions) == 0 {
		c.text("p-dim", x+cardPad, y+62, "start", "No tools were listed.")
		return
	}
	total := trace.FormatCount(o.definitionTokens) + " o200k tokens"
	if w > 400 {
		total = fmt.Sprintf("%s, %s, %s in each context", count(o.definitionTools, "tool"), trace.FormatSize(o.definitionBytes), total)
	}
	c.text("p-dim", x+w-cardPad, y+26, "end", total)
	// A bar of all servers.
	at := x + cardPad
	for _, d := range o.definitionByServer {
		part := (w - 2*cardPad) * float64(d.bytes) / float64(o.definitionBytes)
		c.rect(serverClass(d.color), at, y+36, max(part-1.5, 1), 8, 2)
		at += part
	}
	most := o.definitions[0].bytes
	nameW := min(w*0.36, 180)
	left, right := x+cardPad+nameW+10, x+w-cardPad-100
	shared := map[string]int{}
	for _, d := range o.definitions {
		shared[d.name]++
	}
	for i, d := range o.definitions {
		at := y + 66 + lineStep*float64(i)
		c.circle(serverClass(d.color), x+cardPad+4, at-4, 3.5)
		c.spans(x+cardPad+14, at, "start", nameSpans(d.name, shared[d.name], d.server, nameW-14)...)
		c.rect("p-track", left, at-9, right-left, 10, 3)
		c.rect(serverClass(d.color), left, at-9, max((right-left)*float64(d.bytes)/float64(most), 2), 10, 3)
		c.text("p-dim", x+w-cardPad, at, "end", trace.FormatSize(d.bytes)+"  "+trace.FormatCount(d.tokens))
	}
}

func (o *Overview) drawLives(c *canvas, x, y, w, h float64) {
	c.rect("p-card", x, y, w, h, 12)
	c.text("p-heading", x+cardPad, y+26, "start", "Servers")
	if o.moreLives > 0 {
		c.text("p-dim", x+w-cardPad, y+26, "end", plural.Of(o.moreLives, "older session"))
	}
	if len(o.lives) == 0 {
		c.text("p-dim", x+cardPad, y+50, "start", "No session yet.")
		return
	}
	nameW := min(w*0.22, 220)
	left, right := x+cardPad+nameW+10, x+w-cardPad-86
	for i, l := range o.lives {
		at := y + 50 + lineStep*float64(i)
		class := serverClass(l.color)
		c.circle(class, x+cardPad+4, at-4, 3.5)
		c.spans(x+cardPad+14, at, "start", span{"p-name", fit(l.name, nameW*0.62, 12)}, span{"p-dim", fit(l.detail, nameW*0.38, 11)})
		from, to := left+o.scale.Place(l.from)*(right-left), left+o.scale.Place(l.to)*(right-left)
		c.rect("p-track", left, at-9, right-left, 10, 5)
		c.rect(class, from, at-9, max(to-from, 4), 10, 5)
		tone, text := "p-dim", count(int(l.rows), "row")
		if l.exit != "" {
			text = l.exit
			if l.failed {
				tone, text = "p-dim p-bad", "✖ "+l.exit
			}
		}
		c.text(tone, x+w-cardPad, at, "end", text)
	}
}
