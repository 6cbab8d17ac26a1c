//go:build !unix

package watch

// nonblock is nothing here: there are no FIFOs among files.
const nonblock = 0
