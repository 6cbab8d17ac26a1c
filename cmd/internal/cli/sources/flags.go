package sources

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/capture"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/exit"
)

// ParseAge parses a duration. It also accepts days (d) and weeks (w).
func ParseAge(s string) (time.Duration, bool) {
	for unit, length := range map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour} {
		if n, err := strconv.ParseFloat(strings.TrimSuffix(s, unit), 64); err == nil && strings.HasSuffix(s, unit) {
			d := n * float64(length)
			return time.Duration(d), d > 0 && d < 1<<62
		}
	}
	d, err := time.ParseDuration(s)
	return d, err == nil && d > 0
}

// WindowFlags are the flags that select exchanges by time.
type WindowFlags struct {
	since string
	Last  int
}

// Register defines the flags.
func (f *WindowFlags) Register(fs *pflag.FlagSet) {
	fs.StringVar(&f.since, "since", "", "show only what began less than `AGE` ago (10m, 1h, 2d) or since a time: 14:30, a date, or both as in RFC 3339")
	fs.IntVar(&f.Last, "last", 0, "show only the last `N` exchanges; 0 means all")
}

// Given reports whether one of the flags was given.
func (f *WindowFlags) Given() bool { return f.since != "" || f.Last != 0 }

// A Window selects rows of a timeline. The zero window selects all.
type Window struct {
	// Since is the earliest beginning.
	Since time.Time
	// Last is the number of rows from the end. Zero means all.
	Last int
}

// Parse returns the window that the flags of a command describe.
func (f *WindowFlags) Parse(command string, now time.Time) (Window, error) {
	w := Window{Last: f.Last}
	if f.Last < 0 {
		return w, exit.Usagef("%s: --last %d: want a number of exchanges", command, f.Last)
	}
	if f.since == "" {
		return w, nil
	}
	if age, ok := ParseAge(f.since); ok {
		w.Since = now.Add(-age)
		return w, nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateTime, time.DateOnly} {
		if at, err := time.ParseInLocation(layout, f.since, now.Location()); err == nil {
			w.Since = at
			return w, nil
		}
	}
	for _, layout := range []string{time.TimeOnly, "15:04"} {
		if at, err := time.ParseInLocation(layout, f.since, now.Location()); err == nil {
			y, m, d := now.Date()
			w.Since = time.Date(y, m, d, at.Hour(), at.Minute(), at.Second(), 0, now.Location())
			if w.Since.After(now) {
				w.Since = w.Since.AddDate(0, 0, -1) // yesterday
			}
			return w, nil
		}
	}
	return w, exit.Usagef("%s: --since needs an age such as 10m, 1h or 2d, or a time such as 14:30, a date, or both as in RFC 3339, not %q", command, f.since)
}

// SideFlag selects one side of a bridge's capture.
type SideFlag struct{ Side capture.Side }

// both is the value of --side that selects both sides.
const both = "both"

// Register defines the flag. fallback is its default.
func (f *SideFlag) Register(c *cobra.Command, fallback capture.Side) {
	f.Side = fallback
	what := both
	if fallback != "" {
		what = string(fallback)
	}
	c.Flags().Var(f, "side", "side of a bridge's capture to read: `SIDE` is downstream (clients), upstream (server) or both (default "+what+")")
	kit.CompleteFlag(c, "side", func() []string { return []string{string(capture.Downstream), string(capture.Upstream), both} })
}

// RegisterOne is [SideFlag.Register] for commands that can read one side only.
func (f *SideFlag) RegisterOne(fs *pflag.FlagSet, fallback capture.Side) {
	f.Side = fallback
	fs.Func("side", "side of a bridge's capture to read: `SIDE` is downstream (clients) or upstream (server) (default "+string(fallback)+")", func(s string) error {
		if s == both {
			return fmt.Errorf("want downstream or upstream")
		}
		return f.Set(s)
	})
}

// String implements pflag.Value.
func (f *SideFlag) String() string { return "" }

// Type implements pflag.Value.
func (f *SideFlag) Type() string { return "side" }

// Set implements pflag.Value.
func (f *SideFlag) Set(s string) error {
	switch side := capture.Side(s); {
	case side == capture.Downstream, side == capture.Upstream:
		f.Side = side
	case s == both:
		f.Side = ""
	default:
		return fmt.Errorf("want downstream, upstream or both")
	}
	return nil
}
