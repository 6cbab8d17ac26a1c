//go:build unix

package tap

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mcpwire/internal/test/wait"
)

func init() {
	// Says its number on standard output, and writes to standard error without end.
	helpers["moan"] = func([]string) int {
		fmt.Println(os.Getpid())
		line := append(bytes.Repeat([]byte("m"), 1000), '\n')
		for {
			if _, err := os.Stderr.Write(line); err != nil {
				return 87
			}
		}
	}
	// Says its number on standard error, writes more than a pipe holds, and ends.
	helpers["spill"] = func(args []string) int {
		fmt.Fprintln(os.Stderr, os.Getpid())
		n, _ := strconv.Atoi(args[0])
		_, _ = os.Stdout.Write(bytes.Repeat([]byte("s"), n))
		return 0
	}
}

// TestUnreadOutput checks that a server that gets a signal ends with its status, though its host
// reads neither of its outputs.
func TestUnreadOutput(t *testing.T) {
	for name, restart := range map[string]*Restart{"once": nil, "restarting": {OnCrash: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			signals := make(chan os.Signal)
			o := helperOptions(t, "moan")
			o.Signals, o.Restart = signals, restart
			h := startHost(t, o)
			if _, err := h.stdout.Read(make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
			wait.Until(t, "a full pipe", func() bool { return pollFile(h.files[5], unix.POLLOUT, 0)&unix.POLLOUT == 0 })
			signals <- syscall.SIGTERM
			if status := h.ends(); status != 128+int(syscall.SIGTERM) {
				t.Errorf("exit status %d, want that of SIGTERM", status)
			}
		})
	}
}

// TestSlowReader shows that a slow host gets all that a server has left, whatever signals arrive
// that do not end the tap.
func TestSlowReader(t *testing.T) {
	const size = 150_000 // more than the host's pipe, less than both with what the tap holds
	signals := make(chan os.Signal)
	o := helperOptions(t, "spill", strconv.Itoa(size))
	o.Signals = signals
	h := startHost(t, o)
	buf := make([]byte, 100)
	n, err := h.stderr.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	if err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the end of the server", func() bool { return syscall.Kill(pid, 0) != nil })
	wait.Within(t, "taking signals", func() {
		for range 20 {
			select {
			case signals <- syscall.SIGWINCH:
			case status := <-h.exit:
				t.Errorf("the tap has ended with status %d before all was read", status)
				h.exit <- status
				return
			}
			<-time.After(time.Millisecond)
		}
	})
	got := 0
	wait.Within(t, "reading what is left", func() {
		for got < size {
			n, err := h.stdout.Read(make([]byte, 10_000))
			if got += n; err != nil {
				break
			}
		}
	})
	if got != size {
		t.Errorf("the host got %d bytes, want %d", got, size)
	}
	if status := h.ends(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}

// TestNonBlocking shows that no data is lost if somebody makes a shared description non-blocking.
func TestNonBlocking(t *testing.T) {
	var p [2]int
	if err := unix.Pipe(p[:]); err != nil {
		t.Fatal(err)
	}
	r, w := os.NewFile(uintptr(p[0]), "r"), os.NewFile(uintptr(p[1]), "w")
	defer r.Close()
	for _, fd := range p {
		if err := unix.SetNonblock(fd, true); err != nil {
			t.Fatal(err)
		}
	}
	want := bytes.Repeat([]byte("0123456789"), 100_000)
	go func() {
		if err := writeAll(w, want); err != nil {
			t.Error(err)
		}
		w.Close()
	}()
	var got []byte
	wait.Within(t, "passing the bytes", func() {
		buf := make([]byte, 10_000)
		for {
			n, err := readFile(r, buf)
			got = append(got, buf[:n]...)
			if err != nil {
				if err != io.EOF {
					t.Error(err)
				}
				return
			}
		}
	})
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes passed, want %d; or they differ", len(got), len(want))
	}
}

// TestLaunch shows that a tap can start every command that a host can.
func TestLaunch(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("server", []byte("echo \"$1\"\n"), 0o777); err != nil { // which names no interpreter
		t.Fatal(err)
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", "."+string(filepath.ListSeparator)+os.Getenv("PATH"))
	for _, command := range []string{filepath.Join(dir, "server"), "./server", "server"} {
		h := startHost(t, Options{Command: []string{command, "a b"}})
		h.stdin.Close()
		got := make([]byte, 100)
		n, _ := h.stdout.Read(got)
		if string(got[:n]) != "a b\n" {
			t.Errorf("%s: %q", command, got[:n])
		}
		if status := h.ends(); status != 0 {
			t.Errorf("%s: exit status %d", command, status)
		}
	}
}
