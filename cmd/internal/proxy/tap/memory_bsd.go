//go:build unix && !linux

package tap

func preferHugePages([]byte) {}
