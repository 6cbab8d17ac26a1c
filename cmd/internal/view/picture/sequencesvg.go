package picture

import (
	"fmt"
	"math"
	"slices"
	"time"

	"mcpwire/cmd/internal/trace"
)

// Measures of a sequence, in px.
const (
	defaultWidth = 980.0
	gutter       = 78.0 // for times
	rightMargin  = 22.0
	laneSpacing  = 190.0 // at least, between two lanes
	headTop      = 70.0  // of the lanes' names
	headHeight   = 44.0
	callHeight   = 32.0
	replyHeight  = 24.0
	noteHeight   = 22.0
	gapHeight    = 30.0
	loopMargin   = 9.0
	barWidth     = 9.0 // of the time in which a peer works on a call
	footHeight   = 34.0
)

// A layout has the places of a sequence.
type layout struct {
	*Sequence
	canvas
	width   float64
	centers []float64
	// y has the place of each step's line.
	y      []float64
	bottom float64
	began  time.Time
	// bars are the times in which peers work on calls, by the call.
	bars map[uint64]bar
}

// A bar is the time in which a peer works on a call.
type bar struct {
	lane     int
	from, to float64
	// depth is how many other bars of the lane it overlaps.
	depth int
	tone  string
	open  bool
}

// SVG returns the picture. width is about how wide it may be, in px; zero means 980. Many lanes
// need more.
func (s *Sequence) SVG(width int) string {
	l := &layout{Sequence: s, width: defaultWidth, bars: map[uint64]bar{}}
	if width > 0 {
		l.width = min(max(float64(width), 480), 1600)
	}
	l.width = max(l.width, gutter+rightMargin+float64(len(s.lanes))*laneSpacing)
	spacing := (l.width - gutter - rightMargin) / float64(max(len(s.lanes), 1))
	for i := range s.lanes {
		l.centers = append(l.centers, gutter+spacing*(float64(i)+0.5))
	}
	l.place()
	l.placeBars()
	l.draw(spacing)
	return l.end()
}

func (l *layout) place() {
	y := headTop + headHeight + 14
	if l.omitted > 0 {
		y += 22
	}
	first, last := map[int]int{}, map[int]int{}
	for i, s := range l.steps {
		if s.loop > 0 {
			if _, ok := first[s.loop]; !ok {
				first[s.loop] = i
			}
			last[s.loop] = i
		}
	}
	for i, s := range l.steps {
		if s.loop > 0 && first[s.loop] == i {
			y += loopMargin + 8
		}
		switch s.kind {
		case callStep:
			y += callHeight
		case replyStep:
			y += replyHeight
		case gapStep:
			y += gapHeight
		default:
			y += noteHeight
		}
		l.y = append(l.y, y)
		if s.loop > 0 && last[s.loop] == i {
			y += loopMargin
		}
	}
	l.bottom = y + 18
	if len(l.steps) > 0 {
		l.began = l.steps[0].at
	}
}

// placeBars computes the bars from calls to replies.
func (l *layout) placeBars() {
	for i, s := range l.steps {
		switch {
		case s.kind == callStep:
			b := bar{lane: s.to, from: l.y[i], to: l.bottom - 8, tone: s.tone, open: true}
			for _, o := range l.bars {
				if o.lane == b.lane && o.open {
					b.depth++
				}
			}
			l.bars[s.call] = b
		case s.call > 0:
			b, ok := l.bars[s.call]
			if !ok {
				b = bar{lane: s.from, from: headTop + headHeight + 4}
			}
			if s.kind == replyStep && s.name != "no response" {
				b.to = l.y[i]
			}
			b.open, b.tone = s.kind == markStep, s.tone
			l.bars[s.call] = b
		}
	}
}

