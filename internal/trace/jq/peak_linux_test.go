package jq

import (
	"os"
	"syscall"
)

// peak returns the largest memory in bytes that a process which has ended had.
func peak(p *os.ProcessState) int64 { return p.SysUsage().(*syscall.Rusage).Maxrss << 10 }
