//go:build !windows

package jq

import "syscall"

// sysProcAttr keeps the user's Ctrl-C away from the worker. The worker ends with its input.
func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
