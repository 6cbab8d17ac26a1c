//go:build unix

// Command rawpipe is the limit that servers on stdio are compared with: it
// answers each line as package raw says, and all that it has read with one
// write.
package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"syscall"

	"mcpwire/tools/bench/raw"
)

// serve answers what it reads in one go with one write, until input ends.
func serve(in, out int) error {
	var buf, replies []byte
	for {
		buf = slices.Grow(buf, 64<<10)
		n, err := syscall.Read(in, buf[len(buf):cap(buf)])
		if err != nil || n <= 0 {
			return err
		}
		buf = buf[:len(buf)+n]
		replies = replies[:0]
		rest := buf
		for {
			line, tail, found := bytes.Cut(rest, []byte("\n"))
			if !found {
				break
			}
			replies, rest = raw.Answer(replies, line), tail
		}
		buf = append(buf[:0], rest...)
		for left := replies; len(left) > 0; {
			n, err := syscall.Write(out, left)
			if err != nil {
				return err
			}
			left = left[n:]
		}
	}
}

func main() {
	if err := serve(0, 1); err != nil {
		fmt.Fprintln(os.Stderr, "rawpipe:", err)
		os.Exit(1)
	}
}
