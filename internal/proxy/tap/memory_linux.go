package tap

import (
	"golang.org/x/sys/unix"
)

// preferHugePages saves most of the page faults. That it is refused is no harm.
func preferHugePages(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }
