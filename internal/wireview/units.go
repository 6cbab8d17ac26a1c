package trace

import (
	"strconv"
	"time"
)

// FormatSize returns a number of bytes for people: "512 B", "1.2 kB".
func FormatSize(n int64) string {
	if n < 1000 && n > -1000 {
		return strconv.FormatInt(n, 10) + " B"
	}
	v := float64(n)
	for _, unit := range [...]string{"kB", "MB", "GB"} {
		if v /= 1000; v < 999.5 || unit == "GB" {
			return digits(v) + " " + unit
		}
	}
	return ""
}

// FormatDuration returns a duration for people: "840 µs", "43 ms", "1.2 s", "2m03s".
func FormatDuration(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + FormatDuration(-max(d, -1<<62))
	case d < time.Microsecond:
		return strconv.FormatInt(int64(d), 10) + " ns"
	case d < 999500*time.Nanosecond:
		return digits(float64(d)/1e3) + " µs"
	case d < 999500*time.Microsecond:
		return digits(float64(d)/1e6) + " ms"
	case d < time.Minute:
		return digits(d.Seconds()) + " s"
	}
	return d.Round(time.Second).String()
}

// digits returns a number with one decimal below 10.
func digits(v float64) string {
	if v < 9.95 {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}
