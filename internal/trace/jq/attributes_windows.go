package jq

import (
	"syscall"

	"mcpwire/internal/proc/winjob"
)

// sysProcAttr keeps the worker from opening a window and from our Ctrl-C.
func sysProcAttr() *syscall.SysProcAttr { return winjob.Attr() }
