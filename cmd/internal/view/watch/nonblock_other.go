//go:build !unix

package watch

// nonblock is 0 because no file is a FIFO on this system.
const nonblock = 0
