//go:build race

package matrix

// largeBytes is the size of the largest message. It is small, because each byte costs ten times as
// much with the race detector.
const largeBytes = 1 << 20
