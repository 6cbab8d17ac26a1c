//go:build unix

package splitter

import (
	"golang.org/x/sys/unix"
)

// newLarge returns an empty slice with a capacity of max bytes, for a frame of more than
// maxHeapCopy bytes. The system allocates only the used part of this memory; growing by copying
// would touch three times as much and leave garbage. nil means to grow by copying.
func newLarge(max int) []byte {
	b, err := unix.Mmap(-1, 0, max, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil
	}
	preferHugePages(b)
	return b[:0]
}

// freeLarge releases memory from newLarge. No slice of it may be used afterwards.
func freeLarge(b []byte) { _ = unix.Munmap(b[:cap(b)]) }
