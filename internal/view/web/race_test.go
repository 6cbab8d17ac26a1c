//go:build race

package web_test

// Less of everything: the race detector is slow.
const (
	hugeBytes = 5_000_000
	slowRows  = 4_000
)
