package trace

import (
	"math/bits"
	"time"
)

// A Histogram counts durations in buckets that grow with them: each power of two has 32, so that a quantile is at most 1.6 % off. It has 256 bytes of counters for each power
// of two that came up, however many durations there were. The zero Histogram is empty.
type Histogram struct {
	n        uint64
	sum      time.Duration
	min, max time.Duration
	octaves  [64]*[subBuckets]uint64
}

const (
	subBits    = 5
	subBuckets = 1 << subBits
)

// Add counts a duration. One below 0 counts as 0.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	if h.n == 0 || d < h.min {
		h.min = d
	}
	h.max = max(h.max, d)
	h.n++
	h.sum += d
	octave, sub := bucket(uint64(d))
	if h.octaves[octave] == nil {
		h.octaves[octave] = new([subBuckets]uint64)
	}
	h.octaves[octave][sub]++
}

// bucket returns where a value is counted. Values below subBuckets have a bucket each.
func bucket(v uint64) (octave, sub int) {
	octave = bits.Len64(v >> subBits)
	if octave == 0 {
		return 0, int(v)
	}
	return octave, int(v>>(octave-1)) & (subBuckets - 1)
}

// midpoint is the value in the middle of a bucket.
func midpoint(octave, sub int) uint64 {
	if octave == 0 {
		return uint64(sub)
	}
	width := uint64(1) << (octave - 1)
	return (subBuckets+uint64(sub))*width + width/2
}

// Count returns how many durations there were.
func (h *Histogram) Count() uint64 { return h.n }

// Mean returns their mean, or 0 if there were none.
func (h *Histogram) Mean() time.Duration {
	if h.n == 0 {
		return 0
	}
	return h.sum / time.Duration(h.n)
}

// Max returns the longest.
func (h *Histogram) Max() time.Duration { return h.max }

// Quantile returns the duration that so many of them (0.5 is half) do not exceed, or 0 if there were none.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	rank := uint64(q * float64(h.n))
	if float64(rank) < q*float64(h.n) || rank == 0 {
		rank++
	}
	switch {
	case rank >= h.n:
		return h.max
	case rank == 1:
		return h.min
	}
	var seen uint64
	for octave, subs := range h.octaves {
		if subs == nil {
			continue
		}
		for sub, n := range subs {
			if seen += n; seen >= rank {
				return min(max(time.Duration(midpoint(octave, sub)), h.min), h.max)
			}
		}
	}
	return h.max
}

// A Bucket is how many durations were at least Lower and below Upper.
type Bucket struct {
	Lower, Upper time.Duration
	Count        uint64
}

// Buckets returns the histogram for drawing, in at most limit buckets without gaps between them, from the one with the shortest duration to the one with the longest; nil if there
// were none. On a logarithmic scale they are about equally wide.
func (h *Histogram) Buckets(limit int) []Bucket {
	if h.n == 0 {
		return nil
	}
	limit = max(limit, 1)
	lo, hi := bucketIndex(bucket(uint64(h.min))), bucketIndex(bucket(uint64(h.max)))
	shift := 0
	for (hi>>shift)-(lo>>shift)+1 > limit {
		shift++
	}
	list := make([]Bucket, (hi>>shift)-(lo>>shift)+1)
	for i := range list {
		list[i].Lower, list[i].Upper = lowerBound((lo>>shift+i)<<shift), lowerBound((lo>>shift+i+1)<<shift)
	}
	for octave, subs := range h.octaves {
		if subs == nil {
			continue
		}
		for sub, n := range subs {
			if n > 0 {
				list[bucketIndex(octave, sub)>>shift-lo>>shift].Count += n
			}
		}
	}
	return list
}

// bucketIndex counts buckets from the one with the shortest durations.
func bucketIndex(octave, sub int) int { return octave<<subBits | sub }

// lowerBound is the shortest duration in a bucket.
func lowerBound(number int) time.Duration {
	octave, sub := number>>subBits, uint64(number&(subBuckets-1))
	if octave == 0 {
		return time.Duration(sub)
	}
	if octave > 63-subBits { // above all durations
		return 1<<63 - 1
	}
	return time.Duration((subBuckets + sub) << (octave - 1))
}
