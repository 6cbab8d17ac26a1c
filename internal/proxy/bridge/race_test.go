//go:build race

package bridge

// Less of everything: the race detector is slow.
const (
	large = 1 << 20
	flood = 32
)
