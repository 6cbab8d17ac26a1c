//go:build unix && !linux

package resend_test

func isZombie(int) bool { return false }
