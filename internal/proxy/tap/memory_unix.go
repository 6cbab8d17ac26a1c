//go:build unix

package tap

import (
	"golang.org/x/sys/unix"
)

// newLarge returns an empty slice for a frame of more than maxHeapCopy bytes, with room for max. It is memory of its own, of which the system takes what is
// used: growing by copying would touch three times as much, and leave the rest to the collector. nil tells to grow by copying.
func newLarge(max int) []byte {
	b, err := unix.Mmap(-1, 0, max, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil
	}
	preferHugePages(b)
	return b[:0]
}

// freeLarge gives back what newLarge has returned. Nobody may use it any more.
func freeLarge(b []byte) { _ = unix.Munmap(b[:cap(b)]) }
