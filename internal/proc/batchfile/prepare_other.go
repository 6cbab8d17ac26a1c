//go:build !windows

package batchfile

import "os/exec"

// Prepare does nothing: only Windows runs batch files with a separate program.
func Prepare(*exec.Cmd) error { return nil }
