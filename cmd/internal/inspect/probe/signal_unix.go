//go:build unix

package probe

import "syscall"

const canSignal = true

func signal(pid int, s syscall.Signal) error { return syscall.Kill(pid, s) }
