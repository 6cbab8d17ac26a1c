package auth

import "testing"

// TestRecentCacheGrowingEntries checks that entries which are replaced by larger ones are evicted.
func TestRecentCacheGrowingEntries(t *testing.T) {
	r := recentCache[int, int]{max: 100, maxBytes: 1000}
	for size := range 500 {
		for k := range 10 {
			r.put(k, size, size)
		}
		sum := 0
		for _, e := range r.current {
			sum += e.size
		}
		if r.bytes != sum || sum > 500 {
			t.Fatalf("%d bytes are stored, and %d counted, want the same and at most half the limit of 1000", sum, r.bytes)
		}
	}
}

// TestRecentCacheIsBounded checks that an entry in use stays in the cache, and that others are
// evicted by number or size.
func TestRecentCacheIsBounded(t *testing.T) {
	for _, tt := range []struct {
		name          string
		max, maxBytes int
		size          int
		wantMost      int
	}{
		{"many", 100, 0, 1000, 100},
		{"many small ones", 100, 1 << 20, 1, 100},
		{"large", 100, 1 << 20, 1 << 16, 16},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := recentCache[int, int]{max: tt.max, maxBytes: tt.maxBytes}
			const busy, rare = -1, -2
			r.put(busy, 1, tt.size)
			r.put(rare, 2, tt.size)
			for i := range 3 * tt.max {
				r.put(i, i, tt.size)
				r.put(i, i, tt.size) // counts once
				if i%7 == 0 {
					r.remove(i)
				}
				if v, ok := r.get(busy); !ok || v != 1 {
					t.Fatalf("an entry in use is %d, %v after %d others", v, ok, i)
				}
				if n := len(r.current) + len(r.previous); n > tt.wantMost {
					t.Fatalf("%d entries are stored, want at most %d", n, tt.wantMost)
				}
			}
			if _, ok := r.get(rare); ok {
				t.Error("an entry is never evicted")
			}
			sum := 0
			for _, e := range r.current {
				sum += e.size
			}
			if r.bytes != sum {
				t.Errorf("got %d bytes, want %d", r.bytes, sum)
			}
		})
	}
}
