package sources

import (
	"testing"
	"time"
)

func TestWindow(t *testing.T) {
	now := time.Date(2026, 11, 26, 14, 0, 0, 0, time.FixedZone("", 3600))
	for _, tt := range []struct {
		since string
		last  int
		want  string
		bad   bool
	}{
		{since: "", want: "0001-01-01T00:00:00Z"},
		{since: "1h", want: "2026-11-26T13:00:00+01:00"},
		{since: "2d", want: "2026-11-24T14:00:00+01:00"},
		{since: "2026-11-26T10:00:00Z", want: "2026-11-26T10:00:00Z"},
		{since: "2026-11-26", want: "2026-11-26T00:00:00+01:00"},
		{since: "2026-11-26 08:30:00", want: "2026-11-26T08:30:00+01:00"},
		{since: "13:30", want: "2026-11-26T13:30:00+01:00"},
		{since: "14:30", want: "2026-11-25T14:30:00+01:00"},
		{since: "soon", bad: true},
		{since: "25:00", bad: true},
		{last: -1, bad: true},
		{last: 1_000_000, want: "0001-01-01T00:00:00Z"},
	} {
		f := WindowFlags{tt.since, tt.last}
		w, err := f.Parse("show", now)
		if (err != nil) != tt.bad {
			t.Errorf("%q, %d: %v", tt.since, tt.last, err)
		}
		if got := w.Since.Format(time.RFC3339); !tt.bad && got != tt.want {
			t.Errorf("%q: %s, want %s", tt.since, got, tt.want)
		}
	}
}
