//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

// cpuTime is the user and system time that all threads of a process have
// used, from the kernel's clock of that process; /proc counts in ticks of
// 10 ms, which is too coarse for a block. See clock_getcpuclockid(3).
func cpuTime(pid int) (time.Duration, error) {
	const scheduled = 2
	clock := int32(^pid)<<3 | scheduled
	var now syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, uintptr(clock), uintptr(unsafe.Pointer(&now)), 0)
	if errno != 0 {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, errno)
	}
	return time.Duration(now.Nano()), nil
}

// loadAverage is that of the last minute.
func loadAverage() (average float64, err error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, err
	}
	_, err = fmt.Sscan(string(text), &average)
	return average, err
}

// cpuSet is a set of processors, as the kernel has it.
type cpuSet [16]uint64

func affinity(thread int) (set cpuSet, err error) {
	_, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_GETAFFINITY, uintptr(thread), unsafe.Sizeof(set), uintptr(unsafe.Pointer(&set)))
	if errno != 0 {
		return set, fmt.Errorf("affinity of thread %d: %w", thread, errno)
	}
	return set, nil
}

func setAffinity(thread int, set cpuSet) error {
	_, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, uintptr(thread), unsafe.Sizeof(set), uintptr(unsafe.Pointer(&set)))
	if errno != 0 {
		return fmt.Errorf("setting the affinity of thread %d: %w", thread, errno)
	}
	return nil
}

// first is the set of the first processor in s alone.
func (s cpuSet) first() (one cpuSet) {
	for i, word := range s {
		if word != 0 {
			one[i] = word & -word
			break
		}
	}
	return one
}

// place calls f on a thread that is bound to the first processor, if onOne, as the
// processes then are that f starts. Where the kernel puts two processes that wake
// each other decides more about a round trip than what they do.
func place(onOne bool, f func() error) error { return placeWith(0, onOne, f) }

// placeWith also binds all threads of a process that runs, if pid is not 0.
func placeWith(pid int, onOne bool, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if !onOne {
		return f()
	}
	all, err := affinity(0)
	if err != nil {
		return err
	}
	bind := func(set cpuSet) error {
		if err := setAffinity(0, set); err != nil || pid == 0 {
			return err
		}
		return setAffinityOfAll(pid, set)
	}
	if err := bind(all.first()); err != nil {
		return err
	}
	err = f()
	return errors.Join(err, bind(all))
}

// setAffinityOfAll binds all threads of a process. Those it starts later
// inherit it.
func setAffinityOfAll(pid int, set cpuSet) error {
	threads, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
	if err != nil {
		return err
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := setAffinity(id, set); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}
