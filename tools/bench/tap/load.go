//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	bulkCalls = 200
	bulkSize  = 64 << 10
	largeSize = 32 << 20
)

// echo is the server: it sends each piece that it reads back, so that a line is its own answer.
func echo() int {
	buf := make([]byte, 1<<20)
	for {
		n, err := syscall.Read(0, buf)
		if err == syscall.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			return 0
		}
		if writeAll(1, buf[:n]) != nil {
			return 1
		}
	}
}

func writeAll(fd int, p []byte) error {
	for len(p) > 0 {
		n, err := syscall.Write(fd, p)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// A wire is a process to talk to, by system calls that block.
type wire struct {
	cmd     *exec.Cmd
	in, out int
	buf     []byte
}

func start(command []string) (*wire, error) {
	var in, out [2]int
	for _, p := range []*[2]int{&in, &out} {
		if err := syscall.Pipe2(p[:], syscall.O_CLOEXEC); err != nil {
			return nil, err
		}
	}
	theirIn, theirOut := os.NewFile(uintptr(in[0]), "in"), os.NewFile(uintptr(out[1]), "out")
	defer theirIn.Close()
	defer theirOut.Close()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirIn, theirOut, os.Stderr
	w := &wire{cmd: cmd, in: in[1], out: out[0], buf: make([]byte, 1<<20)}
	return w, cmd.Start()
}

func (w *wire) close() error {
	syscall.Close(w.in)
	err := w.cmd.Wait()
	syscall.Close(w.out)
	return err
}

// read reads until a line end, and returns how many bytes came.
func (w *wire) read() (total int, err error) {
	for {
		n, err := syscall.Read(w.out, w.buf)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return total, err
		case n == 0:
			return total, io.ErrUnexpectedEOF
		}
		total += n
		if w.buf[n-1] == '\n' {
			return total, nil
		}
	}
}

// call sends a line and waits for it to come back. Another goroutine writes a large one.
func (w *wire) call(line []byte) error {
	var n int
	var err error
	if len(line) < bulkSize/2 {
		if err = writeAll(w.in, line); err == nil {
			n, err = w.read()
		}
	} else {
		sent := make(chan error, 1)
		go func() { sent <- writeAll(w.in, line) }()
		n, err = w.read()
		err = errors.Join(err, <-sent)
	}
	if err == nil && n != len(line) {
		err = fmt.Errorf("%d bytes came back of %d", n, len(line))
	}
	return err
}

// message is a call whose line has so many bytes.
func message(size int) []byte {
	const head, tail = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"`, `"}}}` + "\n"
	text := bytes.Repeat([]byte("a quiet text "), size/13+1)[:max(size-len(head)-len(tail), 0)]
	return slices.Concat([]byte(head), text, []byte(tail))
}

// measure does one round with a subject.
func (s *subject) measure(calls int) error {
	w, err := start(s.command)
	if err != nil {
		return err
	}
	small := message(160)
	times := make([]time.Duration, 0, calls)
	for i := range calls + calls/10 {
		begun := time.Now()
		if err := w.call(small); err != nil {
			return err
		}
		if i >= calls/10 { // the others warm up
			times = append(times, time.Since(begun))
		}
	}
	s.median = append(s.median, median(times))
	s.atStart = append(s.atStart, w.peak())

	bulk := message(bulkSize)
	begun := time.Now()
	for range bulkCalls {
		if err := w.call(bulk); err != nil {
			return err
		}
	}
	s.bulk = append(s.bulk, time.Since(begun))

	large := message(largeSize)
	begun = time.Now()
	if err := w.call(large); err != nil {
		return err
	}
	s.large = append(s.large, time.Since(begun))
	s.peak = append(s.peak, w.peak())
	return w.close()
}

// peak returns how many bytes of the process's memory were resident at most.
func (w *wire) peak() int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(text), "VmHWM:")
	line, _, _ := strings.Cut(after, "\n")
	kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(line), "kB")), 10, 64)
	if err != nil {
		return 0
	}
	return kib << 10
}
