package check

import (
	"hash/maphash"
	"slices"
	"sort"

	"mcpwire/internal/jsonwire"
)

// An idSet remembers ids. Most peers count, so integers take the memory of the holes between them. Above its limits it stops to remember, and says of new ids that it has
// not seen them.
type idSet struct {
	ranges []idRange // in order, with holes between them
	hashes map[uint64]struct{}
}

type idRange struct{ first, last int64 }

const (
	maxRanges = 1 << 10
	maxHashes = 1 << 15
)

// add adds an id in its canonical form, and reports whether it was there before.
func (s *idSet) add(id string, seed maphash.Seed) (before bool) {
	if n, ok := jsonwire.ParseInt([]byte(id)); ok {
		return s.addInt(n)
	}
	h := maphash.String(seed, id)
	if _, ok := s.hashes[h]; ok {
		return true
	}
	if len(s.hashes) < maxHashes {
		if s.hashes == nil {
			s.hashes = map[uint64]struct{}{}
		}
		s.hashes[h] = struct{}{}
	}
	return false
}

// has reports whether an id is there.
func (s *idSet) has(id string, seed maphash.Seed) bool {
	if s == nil {
		return false
	}
	if n, ok := jsonwire.ParseInt([]byte(id)); ok {
		i := sort.Search(len(s.ranges), func(i int) bool { return s.ranges[i].last >= n })
		return i < len(s.ranges) && s.ranges[i].first <= n
	}
	_, ok := s.hashes[maphash.String(seed, id)]
	return ok
}

// full reports whether the set may have forgotten ids.
func (s *idSet) full() bool {
	return s != nil && (len(s.ranges) >= maxRanges || len(s.hashes) >= maxHashes)
}

func (s *idSet) addInt(n int64) (before bool) {
	// The first span that does not end before n.
	i := sort.Search(len(s.ranges), func(i int) bool { return s.ranges[i].last >= n })
	if i < len(s.ranges) && s.ranges[i].first <= n {
		return true
	}
	left := i > 0 && s.ranges[i-1].last+1 == n
	right := i < len(s.ranges) && s.ranges[i].first-1 == n
	switch {
	case left && right:
		s.ranges[i-1].last = s.ranges[i].last
		s.ranges = slices.Delete(s.ranges, i, i+1)
	case left:
		s.ranges[i-1].last = n
	case right:
		s.ranges[i].first = n
	case len(s.ranges) < maxRanges:
		s.ranges = slices.Insert(s.ranges, i, idRange{n, n})
	}
	return false
}

// A recent remembers the latest ids with a number each, up to a limit.
type recentIDs struct {
	numbers map[string]uint64
	order   []string
}

const maxRecent = 1 << 10

func (r *recentIDs) add(id string, n uint64) {
	if r.numbers == nil {
		r.numbers = map[string]uint64{}
	}
	if _, ok := r.numbers[id]; !ok {
		if len(r.order) >= maxRecent {
			delete(r.numbers, r.order[0])
			r.order = r.order[1:]
		}
		r.order = append(r.order, id)
	}
	r.numbers[id] = n
}

func (r *recentIDs) find(id string) (n uint64, ok bool) {
	n, ok = r.numbers[id]
	return n, ok
}
