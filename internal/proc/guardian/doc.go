// Package guardian ends a process group when the process that started it dies without ending the
// group, for example by SIGKILL. Nothing else reaches the whole server then: it may ignore the end
// of its input, and the kernel's signal for a dead parent, which only Linux has, reaches only the
// leader of the group, which may be a launcher that does not forward it.
//
// A guardian is a shell that waits until this process's end of a pipe closes: it takes a tenth of
// the memory of another process of this program. It cannot reach processes that left the group.
// Windows needs no guardian: the system ends the job object of a process with its owner.
package guardian
