package auth

// recent is a map that forgets what was not used lately when it has grown too large. It holds at most max entries and never fewer than the max/2 that
// were used last. It has no lock.
type recent[K comparable, V any] struct {
	max      int
	now, old map[K]V // an entry is in one of the two; old goes when now is full
}

func (r *recent[K, V]) get(k K) (V, bool) {
	if v, ok := r.now[k]; ok {
		return v, true
	}
	v, ok := r.old[k]
	if ok {
		r.put(k, v)
	}
	return v, ok
}

func (r *recent[K, V]) put(k K, v V) {
	if _, ok := r.now[k]; !ok && len(r.now) >= max(r.max/2, 1) {
		r.now, r.old = nil, r.now
	}
	if r.now == nil {
		r.now = make(map[K]V)
	}
	delete(r.old, k)
	r.now[k] = v
}

func (r *recent[K, V]) remove(k K) {
	delete(r.now, k)
	delete(r.old, k)
}
