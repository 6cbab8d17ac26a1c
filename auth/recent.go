package auth

// recentCache is a map that evicts entries that were not used recently. It holds at most max
// entries, and about maxBytes of them, if that is not 0.
type recentCache[K comparable, V any] struct {
	max, maxBytes int
	// Each entry is in one of the two. previous is dropped when current is full.
	current, previous map[K]recentEntry[V]
	// bytes is the sum of the sizes in current.
	bytes int
}

type recentEntry[V any] struct {
	value V
	size  int
}

func (r *recentCache[K, V]) get(k K) (V, bool) {
	e, ok := r.current[k]
	if !ok {
		if e, ok = r.previous[k]; ok {
			r.put(k, e.value, e.size)
		}
	}
	return e.value, ok
}

// put stores an entry with a size in bytes.
func (r *recentCache[K, V]) put(k K, v V, size int) {
	old, known := r.current[k]
	if !known && len(r.current) >= max(r.max/2, 1) || r.maxBytes > 0 && r.bytes+size-old.size > r.maxBytes/2 {
		r.current, r.previous, r.bytes, old = nil, r.current, 0, recentEntry[V]{}
	}
	if r.current == nil {
		r.current = make(map[K]recentEntry[V])
	}
	delete(r.previous, k)
	r.current[k] = recentEntry[V]{v, size}
	r.bytes += size - old.size
}

func (r *recentCache[K, V]) remove(k K) {
	r.bytes -= r.current[k].size
	delete(r.current, k)
	delete(r.previous, k)
}
