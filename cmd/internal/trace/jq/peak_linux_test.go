package jq

import (
	"os"
	"syscall"
)

// peak returns the peak memory in bytes of a process that has ended.
func peak(p *os.ProcessState) int64 { return p.SysUsage().(*syscall.Rusage).Maxrss << 10 }
