package jq

import (
	"syscall"

	"mcpwire/internal/winjob"
)

// attributes keeps the worker from opening a window and from our Ctrl-C.
func attributes() *syscall.SysProcAttr { return winjob.Attr() }
