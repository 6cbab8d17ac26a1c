// Package defaults fills in options of which zero and negative values mean the default. If only
// zero does, [cmp.Or] is enough.
package defaults

import "time"

// IfNotPositive sets *v to d if *v is zero or negative.
func IfNotPositive[T int | int64 | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}
