package picture

import (
	"math"
	"slices"
	"strings"
	"time"

	"mcpwire/cmd/internal/trace"
)

// busyTimes returns when a request was worked on. What has no end, or lasts as long as a stream,
// only counts by its ends, and a long call by its first and last seconds: nothing else may have
// happened in between.
func busyTimes(r *trace.Row) []trace.Interval {
	end := r.At.Add(r.Wall())
	if !r.Done || r.IsStream() || r.Status == trace.Unanswered || r.Task != nil || r.ClientTime > trace.MaxIdle || r.InputRounds != nil {
		return []trace.Interval{{From: r.At, To: r.At}, {From: end, To: end}}
	}
	if r.Wall() > 3*trace.MaxIdle {
		return []trace.Interval{{From: r.At, To: r.At.Add(trace.MaxIdle)}, {From: end.Add(-trace.MaxIdle), To: end}}
	}
	return []trace.Interval{{From: r.At, To: end}}
}

// newTimeScale returns a scale as in the page's waterfall: longer gaps are wider, but far less than
// in proportion.
func newTimeScale(busy []trace.Interval) trace.TimeScale {
	return trace.NewTimeScale(busy, func(active time.Duration, idle []time.Duration) []float64 {
		weights, sum := make([]float64, len(idle)), 0.0
		for i, d := range idle {
			weights[i] = 1 + math.Log2(float64(d)/float64(trace.MaxIdle))/2
			sum += weights[i]
		}
		unit := max(float64(active), float64(time.Millisecond)) * min(0.035, 0.4/max(1, sum))
		for i := range weights {
			weights[i] *= unit
		}
		return weights
	})
}

// A tick is a mark of a scale. gap marks time that is left out.
type tick struct {
	x    float64
	text string
	gap  bool
}

// ticks returns the marks of a scale for a width in px.
func ticks(s *trace.TimeScale, px float64) []tick {
	var all []tick
	for _, g := range s.Segments {
		if g.Idle {
			all = append(all, tick{(g.Begin + g.End) / 2 / s.Length, roundText(g.To.Sub(g.From).Round(time.Second)), true})
		}
	}
	step := niceStep(time.Duration(s.Length / max(1, px/84)))
	for _, g := range s.Segments {
		if g.Idle {
			continue
		}
		first := (g.From.Sub(s.From) + step - 1) / step * step
		for d := first; d <= g.To.Sub(s.From) && len(all) < 400; d += step {
			text := "0"
			if d > 0 {
				text = roundText(d)
			}
			all = append(all, tick{s.Place(s.From.Add(d)), text, false})
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