func (l *layout) draw(spacing float64) {
	height := l.bottom + footHeight
	l.begin(l.width, height, "Sequence: "+l.title, l.subtitle)
	l.text("p-title", 20, 30, "start", fit(l.title, l.width-180, 17))
	subtitle := l.subtitle + withoutEvicted(l.Evicted)
	if l.omitted > 0 {
		subtitle += "  ·  " + count(l.omitted, "earlier request") + " not shown: choose fewer by a filter"
	}
	l.text("p-dim", 20, 49, "start", fit(subtitle, l.width-40, 11))
	l.text("p-dim", l.width-20, 30, "end", "mcpwire")
	for i, s := range l.steps {
		if s.kind == gapStep {
			l.rect("p-gapband", 0, l.y[i]-gapHeight+6, l.width, gapHeight-4, 0)
		}
	}
	for _, x := range l.centers {
		l.line("p-life", x, headTop+headHeight, x, l.bottom)
	}
	l.drawLoops(false)
	l.drawBars()
	l.drawLoops(true)
	for i := range l.lanes {
		l.drawLane(i, headTop, spacing)
	}
	if l.Empty() {
		l.text("p-dim", l.width/2, headTop+30, "middle", "No messages yet.")
	}
	lastTime := ""
	for i := range l.steps {
		lastTime = l.drawStep(i, lastTime)
	}
	for i, x := range l.centers {
		l.circle(l.laneClass(i), x, l.bottom, 3)
		l.text("p-dim", x, l.bottom+17, "middle", fit(l.lanes[i].name, spacing-16, 11))
	}
}

func (l *layout) laneClass(i int) string {
	if i >= len(l.lanes) {
		return "p-host"
	}
	switch l.lanes[i].kind {
	case hostLane:
		return "p-host"
	case bridgeLane:
		return "p-bridge"
	}
	return serverClass(l.lanes[i].color)
}

func (l *layout) drawLane(i int, y, spacing float64) {
	la := l.lanes[i]
	w := min(spacing-18, 210)
	x := l.centers[i] - w/2
	l.rect("p-card", x, y, w, headHeight, 9)
	l.rect(l.laneClass(i), x, y+9, 4, headHeight-18, 2)
	l.text("p-lane", l.centers[i], y+19, "middle", fit(la.name, w-24, 13.5))
	l.text("p-dim", l.centers[i], y+34, "middle", fit(la.detail, w-18, 11))
}

// drawLoops draws the frames around what belongs to a loop, or their names.
func (l *layout) drawLoops(tabs bool) {
	for k, name := range l.loops {
		top, bottom := 0.0, 0.0
		low, high := len(l.lanes), -1
		for i, s := range l.steps {
			if s.loop != k+1 {
				continue
			}
			if high < 0 {
				top = l.y[i] - loopMargin - 22
			}
			bottom = l.y[i] + loopMargin
			low, high = min(low, s.from, s.to), max(high, s.from, s.to)
		}
		if high < 0 {
			continue
		}
		x, to := l.centers[low]-26, l.centers[high]+26
		if !tabs {
			l.rect("p-loop", x, top, to-x, bottom-top, 7)
			continue
		}
		w := boldTextWidth(name, 10.5) + 28
		l.path("p-tab", fmt.Sprintf("M%s %sh%sv9l-7 7H%sz", number(x), number(top), number(w), number(x)))
		l.text("p-tabtext", x+7, top+12, "start", "↻ "+name)
	}
}

func (l *layout) drawBars() {
	var calls []uint64
	for c := range l.bars {
		calls = append(calls, c)
	}
	slices.Sort(calls)
	for _, c := range calls {
		b := l.bars[c]
		class := l.laneClass(b.lane)
		x := l.centers[b.lane] - barWidth/2 + float64(min(b.depth, 4))*5
		l.rect("p-run "+class, x, b.from, barWidth, max(b.to-b.from, 3), 2.5)
	}
}

// edge returns where an arrow begins or ends at a lane: at the border of a bar, if there is one.
func (l *layout) edge(lane int, y, direction float64) float64 {
	x := l.centers[lane]
	for _, b := range l.bars {
		if b.lane == lane && y >= b.from-0.5 && y <= b.to+0.5 {
			return x + direction*(barWidth/2+0.5)
		}
	}
	return x
}

