//go:build !race

package matrix

// largeBytes is the size of the largest message.
const largeBytes = 8 << 20
