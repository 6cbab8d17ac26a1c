//go:build !windows

package jq

import "syscall"

// sysProcAttr keeps the worker from our Ctrl-C: it ends with its input.
func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
