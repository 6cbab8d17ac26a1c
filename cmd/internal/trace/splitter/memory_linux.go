package splitter

import (
	"golang.org/x/sys/unix"
)

// preferHugePages avoids most page faults. A refusal is harmless.
func preferHugePages(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }
