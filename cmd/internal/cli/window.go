package cli

import (
	"time"

	"github.com/spf13/pflag"

	"mcpwire/cmd/internal/exit"
)

// windowFlags are the flags that select exchanges by time.
type windowFlags struct {
	since string
	last  int
}

// register defines the flags.
func (f *windowFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.since, "since", "", "show only what began less than `AGE` ago (10m, 1h, 2d) or since a time: 14:30, a date, or both as in RFC 3339")
	fs.IntVar(&f.last, "last", 0, "show only the last `N` exchanges; 0 means all")
}

func (f *windowFlags) given() bool { return f.since != "" || f.last != 0 }

// A window selects rows of a timeline. The zero window selects all.
type window struct {
	// since is the earliest beginning.
	since time.Time
	// last is the number of rows from the end. Zero means all.
	last int
}

// parse returns the window that the flags of a command describe.
func (f *windowFlags) parse(command string, now time.Time) (window, error) {
	w := window{last: f.last}
	if f.last < 0 {
		return w, exit.Usagef("%s: --last %d: want a number of exchanges", command, f.last)
	}
	if f.since == "" {
		return w, nil
	}
	if age, ok := parseAge(f.since); ok {
		w.since = now.Add(-age)
		return w, nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateTime, time.DateOnly} {
		if at, err := time.ParseInLocation(layout, f.since, now.Location()); err == nil {
			w.since = at
			return w, nil
		}
	}
	for _, layout := range []string{time.TimeOnly, "15:04"} {
		if at, err := time.ParseInLocation(layout, f.since, now.Location()); err == nil {
			y, m, d := now.Date()
			w.since = time.Date(y, m, d, at.Hour(), at.Minute(), at.Second(), 0, now.Location())
			if w.since.After(now) {
				w.since = w.since.AddDate(0, 0, -1) // yesterday
			}
			return w, nil
		}
	}
	return w, exit.Usagef("%s: --since needs an age such as 10m, 1h or 2d, or a time such as 14:30, a date, or both as in RFC 3339, not %q", command, f.since)
}
