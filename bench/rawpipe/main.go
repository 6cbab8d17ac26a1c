//go:build unix

// Command rawpipe is the limit that servers are compared with: for each line
// it looks up the id, and for a tool call the text, and splices them into a
// response that was prepared before. It parses and checks nothing, so it is
// right only for the benchmark's own requests.
package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"syscall"
)

const (
	legacyResult = `"content":[{"type":"text","text":"`
	modernResult = `"resultType":"complete",` + legacyResult
)

// answer appends the response to one request line, or nothing to a
// notification.
func answer(dst, line []byte) []byte {
	id := after(line, `"id":`, ",}")
	if id == nil {
		return dst
	}
	dst = append(append(append(dst, `{"jsonrpc":"2.0","id":`...), id...), `,"result":{`...)
	switch {
	case bytes.Contains(line, []byte(`"tools/call"`)):
		result := legacyResult
		if bytes.Contains(line, []byte(`"_meta"`)) {
			result = modernResult
		}
		dst = append(append(dst, result...), after(line, `"text":"`, `"`)...)
		dst = append(dst, `"}]`...)
	case bytes.Contains(line, []byte(`"initialize"`)):
		dst = append(append(dst, `"protocolVersion":"`...), after(line, `"protocolVersion":"`, `"`)...)
		dst = append(dst, `","capabilities":{"tools":{}},"serverInfo":{"name":"rawpipe","version":"1.0.0"}`...)
	}
	return append(dst, "}}\n"...)
}

// after returns what stands between the first key in line and the first of the
// characters in end that follows, or nil if there is no key.
func after(line []byte, key, end string) []byte {
	_, rest, found := bytes.Cut(line, []byte(key))
	if !found {
		return nil
	}
	if i := bytes.IndexAny(rest, end); i >= 0 {
		return rest[:i]
	}
	return rest
}

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
			replies, rest = answer(replies, line), tail
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
