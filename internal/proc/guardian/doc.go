// Package guardian ends a process group when the process that has started it dies without having
// done so, by SIGKILL for example. Nothing else reaches all of a server then: it may ignore the end
// of its input, and where the kernel tells anybody that the parent is dead, which is on Linux only,
// it tells the leader of the group, which may be a launcher that does not pass it on.
//
// A guardian is a shell that waits for our end of a pipe to close: it takes a tenth of the memory of
// another process of ours. Processes that have left the group are out of its reach. On Windows a
// guardian is not needed: the system ends the job object of a process with its owner.
package guardian
