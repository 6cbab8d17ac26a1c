// Package race lets tests do less under the race detector, which makes them several times slower.
package race

// Choose returns with if the race detector is on, and without otherwise.
func Choose[T any](with, without T) T {
	if Enabled {
		return with
	}
	return without
}
