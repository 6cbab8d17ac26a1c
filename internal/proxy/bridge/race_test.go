//go:build race

package bridge

// Smaller values than in norace_test.go, because the race detector is slow.
const (
	large = 1 << 20
	flood = 32
)
