//go:build !race

package matrix

// largeBytes is how long a message may get.
const largeBytes = 8 << 20
