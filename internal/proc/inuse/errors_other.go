//go:build !windows

package inuse

func isReplaceRefused(error) bool   { return false }
func isSharingViolation(error) bool { return false }
