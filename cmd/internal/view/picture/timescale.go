package picture

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"mcpwire/cmd/internal/trace"
)

// An interval is a time in which something was worked on.
type interval struct{ from, to time.Time }

// busyTimes returns when a request was worked on. What has no end, or lasts as long as a stream,
// only counts by its ends, and a long call by its first and last seconds: nothing else may have
// happened in between.
func busyTimes(r *trace.Row) []interval {
	end := r.At.Add(r.Wall())
	if !r.Done || r.IsStream() || r.Status == trace.Unanswered || r.Task != nil || r.ClientTime > idleTime || r.InputRounds != nil {
		return []interval{{r.At, r.At}, {end, end}}
	}
	if r.Wall() > 3*idleTime {
		return []interval{{r.At, r.At.Add(idleTime)}, {end.Add(-idleTime), end}}
	}
	return []interval{{r.At, end}}
}

// A timeScale places times from 0 to 1. Stretches of more than idleTime without work have a small
// width, as in the page's waterfall.
type timeScale struct {
	empty    bool
	from, to time.Time
	segments []segment
	length   float64
}

// A segment is a part of a scale.
type segment struct {
	interval
	// at and end are its place, in the unit of the scale's length.
	at, end float64
	gap     bool
}

func newTimeScale(busy []interval) timeScale {
	if len(busy) == 0 {
		return timeScale{empty: true, length: 1}
	}
	slices.SortFunc(busy, func(a, b interval) int { return cmp.Or(a.from.Compare(b.from), a.to.Compare(b.to)) })
	var parts []interval
	for _, b := range busy {
		if n := len(parts); n > 0 && b.from.Sub(parts[n-1].to) <= idleTime {
			parts[n-1].to = maxTime(parts[n-1].to, b.to)
			continue
		}
		parts = append(parts, b)
	}
	total, weights := 0.0, 0.0
	weight := func(d time.Duration) float64 { return 1 + math.Log2(float64(d)/float64(idleTime))/2 }
	for i, p := range parts {
		total += float64(p.to.Sub(p.from))
		if i > 0 {
			weights += weight(p.from.Sub(parts[i-1].to))
		}
	}
	total = max(total, float64(time.Millisecond))
	unit := total * min(0.035, 0.4/max(1, weights))
	s := timeScale{from: parts[0].from, to: parts[len(parts)-1].to}
	at := 0.0
	for i, p := range parts {
		if i > 0 {
			before := parts[i-1].to
			gap := unit * weight(p.from.Sub(before))
			s.segments = append(s.segments, segment{interval{before, p.from}, at, at + gap, true})
			at += gap
		}
		long := float64(p.to.Sub(p.from))
		s.segments = append(s.segments, segment{p, at, at + long, false})
		at += long
	}
	s.length = max(at, 1)
	return s
}

// x returns the place of a time.
func (s *timeScale) x(t time.Time) float64 {
	if len(s.segments) == 0 || !t.After(s.from) {
		return 0
	}
	i, _ := slices.BinarySearchFunc(s.segments, t, func(g segment, t time.Time) int { return g.to.Compare(t) })
	if i == len(s.segments) {
		return 1
	}
	g := s.segments[i]
	share := 0.0
	if long := g.to.Sub(g.from); long > 0 {
		share = float64(t.Sub(g.from)) / float64(long)
	}
	return min(1, (g.at+max(share, 0)*(g.end-g.at))/s.length)
}

// A tick is a mark of a scale. gap marks time that is left out.
type tick struct {
	x    float64
	text string
	gap  bool
}

// ticks returns the marks for a width in px.
func (s *timeScale) ticks(px float64) []tick {
	if len(s.segments) == 0 {
		return nil
	}
	var all []tick
	for _, g := range s.segments {
		if g.gap {
			all = append(all, tick{(g.at + g.end) / 2 / s.length, roundText(g.to.Sub(g.from).Round(time.Second)), true})
		}
	}
	step := niceStep(time.Duration(s.length / max(1, px/84)))
	for _, g := range s.segments {
		if g.gap {
			continue
		}
		since := g.from.Sub(s.from)
		first := (since + step - 1) / step * step
		for d := first; d <= g.to.Sub(s.from) && len(all) < 400; d += step {
			text := "0"
			if d > 0 {
				text = roundText(d)
			}
			all = append(all, tick{s.x(s.from.Add(d)), text, false})
		}
	}
	var kept []tick
	room := 66 / max(px, 1)
	for _, t := range all {
		if !slices.ContainsFunc(kept, func(k tick) bool { return math.Abs(k.x-t.x) < room }) {
			kept = append(kept, t)
		}
	}
	return kept
}

// roundText formats a duration without seconds or minutes that are 0: "5m", "1h30m".
func roundText(d time.Duration) string {
	text := trace.FormatDuration(d)
	if short, ok := strings.CutSuffix(text, "m0s"); ok {
		text = short + "m"
	}
	if short, ok := strings.CutSuffix(text, "h0m"); ok {
		text = short + "h"
	}
	return text
}

// niceStep returns a round duration of at least d.
func niceStep(d time.Duration) time.Duration {
	for unit := time.Microsecond; unit <= 10*time.Second; unit *= 10 {
		for _, k := range []time.Duration{1, 2, 5} {
			if s := unit * k; s >= d && s <= 20*time.Second {
				return s
			}
		}
	}
	for _, s := range []time.Duration{30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400, 604800} {
		if s*time.Second >= d {
			return s * time.Second
		}
	}
	return d
}
