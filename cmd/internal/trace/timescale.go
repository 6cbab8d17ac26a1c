package trace

import (
	"slices"
	"time"
)

// MaxIdle is the longest time without activity that a [TimeScale] shows in proportion.
const MaxIdle = 5 * time.Second

// An Interval is a time in which something happens.
type Interval struct{ From, To time.Time }

// A TimeScale places times from 0 to 1. Stretches of more than MaxIdle in which nothing happens are
// short. The zero value is the scale of no time.
type TimeScale struct {
	From, To time.Time
	// Segments are the parts of the scale, in order.
	Segments []ScaleSegment
	// Length is the length of all segments, in nanoseconds of activity.
	Length float64
}

// A ScaleSegment is a part of a TimeScale. Begin and End are its place in the unit of Length.
type ScaleSegment struct {
	Interval
	Begin, End float64
	// Idle means that the time is shortened.
	Idle bool
}

// NewTimeScale returns the scale of the times in which something happens, which it sorts. widths
// returns the widths of the stretches between them, in nanoseconds of activity, of which there are
// active.
func NewTimeScale(busy []Interval, widths func(active time.Duration, idle []time.Duration) []float64) TimeScale {
	slices.SortStableFunc(busy, func(a, b Interval) int { return a.From.Compare(b.From) })
	var parts []Interval
	for _, b := range busy {
		if n := len(parts); n == 0 || b.From.Sub(parts[n-1].To) > MaxIdle {
			parts = append(parts, b)
		} else if b.To.After(parts[n-1].To) {
			parts[n-1].To = b.To
		}
	}
	if len(parts) == 0 {
		return TimeScale{}
	}
	active := time.Duration(0)
	var idle []time.Duration
	for i, p := range parts {
		active += p.To.Sub(p.From)
		if i > 0 {
			idle = append(idle, p.From.Sub(parts[i-1].To))
		}
	}
	s := TimeScale{From: parts[0].From, To: parts[len(parts)-1].To}
	add := func(from, to time.Time, width float64, idle bool) {
		s.Segments = append(s.Segments, ScaleSegment{Interval{from, to}, s.Length, s.Length + width, idle})
		s.Length += width
	}
	gaps := widths(active, idle)
	for i, p := range parts {
		if i > 0 {
			add(parts[i-1].To, p.From, gaps[i-1], true)
		}
		add(p.From, p.To, float64(p.To.Sub(p.From)), false)
	}
	s.Length = max(s.Length, 1)
	return s
}

// Place returns the place of a time, from 0 to 1.
func (s *TimeScale) Place(t time.Time) float64 {
	if len(s.Segments) == 0 || !t.After(s.From) {
		return 0
	}
	i, _ := slices.BinarySearchFunc(s.Segments, t, func(g ScaleSegment, t time.Time) int { return g.To.Compare(t) })
	if i == len(s.Segments) {
		return 1
	}
	g := s.Segments[i]
	share := float64(t.Sub(g.From)) / float64(max(1, g.To.Sub(g.From)))
	return min(1, (g.Begin+max(share, 0)*(g.End-g.Begin))/s.Length)
}
