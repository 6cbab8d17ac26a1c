//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// processes returns a process and its descendants, without those that run the program at the path
// except.
func processes(root int, except string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if parent := parentOf(pid); parent > 0 {
			children[parent] = append(children[parent], pid)
		}
	}
	all := []int{root}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	kept := all[:0]
	for _, pid := range all {
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && exe != except {
			kept = append(kept, pid)
		}
	}
	return kept, nil
}

// parentOf returns the process that started another, 0 if that has ended. The name of its program,
// in brackets, may have anything in it.
func parentOf(pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(string(fields[1]))
	return parent
}

// cpuTimes is the CPU time of several processes. Those that have ended count for nothing.
func cpuTimes(pids []int) (sum time.Duration, err error) {
	for _, pid := range pids {
		t, err := cpuTime(pid)
		if err != nil && syscall.Kill(pid, 0) == nil {
			return 0, err
		}
		sum += t
	}
	return sum, nil
}
