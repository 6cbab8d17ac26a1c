//go:build race

package matrix

// largeBytes is how long a message may get: the race detector makes each byte cost ten times as
// much.
const largeBytes = 1 << 20
