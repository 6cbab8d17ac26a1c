//go:build unix

package probe

import "syscall"

const canSignal = true

// signal sends a signal to a process.
func signal(pid int, s syscall.Signal) error { return syscall.Kill(pid, s) }
