//go:build !linux

package jq

import "os"

// peak returns 0: other systems say it in other ways, or not at all.
func peak(*os.ProcessState) int64 { return 0 }
