// Package sparse changes maps that are nil while they are empty. Most of these are empty most of
// the time: a session has many of them, and is idle most of the time.
//
// # Concurrency
//
// Calls for the same map must not be concurrent.
package sparse

// Set sets m[key]. It makes the map if that is nil.
func Set[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = make(map[K]V)
	}
	(*m)[key] = value
}

// Delete deletes m[key]. It makes m nil if that was the last element, because a map keeps the
// memory of its elements.
func Delete[K comparable, V any](m *map[K]V, key K) {
	delete(*m, key)
	if len(*m) == 0 {
		*m = nil
	}
}
