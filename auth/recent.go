package auth

// recentCache is a map that forgets what was not used lately when it has grown too large. It holds at most max entries and never fewer than the max/2 that
// were used last. It has no lock.
type recentCache[K comparable, V any] struct {
	max               int
	current, previous map[K]V // an entry is in one of the two; old goes when now is full
}

func (r *recentCache[K, V]) get(k K) (V, bool) {
	if v, ok := r.current[k]; ok {
		return v, true
	}
	v, ok := r.previous[k]
	if ok {
		r.put(k, v)
	}
	return v, ok
}

func (r *recentCache[K, V]) put(k K, v V) {
	if _, ok := r.current[k]; !ok && len(r.current) >= max(r.max/2, 1) {
		r.current, r.previous = nil, r.current
	}
	if r.current == nil {
		r.current = make(map[K]V)
	}
	delete(r.previous, k)
	r.current[k] = v
}

func (r *recentCache[K, V]) remove(k K) {
	delete(r.current, k)
	delete(r.previous, k)
}
