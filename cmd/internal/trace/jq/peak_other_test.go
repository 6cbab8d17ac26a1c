//go:build !linux

package jq

import "os"

// peak returns zero: other systems report the peak in other ways, or not at all.
func peak(*os.ProcessState) int64 { return 0 }
