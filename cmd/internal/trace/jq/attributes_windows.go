package jq

import (
	"syscall"

	"mcpwire/internal/proc/procgroup"
)

// sysProcAttr prevents the worker from opening a window and keeps the user's Ctrl-C away from it.
func sysProcAttr() *syscall.SysProcAttr { return procgroup.Attr() }
