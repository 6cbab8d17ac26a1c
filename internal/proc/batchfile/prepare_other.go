//go:build !windows

package batchfile

import "os/exec"

// Prepare leaves cmd alone: only Windows runs batch files by a program of their own.
func Prepare(*exec.Cmd) error { return nil }
