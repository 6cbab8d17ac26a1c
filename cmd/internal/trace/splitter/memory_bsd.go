//go:build unix && !linux

package splitter

func preferHugePages([]byte) {}
