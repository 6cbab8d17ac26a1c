//go:build !windows

package jq

import "syscall"

// attributes keeps the worker from our Ctrl-C: it ends with its input.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