// drawStep draws a step. It returns the time that the gutter shows last.
func (l *layout) drawStep(i int, lastTime string) string {
	s, y := l.steps[i], l.y[i]
	if s.kind == gapStep {
		l.path("p-gapline", fmt.Sprintf("M20 %sH%s", number(y-gapHeight/2+6), number(l.width-20)))
		w := textWidth(s.name, 11) + 26
		l.rect("p-pill", l.width/2-w/2, y-gapHeight/2-3, w, 18, 9)
		l.text("p-dim", l.width/2, y-gapHeight/2+10, "middle", s.name)
		return ""
	}
	at := "+" + trace.FormatDuration(s.at.Sub(l.began).Round(100*time.Microsecond))
	if s.at.Equal(l.began) {
		at = "0 s"
	}
	l.group("p-step", s.capture, s.n)
	l.rect("p-hit", 0, y-17, l.width, 22, 0)
	if at != lastTime {
		l.text("p-time", gutter-16, y+3.5, "end", at)
	}
	if s.kind == markStep || s.from == s.to {
		l.drawMark(s, y)
	} else {
		l.drawArrow(s, y)
	}
	l.endGroup()
	return at
}

func (l *layout) drawMark(s step, y float64) {
	x := l.centers[s.from]
	detail := fit(s.detail, 170, 11)
	w := boldTextWidth(s.name, 12) + textWidth(detail, 11) + 34
	if detail == "" {
		w -= 6
	}
	left := min(x-w/2, l.width-6-w)
	l.rect("p-pill", left, y-14, w, 19, 9.5)
	l.circle("p-f-"+s.tone, left+11, y-4.5, 3.2)
	l.spans(left+20, y-0.5, "start", span{"p-name p-" + s.tone, s.name}, span{"p-dim", detail})
}

func (l *layout) drawArrow(s step, y float64) {
	direction := 1.0
	if s.to < s.from {
		direction = -1
	}
	from, to := l.edge(s.from, y, direction), l.edge(s.to, y, -direction)
	class := map[stepKind]string{callStep: "p-arrow", replyStep: "p-back", notifyStep: "p-thin"}[s.kind]
	lost := s.kind == replyStep && s.name == "no response"
	if lost {
		to = from + direction*min(60, math.Abs(to-from)/2)
	}
	l.line(class+" p-l-"+s.tone, from, y, to-direction*5, y)
	switch {
	case lost:
		l.path("p-arrow p-l-bad", fmt.Sprintf("M%s %sl9 9m0 -9l-9 9", number(to-4.5), number(y-4.5)))
	case s.kind == callStep:
		l.path("p-f-"+s.tone, fmt.Sprintf("M%s %sL%s %sV%sz", number(to), number(y), number(to-direction*8), number(y-4.2), number(y+4.2)))
	default:
		l.path("p-thin p-open p-l-"+s.tone, fmt.Sprintf("M%s %sL%s %sL%s %s", number(to-direction*7), number(y-4), number(to), number(y), number(to-direction*7), number(y+4)))
	}
	l.label(s, min(l.centers[s.from], l.centers[s.to])+12, max(l.centers[s.from], l.centers[s.to])-12, y, direction)
}

// label writes the texts of an arrow above its beginning.
func (l *layout) label(s step, left, right, y, direction float64) {
	room := right - left
	name := fit(s.name, room, 12.5)
	rest := room - boldTextWidth(name, 12) - 8
	detail := fit(s.detail, rest, 11)
	if len(detail) < 4 && len(s.detail) > 4 {
		detail = ""
	}
	class := "p-dim"
	if s.kind == callStep && s.detail != "" {
		class, detail = "p-code", fit(s.detail, rest*sansWidth/monoWidth, 11)
	}
	x, anchor := left, "start"
	if direction < 0 {
		x, anchor = right, "end"
	}
	tone := "p-name"
	if s.kind != callStep || s.tone != "ask" {
		tone += " p-" + s.tone
	}
	if s.tone == "bad" || s.tone == "tool" {
		class = "p-dim p-" + s.tone
	}
	l.spans(x, y-5, anchor, span{tone, name}, span{class, detail})
}

// withoutEvicted is the part of a subtitle about rows that are not in a picture.
func withoutEvicted(n int) string {
	if n == 0 {
		return ""
	}
	return "  ·  without " + count(n, "earlier row")
}
